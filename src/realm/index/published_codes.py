"""The codes of compressed search beside the vectors of a generation, so that who opens it shares one copy and need not make them.

``NNNNNN/codes/`` holds ``.npy`` files and a JSON header, published whole and opened by memory map. The manifest names the SHA-256 of the
header, which names those of the files and what the codes were made from: codes of other vectors are never used. Without them, and where
they are damaged, codes are made in memory.
"""

import logging
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from realm.errors import SnapshotError
from realm.index.manifest import ERRORS, DamagedSnapshot, Shard, SnapshotManifest
from realm.index.native.kernel import Kernel, installed_kernel
from realm.index.quantised import ARRAYS, QuantisedRows, array_shapes, quantise
from realm.index.shards import decode
from realm.storage.arrays import array_header, load_array, read_array
from realm.storage.files import publish_directory, sha256_file, write_json
from realm.storage.manifests import read_object

CODES, HEADER = "codes", "codes.json"
FORMAT = 1
METRIC = "ip"  # what codes are saved for: those for distances hold other offsets
CHUNK = 1 << 18  # rows coded at a time, a multiple of GROUP
REMAKE = "Delete it; it is rebuilt from the vectors"
LEAST_ENTRIES = 1 << 26
"""Components (rows x d) from which codes are published: 524,288 rows of 128. Fewer are coded in a tenth of a second."""

logger = logging.getLogger(__name__)


def publish_codes(directory: Path, shard: Shard, dim: int) -> str | None:
    """Write the codes of the vectors of a generation that is being built. What a killed process left of them is replaced.

    Args:
        directory: of the generation; it holds the shard.

    Returns:
        The SHA-256 of their header, for the manifest; None where none are published: too few rows, or no native kernel.
    """
    kernel = installed_kernel()
    if kernel is None or shard.rows * dim < LEAST_ENTRIES:
        return None
    shutil.rmtree(directory / CODES, ignore_errors=True)
    save_codes(directory / CODES, kernel, load_array(directory / shard.file, "r"), made_from=shard.sha256)
    return sha256_file(directory / CODES / HEADER)


def read_codes(directory: Path, manifest: SnapshotManifest, verify: bool) -> QuantisedRows | None:
    """The published codes of a generation, memory-mapped; None where there are none that can be used, with a warning if there should be."""
    if manifest.codes_sha256 is None or installed_kernel() is None:
        return None
    codes = directory / CODES
    try:
        if not (codes / HEADER).is_file() or sha256_file(codes / HEADER) != manifest.codes_sha256:
            raise DamagedSnapshot("missing, or changed since it was published (SHA-256 differs)", path=codes / HEADER)
        rows = open_codes(codes, made_from=manifest.shards[0].sha256, metric=METRIC, verify=verify)
        if (rows.rows, rows.dim) != (manifest.count, manifest.dim):
            raise DamagedSnapshot(f"codes of [{rows.rows},{rows.dim}], not [{manifest.count},{manifest.dim}]", path=codes)
        return rows
    except (SnapshotError, OSError) as error:
        logger.warning("codes are rebuilt in memory: %s", error)
        return None


def save_codes(directory: Path, kernel: Kernel, stored: np.ndarray, *, made_from: str) -> None:
    """Publish the codes of vectors, for inner products, as ``directory``, which must not exist. Memory: a part of them.

    Args:
        stored: [n,d], as ``realm.index.shards.encode`` gives it, perhaps memory-mapped.
        made_from: names the vectors, e.g. the SHA-256 of their file; ``open_codes`` asks for it.

    Raises:
        FileExistsError: ``directory`` exists.
        SnapshotError: a component that is not finite.
    """
    n, dim = stored.shape
    with publish_directory(directory) as staging, ExitStack() as stack:
        files = {}
        for name, (shape, dtype) in array_shapes(n, dim).items():
            files[name] = stack.enter_context(open(staging / f"{name}.npy", "wb"))
            files[name].write(array_header(np.dtype(dtype), shape))
        # Not into memory-mapped files: a full disk would end the process there.
        for start in range(0, n, CHUNK):
            part = quantise(kernel, np.ascontiguousarray(decode(stored[start : start + CHUNK])))
            for name, file in files.items():
                file.write(getattr(part, name).data)
        for file in files.values():
            file.flush()
        sha256 = {name: sha256_file(staging / f"{name}.npy") for name in ARRAYS}
        facts = {"format": FORMAT, "rows": n, "dim": dim, "metric": METRIC, "made_from": made_from, "sha256": sha256}
        write_json(staging / HEADER, facts)


def open_codes(directory: Path, *, made_from: str, metric: str, verify: bool = False) -> QuantisedRows:
    """The codes in ``directory``, memory-mapped; what a process changes of them stays its own.

    Args:
        verify: compare the SHA-256 of all files, which reads them whole; without it shapes, types and sizes are checked.

    Raises:
        DamagedSnapshot: a file is missing, cut short or changed.
        SnapshotError: made from other vectors, for another metric, or by another version.
    """
    facts = _header(directory / HEADER)
    if facts["format"] != FORMAT:
        raise SnapshotError(f"codes of format {facts.get('format')}, this version reads {FORMAT}", path=directory, cure=REMAKE)
    if (facts["made_from"], facts["metric"]) != (made_from, metric):
        raise SnapshotError("these codes were made from other vectors or for another metric", path=directory, cure=REMAKE)
    shapes = array_shapes(facts["rows"], facts["dim"])
    arrays = {}
    for name in ARRAYS:
        (shape, dtype), sha256 = shapes[name], facts["sha256"][name] if verify else None
        arrays[name] = read_array(directory / f"{name}.npy", shape, np.dtype(dtype), ERRORS, sha256=sha256, mapped=True)
    return QuantisedRows(facts["rows"], facts["dim"], **arrays)


def _header(path: Path) -> dict[str, Any]:
    facts = read_object(path, ERRORS)
    wanted = {"format": int, "rows": int, "dim": int, "metric": str, "made_from": str, "sha256": dict}
    if any(not isinstance(facts.get(name), kind) for name, kind in wanted.items()):
        raise DamagedSnapshot("lacks entries of the header of codes", path=path)
    if set(facts["sha256"]) != set(ARRAYS):
        raise DamagedSnapshot("does not name the files of codes", path=path)
    return facts
