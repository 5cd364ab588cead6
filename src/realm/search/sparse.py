"""Sparse search over a generation's blocks: BM25 over titles and texts, from postings on disk.

``000007/sparse/`` holds parts, each built aside and renamed, and ``sparse.json``, a note of their names and SHA-256. The
first process to open a generation builds missing parts, in memory if it cannot write. Frequencies are stored instead of scores, so that
added blocks change statistics without rewriting; parts of other generations of the same corpus are shared by hard links."""

import hashlib
import logging
import os
import shutil
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.errors import SnapshotError
from realm.search.publishing.snapshot import DamagedSnapshot
from realm.storage.arrays import load_array, write_array
from realm.storage.files import publish_directory, remove_staging, sha256_file
from realm.storage.generations import generation_numbers, generation_path, trailing
from realm.storage.locks import held
from realm.storage.manifests import read_note, write_note
from realm.text.words import words

POSTING_DTYPES = {
    "block_ids": np.int64, "lengths": np.int32, "terms": np.uint64, "starts": np.int64, "rows": np.int32, "counts": np.uint16,
}  # fmt: skip


@dataclass(frozen=True)
class Postings:
    """Words of n blocks: t distinct ones, in p pairs of a word and a block.

    >>> count_words(["the tower", "the bridge of the tower"], np.array([10, 11])).find(hash_of("tower"))
    (array([0, 1], dtype=int32), array([1, 1], dtype=uint16))
    """

    block_ids: np.ndarray  # int64 [n], ascending
    lengths: np.ndarray  # int32 [n], words of each block
    terms: np.ndarray  # uint64 [t], ascending: hashes of the words
    starts: np.ndarray  # int64 [t + 1]: the pairs of word i are those from starts[i] to starts[i + 1]
    rows: np.ndarray  # int32 [p], positions in ``block_ids``, ascending for each word
    counts: np.ndarray  # uint16 [p], occurrences; 65,535 for more

    def find(self, term: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and counts of a word by its hash, int32 [m] and uint16 [m]."""
        place = int(np.searchsorted(self.terms, np.uint64(term)))
        if place == len(self.terms) or int(self.terms[place]) != term:
            return self.rows[:0], self.counts[:0]
        part = slice(int(self.starts[place]), int(self.starts[place + 1]))
        return self.rows[part], self.counts[part]


def hash_of(word: str) -> int:
    """64-bit hash of a word."""
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def count_words(texts: Iterable[str], block_ids: np.ndarray) -> Postings:
    """Postings of n texts (title and body of each block); memory: 4 bytes a word, and the distinct words."""
    vocabulary: dict[str, int] = {}
    stream, lengths = array("i"), array("i")
    for text in texts:
        found = [vocabulary.setdefault(word, len(vocabulary)) for word in words(text)]
        stream.extend(found)
        lengths.append(len(found))
    n = max(1, len(lengths))
    hashes = np.array([hash_of(word) for word in vocabulary], np.uint64)
    order = np.argsort(hashes)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    sizes = np.frombuffer(lengths, np.int32) if lengths else np.empty(0, np.int32)
    drawn = np.frombuffer(stream, np.int32) if stream else np.empty(0, np.int32)
    pairs, counts = np.unique(rank[drawn] * n + np.repeat(np.arange(len(sizes)), sizes), return_counts=True)
    starts = np.searchsorted(pairs, np.arange(len(hashes) + 1) * n)
    kept = np.minimum(counts, np.iinfo(np.uint16).max).astype(np.uint16)
    return Postings(block_ids, sizes, hashes[order], starts.astype(np.int64), (pairs % n).astype(np.int32), kept)


def write_postings(directory: Path, postings: Postings) -> dict[str, str]:
    """Write each array as NAME.npy into a staging directory. Returns the SHA-256 of each file."""
    for name, dtype in POSTING_DTYPES.items():
        with open(directory / f"{name}.npy", "wb") as file:
            write_array(file, np.asarray(getattr(postings, name), dtype))
    return {f"{name}.npy": sha256_file(directory / f"{name}.npy") for name in POSTING_DTYPES}


def read_postings(directory: Path, sha256: dict[str, str]) -> Postings:
    """Map the files of ``write_postings``, hashing each once a process. Raises DamagedSnapshot: one is missing or changed."""
    if set(sha256) != {f"{name}.npy" for name in POSTING_DTYPES}:
        raise DamagedSnapshot("its manifest names other files than sparse search has", path=directory)
    for name, expected in sha256.items():
        check_file(directory / name, expected)
    try:
        found = Postings(**{field.name: load_array(directory / f"{field.name}.npy", "r") for field in fields(Postings)})
    except (OSError, ValueError) as error:
        raise DamagedSnapshot(f"cannot be read: {error}", path=directory) from None
    for name, dtype in POSTING_DTYPES.items():
        if getattr(found, name).dtype != dtype or getattr(found, name).ndim != 1:
            raise DamagedSnapshot(f"not a list of {np.dtype(dtype)}", path=directory / f"{name}.npy")
    return found


def check_file(path: Path, sha256: str, *, again: bool = False) -> None:
    """Compare a file with its SHA-256, ``again`` even if it is unchanged. Raises DamagedSnapshot: it is missing or another one."""
    try:
        stat = os.stat(path)
        found = sha256_file(path) if again else _digest(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise DamagedSnapshot(f"cannot be read: {error.strerror}", path=path) from None
    if found != sha256:
        raise DamagedSnapshot("changed since it was published (checksum differs)", path=path)


@lru_cache(maxsize=1024)
def _digest(path: Path, *_: int) -> str:
    return sha256_file(path)


def merged_ids(parts: Sequence[Postings]) -> np.ndarray:
    """Block ids of postings one after the other, int64 [n]."""
    return np.concatenate([np.empty(0, np.int64), *(part.block_ids for part in parts)])


logger = logging.getLogger(__name__)
SPARSE_DIRECTORY, SPARSE_MANIFEST = "sparse", "sparse.json"
SPARSE_FORMAT_VERSION = 3
PART_BLOCKS = 1 << 20  # per part, which bounds the memory to build it
MIN_LIVE_SHARE = 0.75  # share of a part's blocks in a new generation that shares it; below, words are counted again
K1, B = 0.9, 0.4


@dataclass(frozen=True)
class Part:
    """One part in the manifest: its directory, its blocks, and the SHA-256 of its files."""

    name: str
    blocks: int
    files: dict[str, str]


class SparseIndex:
    """BM25 (k1 = .9, b = .4, Lucene's formula) over the blocks of one generation that are live in the newest corpus version.

    Word frequencies and the mean length are those of the blocks that may be found, however the parts came about: of disjoint blocks, ids
    ascending from part to part. ``block_ids``: int64 [n], ascending, the generation's; those that ``store`` lacks are not found either."""

    def __init__(self, parts: Sequence[Postings], block_ids: np.ndarray, store: BlockStore):
        self.parts = tuple(parts)
        self.block_ids = merged_ids(parts)
        self._known = np.isin(self.block_ids, block_ids) & store.is_live(self.block_ids)
        self._newest = store
        self._starts = np.cumsum([0, *(len(part.block_ids) for part in parts)])
        self._weigh(self._known)

    def __len__(self) -> int:
        """Blocks that may be found, including those removed since it was opened."""
        return int(self._known.sum())

    def nbytes(self) -> int:
        """Bytes of the mapped files."""
        return sum(array.nbytes for part in self.parts for array in vars(part).values())

    def scores(self, text: str) -> np.ndarray:
        """BM25 of every block, hidden ones included: float32 [m], in the order of ``block_ids``."""
        scores = np.zeros(len(self.block_ids), np.float32)
        for word, times in Counter(words(text)).items():
            found = [part.find(hash_of(word)) for part in self.parts]
            holding = sum(int(self._live[start:][rows].sum()) for start, (rows, _) in zip(self._starts, found, strict=False))
            weight = np.float32(times * np.log(1 + (self._blocks - holding + 0.5) / (holding + 0.5)))
            for start, norms, (rows, counts) in zip(self._starts, self._norms, found, strict=False):
                here, at, often = scores[start:], rows.astype(np.intp), counts.astype(np.float32)
                here[at] = here.take(at) + weight * (often / (norms.take(at) + often))
        return scores

    def search(self, texts: Sequence[str], k: int, exclude: Sequence[np.ndarray] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The k live blocks with the highest scores above 0 for each of b texts, best first, ties by age.

        ``exclude`` has for each text the block ids (int64) that it must not get. Returns block ids int64 [b,k], -1 if missing, and scores
        float32 [b,k], 0 there."""
        newest = self._newest.newest()
        if newest is not self._newest:
            self._newest = newest
            self._weigh(self._known & newest.is_live(self.block_ids))
        ids, best = np.full((len(texts), k), -1, np.int64), np.zeros((len(texts), k), np.float32)
        for i, text in enumerate(texts):
            scores = self.scores(text) * self._live
            if exclude is not None and len(exclude[i]):
                scores[np.isin(self.block_ids, exclude[i])] = 0
            places = np.flatnonzero(scores)
            if len(places) > k:
                points = scores[places]
                places = places[points >= np.partition(points, len(points) - k)[len(points) - k]]
            places = places[np.argsort(-scores[places], kind="stable")[:k]]
            ids[i, : len(places)], best[i, : len(places)] = self.block_ids[places], scores[places]
        return ids, best

    def _weigh(self, live: np.ndarray) -> None:
        """Find the blocks that are true in ``live`` alone, and weigh their words by them alone."""
        self._live, self._blocks = live, int(live.sum())
        held = [live[start : start + len(part.block_ids)] for start, part in zip(self._starts, self.parts, strict=False)]
        total = sum(int(part.lengths[here].sum(dtype=np.int64)) for part, here in zip(self.parts, held, strict=True))
        mean = max(1.0, total / max(1, self._blocks))
        self._norms = [(K1 * ((1 - B) + B * part.lengths / mean)).astype(np.float32) for part in self.parts]


def open_sparse(directory: Path, generation: int, block_ids: np.ndarray, store: BlockStore) -> SparseIndex:
    """Sparse index of a published generation with these ``block_ids`` (int64 [n], ascending); missing or damaged parts are built first."""
    root = generation_path(directory, generation) / SPARSE_DIRECTORY
    wanted = np.asarray(block_ids)[store.is_live(block_ids)]
    parts = [postings for _, postings in _read(root, store)]
    if len(np.setdiff1d(wanted, merged_ids(parts), assume_unique=True)):
        parts = _completed(directory, root, wanted, store)
    return SparseIndex(parts, block_ids, store)


def verify_sparse(directory: Path, generation: int) -> None:
    """Compare a generation's sparse index, if any, with its manifest. Raises DamagedSnapshot: a file is missing or changed."""
    root = generation_path(directory, generation) / SPARSE_DIRECTORY
    if not root.exists():
        return
    manifest = _manifest(root)
    if manifest is None:
        raise DamagedSnapshot("not a manifest of sparse search", path=root / SPARSE_MANIFEST)
    for part in manifest[1]:
        for name, sha256 in part.files.items():
            check_file(root / part.name / name, sha256, again=True)


def _completed(directory: Path, root: Path, wanted: np.ndarray, store: BlockStore) -> list[Postings]:
    """All parts for the blocks ``wanted`` int64 [n], missing ones published, or in memory alone if that fails."""
    try:
        root.mkdir(exist_ok=True)
        with held(root, lambda named: SnapshotError(f"another process{named} is making the sparse index", path=root)):
            return _publish(directory, root, wanted, store)
    except (OSError, SnapshotError) as error:
        logger.warning("sparse search is built in memory only, and every process builds its own: %s", error)
        known = [postings for _, postings in _read(root, store)]
        return [*known, *_made(_missing(wanted, known), store)]


def _publish(directory: Path, root: Path, wanted: np.ndarray, store: BlockStore) -> list[Postings]:
    """``_completed`` by the holder of the lock."""
    remove_staging(root)
    kept = _read(root, store) or _shared(directory, root, wanted, store)
    small = trailing([part.blocks for part, _ in kept])
    kept = kept[: len(kept) - small]
    missing = _missing(wanted, [postings for _, postings in kept])
    if kept and len(missing) and missing[0] < kept[-1][1].block_ids[-1]:  # ids ascend through the parts
        kept, missing = [], wanted
    number = 1 + max((int(path.name) for path in root.iterdir() if path.name.isdigit()), default=-1)
    for added, postings in enumerate(_made(missing, store), number):
        with publish_directory(root / f"{added:05d}") as staging:
            files = write_postings(staging, postings)
        part = Part(f"{added:05d}", len(postings.block_ids), files)
        kept.append((part, read_postings(root / part.name, files)))
    facts = {"format_version": SPARSE_FORMAT_VERSION, "corpus_id": store.corpus_id}
    write_note(root / SPARSE_MANIFEST, {**facts, "parts": [asdict(part) for part, _ in kept]})
    named = {part.name for part, _ in kept}
    for path in root.iterdir():
        if path.name.isdigit() and path.name not in named:  # merged, damaged, or left by who was killed
            shutil.rmtree(path, ignore_errors=True)
    return [postings for _, postings in kept]


def _missing(wanted: np.ndarray, known: Sequence[Postings]) -> np.ndarray:
    return np.setdiff1d(wanted, merged_ids(known), assume_unique=True)


def _made(block_ids: np.ndarray, store: BlockStore) -> list[Postings]:
    made = []
    for start in range(0, len(block_ids), PART_BLOCKS):
        ids = block_ids[start : start + PART_BLOCKS]
        blocks = (store.block(row) for row in store.rows_of(ids).tolist())
        made.append(count_words((f"{block.full_title} {block.text}" for block in blocks), ids))
    return made


def _shared(directory: Path, root: Path, wanted: np.ndarray, store: BlockStore) -> list[tuple[Part, Postings]]:
    """Parts of the newest other generation of this corpus that can be shared, linked into ``root``."""
    for number in reversed(generation_numbers(directory)):
        other = generation_path(directory, number) / SPARSE_DIRECTORY
        if other == root:
            continue
        linked = []
        for part, postings in _read(other, store):
            if np.isin(postings.block_ids, wanted).mean() < MIN_LIVE_SHARE:
                break  # ids ascend through the parts: those behind it follow it
            target = root / part.name
            shutil.rmtree(target, ignore_errors=True)
            try:
                with publish_directory(target) as staging:
                    shutil.copytree(other / part.name, staging, copy_function=os.link, dirs_exist_ok=True)
            except OSError:  # pruned meanwhile, or a file system without links
                break
            linked.append((part, postings))
        if linked:
            return linked
    return []


def _read(root: Path, store: BlockStore) -> list[tuple[Part, Postings]]:
    """Intact parts for this corpus, up to the first that is not."""
    manifest = _manifest(root)
    if manifest is None or manifest[0] != store.corpus_id:
        return []
    found = []
    try:
        for part in manifest[1]:
            found.append((part, read_postings(root / part.name, part.files)))
    except DamagedSnapshot as error:
        logger.warning("a part of sparse search is damaged and is rebuilt: %s", error)
    return found


def _manifest(root: Path) -> tuple[str, list[Part]] | None:
    """Corpus and parts in the manifest; None without one that this version can read."""
    value = read_note(root / SPARSE_MANIFEST)
    if not isinstance(value, dict) or value.get("format_version") != SPARSE_FORMAT_VERSION:
        return None
    try:
        return str(value["corpus_id"]), [Part(**part) for part in value["parts"]]
    except (KeyError, TypeError):
        return None
