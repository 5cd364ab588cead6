"""The manifest of one index generation: what it holds, what made it, and a checksum over itself.

Every file of a generation is named here with its SHA-256, ids beside the vectors they belong to. One manifest is one revision: who reads
the manifest first and then only the files it names can never mix two of them.

Vectors and ids are pairs of ``.npy`` files, written once and never changed. bfloat16 is stored as uint16; int8 as the codes of a row and
behind them, in SCALE_BYTES more columns, the row's float32 scale.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from realm.errors import SnapshotError
from realm.storage.arrays import read_array
from realm.storage.manifests import Errors, read_sealed, write_sealed

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
DTYPES = ("float32", "float16", "bfloat16", "int8")


class DamagedSnapshot(SnapshotError):
    """Files of a generation that are missing, cut short or changed since they were published."""


ERRORS = Errors(DamagedSnapshot, partial(SnapshotError, cure="Check the permissions and the disk"))
"""For files of an index; a file that the disk cannot read is not moved aside."""


@dataclass(frozen=True)
class Shard:
    """Rows published together: a vectors file [rows,d] and an ids file int64 [rows]."""

    file: str
    sha256: str
    ids_file: str
    ids_sha256: str
    rows: int
    first_block_id: int | None  # None when there are no rows

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all its files."""
        return self.file, self.ids_file


@dataclass(frozen=True, kw_only=True)
class SnapshotFacts:
    """What a publisher says of a generation.

    Attributes:
        params_generation: counter of the parameters that embedded it.
        step: training step of those parameters.
        document_embedder_sha256: whose vectors these are; like the next two, checked when the generation is opened.
        corpus_id: the corpus it was built from.
        tokenizer_sha256: the tokenizer of that corpus.
        corpus_version: the corpus's counter when the last rows were added.
        tombstone_version: the corpus's counter whose removals were left out.
        dtype: one of DTYPES.
        segments: (corpus segment, rows) in row order, empty if the publisher did not say.
    """

    params_generation: int
    step: int
    document_embedder_sha256: str
    corpus_id: str
    tokenizer_sha256: str
    corpus_version: int
    tombstone_version: int = 0
    dtype: str = "float32"
    segments: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class SnapshotManifest(SnapshotFacts):
    """One revision of one generation: its facts, and what lies on disk.

    Attributes:
        generation: counter of the index.
        revision: 0 when published, one more for each delta.
        dim: d.
        count: n, rows of all shards.
        shards: in row order.
        seconds: what building revision 0 took, over all processes that took it up.
    """

    generation: int
    revision: int
    dim: int
    count: int
    shards: tuple[Shard, ...]
    seconds: float = 0.0
    format_version: int = FORMAT_VERSION


def fields_of(facts: SnapshotFacts) -> dict[str, Any]:
    """The facts alone, of a manifest too."""
    return {field.name: getattr(facts, field.name) for field in fields(SnapshotFacts)}


def write_manifest(generation_directory: Path, manifest: SnapshotManifest) -> None:
    """Publish a revision: readers see the old manifest or this one."""
    write_sealed(generation_directory / MANIFEST, asdict(manifest))


def read_manifest(generation_directory: Path, generation: int) -> SnapshotManifest:
    """Read the manifest of ``generation`` and check it against itself.

    Raises:
        DamagedSnapshot: missing, not JSON, changed since it was written, or another generation's.
        SnapshotError: written by another version of the format.
    """
    path = generation_directory / MANIFEST
    value = read_sealed(path, ERRORS)
    if value.get("format_version") != FORMAT_VERSION:
        problem = f"index format {value.get('format_version')}, this version reads format {FORMAT_VERSION}"
        raise SnapshotError(problem, path=path, cure="Build the index again: realm index build RUN")
    value["segments"] = tuple((str(name), int(rows)) for name, rows in value["segments"])
    _refuse_mixed(value, path)
    value["shards"] = tuple(Shard(**{key: shard[key] for key in Shard.__dataclass_fields__}) for shard in value["shards"])
    manifest = SnapshotManifest(**{name: value[name] for name in SnapshotManifest.__dataclass_fields__})
    if manifest.generation != generation:
        raise DamagedSnapshot(f"this is generation {manifest.generation}, in the directory of generation {generation}", path=path)
    return manifest


