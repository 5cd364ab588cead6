"""Sparse search beside a generation of the index: BM25 over titles and texts of the same blocks.

``DIRECTORY/000007/sparse/`` holds parts (``postings.py``), each built aside and renamed, and ``sparse.json``, which names them with the
SHA-256 of every file. The first process that opens a generation builds what is missing: all of it, or a part of the blocks that were added
since. Text does not change with the embeddings: parts of other generations of the same corpus are shared by hard links, not rebuilt.
Where nothing can be written, or another process is still writing, the same is made in memory.
"""

import logging
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from realm.errors import SnapshotError
from realm.search.index.choice import Living
from realm.search.postings import Postings, check_file, count_words, hash_of, merged_ids, read_postings, write_postings
from realm.search.publishing.manifest import DamagedSnapshot
from realm.storage.files import publish_directory, read_json, remove_staging, write_json
from realm.storage.generations import generation_numbers, generation_path
from realm.storage.locks import held
from realm.storage.tails import trailing
from realm.text.words import words

logger = logging.getLogger(__name__)
DIRECTORY, MANIFEST = "sparse", "sparse.json"
FORMAT_VERSION = 1
PART_BLOCKS = 1 << 20
"""Blocks of a part at most: memory while it is made is that of their words."""
STILL_LIVE = 0.75
"""The share of a part's blocks that a new generation must hold to share it; below, their words are counted again."""
K1, B = 0.9, 0.4


class Texts(Living, Protocol):
    """What sparse search asks the corpus besides, as ``BlockStore`` says it."""

    def rows_of(self, block_ids: np.ndarray, /) -> np.ndarray: ...

    def block(self, row: int, /) -> Any: ...


@dataclass(frozen=True)
class Part:
    """One part as the manifest names it: its directory, its blocks, and the SHA-256 of its files."""

    name: str
    blocks: int
    files: dict[str, str]


