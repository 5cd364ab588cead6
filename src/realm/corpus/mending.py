"""A corpus read through to the last byte: what is damaged, which documents that affects, and what can be rebuilt.

Look-up files are made from their segment, ``CURRENT`` from the newest manifest that is whole, the tokenizer from a copy. The text of the
documents is in the segments alone.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from realm.corpus.store import manifest as manifests
from realm.corpus.store.lookup import companions, write_lookup
from realm.corpus.store.manifest import CorpusManifest, SegmentInfo, damage, writer_lock
from realm.corpus.store.sums import frame_sum, read_whole
from realm.corpus.store.views import BatchView
from realm.corpus.tagging.specs import corpus_tagger
from realm.decoding import json_value
from realm.errors import CorpusError, RealmError
from realm.storage import files
from realm.storage.arrays import load_array
from realm.storage.damage import Damage
from realm.storage.sealed import is_sealed, seal, sealed_problems
from realm.storage.sums import array_sum
from realm.text.tokenizer import TOKENIZER_FILE, TextTokenizer

AGAIN = "Build the corpus again from its sources"


def corpus_damage(corpus: Path, tokenizers: Iterable[Path] = ()) -> list[Damage]:
    """Read everything in a corpus directory. Nothing is changed.

    Args:
        tokenizers: directories that may hold a copy of the corpus's tokenizer.
    """
    try:
        manifest = manifests.read_manifest(corpus)
    except CorpusError as error:
        return [_without_manifest(corpus, error)]
    return [
        *_tokenizer(corpus, manifest, tokenizers),
        *_tagger(corpus, manifest),
        *_tombstones(corpus, manifest),
        *(found for info in manifest.segments for found in _segment(corpus / manifests.SEGMENTS_DIRECTORY, info)),
        *_rejected(corpus),
    ]


def _without_manifest(corpus: Path, error: CorpusError) -> Damage:
    """``CURRENT`` or the manifest that it names cannot be read."""
    path = error.path or corpus
    versions = sorted(int(name) for file in corpus.glob("manifest-*.json") if (name := file.stem.partition("-")[2]).isdigit())
    whole = next((manifest for version in reversed(versions) if (manifest := _whole_manifest(corpus, version)) is not None), None)
    if whole is None:
        return Damage(path, error.problem, f"No manifest of any version can be read. {AGAIN}")
    if whole.version == versions[-1]:
        mend = partial(_point_at, corpus, whole.version)
        return Damage(path, error.problem, f"make version {whole.version} with {whole.documents} documents the current one", mend)
    cure = (
        f"go back to version {whole.version} with {whole.documents} documents, as version {versions[-1] + 1}: what was added since is gone,"
        " and what was removed since is there again"
    )
    return Damage(path, error.problem, cure, partial(_go_back, corpus, whole, versions[-1] + 1))


def _whole_manifest(corpus: Path, version: int) -> CorpusManifest | None:
    """The manifest of a version, if it and all files that it names are there."""
    try:
        manifest = manifests.read_manifest(corpus, version)
        manifests.read_tombstones(corpus, manifest)
    except CorpusError:
        return None
    paths = ((corpus / manifests.SEGMENTS_DIRECTORY / info.name, info.bytes) for info in manifest.segments)
    return manifest if all(path.is_file() and path.stat().st_size == size for path, size in paths) else None


def _point_at(corpus: Path, version: int) -> None:
    with writer_lock(corpus):
        manifests.point_at(corpus, version)


def _go_back(corpus: Path, manifest: CorpusManifest, version: int) -> None:
    """Publish an older version again. Ids of blocks that came since are not given again: an index may hold them."""
    with writer_lock(corpus):
        known = {info.name for info in manifest.segments}
        later = [path for path in (corpus / manifests.SEGMENTS_DIRECTORY).glob("*.arrow") if path.name not in known]
        most = sum(path.stat().st_size for path in later)  # each block takes more than a byte
        manifests.write_manifest(corpus, replace(manifest, version=version, next_block_id=manifest.next_block_id + most))


def _tokenizer(corpus: Path, manifest: CorpusManifest, copies: Iterable[Path]) -> Iterator[Damage]:
    directory = corpus / manifests.TOKENIZER_DIRECTORY
    path = directory / TOKENIZER_FILE
    try:
        found = sealed_problems(directory, damage("tokenizer")) if is_sealed(directory) else []
        if found:
            path, problem = found[0]
        elif TextTokenizer.load(directory).sha256 != manifest.tokenizer_sha256:
            problem = "it is not the one the corpus was built with"
        else:
            return
    except RealmError as error:
        path, problem = error.path or path, error.problem
    for copy in copies:
        if _is_tokenizer(copy, manifest.tokenizer_sha256):
            yield Damage(path, problem, f"copy the tokenizer from {copy}", partial(_copy_tokenizer, corpus, copy))
            return
    yield Damage(path, problem, f"{AGAIN}; no copy of the same tokenizer was found")


def _is_tokenizer(directory: Path, sha256: str) -> bool:
    """Whether a directory holds, whole, the tokenizer of this digest."""
    try:
        return TextTokenizer.load(directory).sha256 == sha256
    except RealmError:
        return False


def _copy_tokenizer(corpus: Path, copy: Path) -> None:
    directory = corpus / manifests.TOKENIZER_DIRECTORY
    with writer_lock(corpus):
        tokenizer = TextTokenizer.load(copy)
        shutil.rmtree(directory, ignore_errors=True)
        with files.publish_directory(directory) as staging:
            tokenizer.save(staging)
            seal(staging)


def _tagger(corpus: Path, manifest: CorpusManifest) -> Iterator[Damage]:
    try:
        corpus_tagger(corpus, manifest)
    except RealmError as error:
        cure = "Answers work without it; to add documents, build the corpus again from its sources"
        yield Damage(error.path or corpus / manifests.TAGGER_FILE, error.problem, cure)


def _tombstones(corpus: Path, manifest: CorpusManifest) -> Iterator[Damage]:
    try:
        manifests.read_tombstones(corpus, manifest)
    except CorpusError as error:
        cure = f"The list of the {manifest.removed} removed blocks is stored nowhere else. {AGAIN}"
        yield Damage(error.path or corpus, error.problem, cure)


def _segment(directory: Path, info: SegmentInfo) -> Iterator[Damage]:
    path = directory / info.name
    try:
        whole = files.sha256_file(path) == info.sha256
        problem = "changed since it was published (SHA-256 differs)"
    except OSError as error:
        whole, problem = False, f"damaged segment: {error.strerror}"
    if not whole:
        affected = _affected(path, info)
        what = "those documents" if affected else f"any of its {info.rows} blocks"
        yield Damage(path, problem, f"The text of {what} is stored nowhere else. {AGAIN}", documents=affected)
        return
    for file, expected in zip(companions(path), (info.sums.documents, info.sums.blocks), strict=True):
        if (changed := _array_problem(file, expected)) is not None:
            yield Damage(file, changed, "rebuild it from its segment", partial(_make_lookup, directory, info))


def _array_problem(path: Path, expected: str) -> str | None:
    try:
        found = array_sum(load_array(path))
    except FileNotFoundError:
        return "missing"
    except (OSError, ValueError, EOFError) as error:
        return f"not a whole .npy file ({error})"
    return "changed since it was published (checksum differs)" if found != expected else None


def _affected(path: Path, info: SegmentInfo) -> tuple[str, ...]:
    """Ids of the documents in the record batches of a damaged segment that have changed; none where that cannot be told."""
    if not path.is_file() or path.stat().st_size != info.bytes:
        return ()
    found: dict[str, None] = {}
    try:
        whole = read_whole(path)
        for place in (0, -1):
            start, end, expected = info.sums.frames[place]
            if frame_sum(whole, start, end) != expected:
                return ()
        reader = pa.ipc.open_file(pa.BufferReader(whole))
        for number, sums in enumerate(info.sums.columns):
            start, end, expected = info.sums.frames[number]
            if frame_sum(whole, start, end) != expected:
                return ()
            view = BatchView(reader.get_batch(number), sums, CorpusError)
            if not _reads(view, reader.schema.names):
                found.update(dict.fromkeys(view.strings("doc_id")))  # refuses where it is this column that changed
    except (CorpusError, OSError, pa.ArrowInvalid):
        return ()
    return tuple(found)


def _reads(view: BatchView, columns: Sequence[str]) -> bool:
    try:
        for name in columns:
            view.column(name)
    except CorpusError:
        return False
    return True


def _lookup_beside(path: Path, scratch: Path) -> tuple[Path, Path]:
    """The look-up files of a segment, rebuilt below ``scratch``."""
    reader = pa.ipc.open_file(pa.BufferReader(read_whole(path)))
    write_lookup(scratch / path.name, [reader.get_batch(number) for number in range(reader.num_record_batches)])
    return companions(scratch / path.name)


def _make_lookup(directory: Path, info: SegmentInfo) -> None:
    """Put both look-up files of a whole segment in their places."""
    corpus = directory.parent
    scratch = corpus / f"mend{files.STAGING_SUFFIX}"
    with writer_lock(corpus):
        try:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            pairs = list(zip(_lookup_beside(directory / info.name, scratch), companions(directory / info.name), strict=True))
            files.fsync_tree(scratch)
            for made, final in pairs:
                os.replace(made, final)
            files.fsync_directory(directory)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _rejected(corpus: Path) -> Iterator[Damage]:
    path = corpus / manifests.REJECTED_FILE
    try:
        for line in path.read_bytes().splitlines():
            json_value(line)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        yield Damage(path, f"damaged: {error}", "No command reads it: remove it, or leave it")