def _refuse_mixed(value: dict[str, Any], path: Path) -> None:
    """Take out of a manifest what earlier versions said of rows that several parameters had embedded; whole generations say nothing there.

    Raises:
        SnapshotError: its rows were embedded by several parameters.
    """
    kind = value.pop("kind", "whole")
    value.pop("mixture", None)
    if kind != "whole":
        problem = f"an index of kind '{kind}': its rows were embedded by several parameters, which this version does not search"
        raise SnapshotError(problem, path=path, cure="Finish pre-training with realm run: its last generation has one set of parameters")


STORED: dict[str, np.dtype] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(np.uint16),
    "int8": np.dtype(np.int8),
}
SCALE_BYTES = 4


def stored_width(dim: int, dtype: str) -> int:
    """Columns of a vectors file of dimension ``dim``."""
    return dim + SCALE_BYTES if dtype == "int8" else dim


def shard_names(number: int) -> tuple[str, str]:
    """Files of shard ``number``: vectors, ids."""
    return f"vectors-{number:05d}.npy", f"block_ids-{number:05d}.npy"


def next_number(shards: Iterable[Shard]) -> int:
    """The number of a shard that comes after these; not how many there are, since merged ones have gone."""
    return 1 + max((int(Path(shard.file).stem.rpartition("-")[2]) for shard in shards), default=-1)


def read_shard(directory: Path, shard: Shard, manifest: SnapshotManifest, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    """The vectors float32 [r,d] (memory-mapped if large and stored as float32) and ids int64 [r] of one shard.

    Args:
        verify: compare the SHA-256 of both files; without it only shapes and types are checked.

    Raises:
        DamagedSnapshot: a file is missing, cut short, changed, or not what the manifest says.
    """
    stored, block_ids = read_stored(directory, shard, manifest, verify)
    return decode(stored), block_ids


def read_stored(directory: Path, shard: Shard, manifest: SnapshotManifest, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    """The vectors as they are stored and the ids int64 [r] of one shard; arguments and errors as for ``read_shard``."""
    shape = shard.rows, stored_width(manifest.dim, manifest.dtype)
    hashes = (shard.sha256, shard.ids_sha256) if verify else (None, None)
    vectors = read_array(directory / shard.file, shape, STORED[manifest.dtype], ERRORS, sha256=hashes[0])
    return vectors, read_array(directory / shard.ids_file, (shard.rows,), np.dtype(np.int64), ERRORS, sha256=hashes[1])


def encode(vectors: np.ndarray, dtype: str, first: int = 0) -> np.ndarray:
    """Vectors [r,d] as they are stored: float32, float16, bfloat16 bits as uint16 (both rounded to nearest even), or int8 codes.

    Args:
        vectors: floating point.
        dtype: one of DTYPES.
        first: number of the first row, for the message.

    Raises:
        SnapshotError: a component that is not finite afterwards.
    """
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(vectors, dtype=np.float32)
        encoded = single.astype(np.float16) if dtype == "float16" else single
    finite = np.isfinite(encoded).all(axis=1)
    if dtype == "bfloat16":
        half = torch.from_numpy(single.copy()).to(torch.bfloat16)
        finite = torch.isfinite(half).all(1).numpy()
        encoded = half.view(torch.uint16).numpy()
    if not finite.all():
        row = first + int(np.flatnonzero(~finite)[0])
        raise SnapshotError(f"vector {row} has a component that is not finite in {dtype}", cure="Go back to an earlier checkpoint")
    return _codes(single) if dtype == "int8" else encoded


def decode(stored: np.ndarray) -> np.ndarray:
    """Stored vectors as float32: the same array, or others widened in memory."""
    if stored.dtype == np.int8:
        scales = np.ascontiguousarray(stored[:, -SCALE_BYTES:]).view(np.float32)
        values = stored[:, :-SCALE_BYTES].astype(np.float32)
        values *= scales
        return values
    if stored.dtype == np.float16:
        return stored.astype(np.float32)
    if stored.dtype != np.uint16:
        return stored
    wide = stored.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def _codes(single: np.ndarray) -> np.ndarray:
    """Rows as int8 codes from -127 to 127 of their own scale, the scale's bytes behind them: int8 [r,d+4] of float32 [r,d]."""
    scales = (np.abs(single).max(axis=1, keepdims=True) / np.float32(127)).astype(np.float32)
    codes = np.rint(np.divide(single, scales, out=np.zeros_like(single), where=scales > 0)).clip(-127, 127).astype(np.int8)
    return np.concatenate([codes, scales.view(np.int8)], axis=1)