class SparseIndex:
    """BM25 (k1 = .9, b = .4, Lucene's formula) over the blocks of one generation, those of them that are live in the newest version.

    Frequencies of words and the mean length are those of all parts together, removed blocks included until their part is rebuilt.

    Args:
        parts: of disjoint blocks, ids ascending from part to part.
        block_ids: int64 [n], ascending: the generation's blocks; others that a part holds are not found.
        store: the corpus as the caller has it open. Blocks that it does not hold are not found: the caller could not read them.
    """

    def __init__(self, parts: Sequence[Postings], block_ids: np.ndarray, store: Texts):
        self.parts = tuple(parts)
        self.block_ids = merged_ids(parts)
        self._known = np.isin(self.block_ids, block_ids) & store.is_live(self.block_ids)
        self._newest: Living = store
        self._live = self._known
        self._starts = np.cumsum([0, *(len(part.block_ids) for part in parts)])
        total = sum(int(part.lengths.sum(dtype=np.int64)) for part in parts)
        mean = max(1.0, total / max(1, len(self.block_ids)))
        self._norms = [(K1 * ((1 - B) + B * part.lengths / mean)).astype(np.float32) for part in parts]

    def __len__(self) -> int:
        """Blocks that may be found, those removed since it was opened included."""
        return int(self._known.sum())

    def nbytes(self) -> int:
        """Bytes of the files that are mapped."""
        return sum(array.nbytes for part in self.parts for array in vars(part).values())

    def scores(self, text: str) -> np.ndarray:
        """BM25 of every block, hidden ones included: float32 [m], in the order of ``block_ids``."""
        scores = np.zeros(len(self.block_ids), np.float32)
        for word, times in Counter(words(text)).items():
            found = [part.find(hash_of(word)) for part in self.parts]
            holding = sum(len(rows) for rows, _ in found)
            weight = np.float32(times * np.log(1 + (len(scores) - holding + 0.5) / (holding + 0.5)))
            for start, norms, (rows, counts) in zip(self._starts, self._norms, found, strict=False):
                here, at, often = scores[start:], rows.astype(np.intp), counts.astype(np.float32)
                here[at] = here.take(at) + weight * (often / (norms.take(at) + often))
        return scores

    def search(self, texts: Sequence[str], k: int, exclude: Sequence[np.ndarray] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The k live blocks with the most points for each of b texts, best first, of equal ones the older; only those with any.

        Args:
            texts: b texts.
            k: how many.
            exclude: for each text the block ids (int64) that it must not get.

        Returns:
            Block ids int64 [b,k], -1 where there is none, and scores float32 [b,k], 0 there.
        """
        self._hide_removed()
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

    def _hide_removed(self) -> None:
        newest = self._newest.newest()
        if newest is not self._newest:
            self._live, self._newest = self._known & newest.is_live(self.block_ids), newest


def open_sparse(directory: Path, generation: int, block_ids: np.ndarray, store: Texts) -> SparseIndex:
    """The sparse index of a generation that is published; what is not there yet, or damaged, is made first.

    Args:
        directory: the run's ``index/``.
        generation: its number.
        block_ids: int64 [n], ascending: its blocks.
        store: the corpus.
    """
    root = generation_path(directory, generation) / DIRECTORY
    wanted = np.asarray(block_ids)[store.is_live(block_ids)]
    parts = [postings for _, postings in _read(root, store)]
    if len(np.setdiff1d(wanted, merged_ids(parts), assume_unique=True)):
        parts = _completed(directory, root, wanted, store)
    return SparseIndex(parts, block_ids, store)


def verify_sparse(directory: Path, generation: int) -> None:
    """Read every byte of a generation's sparse index, if it has one, and compare it with its manifest.

    Raises:
        DamagedSnapshot: something is missing or changed.
    """
    root = generation_path(directory, generation) / DIRECTORY
    if not root.exists():
        return
    manifest = _manifest(root)
    if manifest is None:
        raise DamagedSnapshot("not a manifest of sparse search", path=root / MANIFEST)
    for part in manifest[1]:
        for name, sha256 in part.files.items():
            check_file(root / part.name / name, sha256, again=True)


def _completed(directory: Path, root: Path, wanted: np.ndarray, store: Texts) -> list[Postings]:
    """All parts, those that were missing published; in memory alone where that cannot be.

    Args:
        root: the sparse index to complete.
        wanted: int64 [n], the blocks it is to cover.
    """
    try:
        root.mkdir(exist_ok=True)
        with held(root, lambda named: SnapshotError(f"another process{named} is making the sparse index", path=root)):
            return _publish(directory, root, wanted, store)
    except (OSError, SnapshotError) as error:
        logger.warning("sparse search is built in memory only, and every process builds its own: %s", error)
        known = [postings for _, postings in _read(root, store)]
        return [*known, *_made(_missing(wanted, known), store)]


def _publish(directory: Path, root: Path, wanted: np.ndarray, store: Texts) -> list[Postings]:
    """``_completed`` by who holds the lock."""
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
    facts = {"format_version": FORMAT_VERSION, "corpus_id": store.corpus_id}
    write_json(root / MANIFEST, {**facts, "parts": [asdict(part) for part, _ in kept]})
    named = {part.name for part, _ in kept}
    for path in root.iterdir():
        if path.name.isdigit() and path.name not in named:  # merged, damaged, or left by who was killed
            shutil.rmtree(path, ignore_errors=True)
    return [postings for _, postings in kept]


def _missing(wanted: np.ndarray, known: Sequence[Postings]) -> np.ndarray:
    return np.setdiff1d(wanted, merged_ids(known), assume_unique=True)


def _made(block_ids: np.ndarray, store: Texts) -> list[Postings]:
    """Postings of some blocks, in parts of PART_BLOCKS."""
    made = []
    for start in range(0, len(block_ids), PART_BLOCKS):
        ids = block_ids[start : start + PART_BLOCKS]
        blocks = (store.block(row) for row in store.rows_of(ids).tolist())
        made.append(count_words((f"{block.title} {block.text}" for block in blocks), ids))
    return made


def _shared(directory: Path, root: Path, wanted: np.ndarray, store: Texts) -> list[tuple[Part, Postings]]:
    """The parts of the newest other generation of this corpus that can be shared, linked into ``root``."""
    for number in reversed(generation_numbers(directory)):
        other = generation_path(directory, number) / DIRECTORY
        if other == root:
            continue
        linked = []
        for part, postings in _read(other, store):
            if np.isin(postings.block_ids, wanted).mean() < STILL_LIVE:
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


def _read(root: Path, store: Texts) -> list[tuple[Part, Postings]]:
    """The parts that lie there whole for this corpus, up to the first that does not."""
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
    """The corpus and the parts that the manifest names; None where there is none that this version can read."""
    value: Any = read_json(root / MANIFEST)
    if not isinstance(value, dict) or value.get("format_version") != FORMAT_VERSION:
        return None
    try:
        return str(value["corpus_id"]), [Part(**part) for part in value["parts"]]
    except (KeyError, TypeError):
        return None
