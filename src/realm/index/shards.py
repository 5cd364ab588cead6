"""Vectors and ids on disk: pairs of ``.npy`` files, written once and never changed.

bfloat16 is stored as uint16; int8 as the codes of a row and behind them, in SCALE_BYTES more columns, the row's float32 scale.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from realm.errors import SnapshotError
from realm.index.manifest import ERRORS, Shard, SnapshotManifest
from realm.storage.arrays import read_array

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
