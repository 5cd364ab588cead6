"""The codes of compressed search as a directory of ``.npy`` files and a JSON header: published whole, opened by memory map, so that
processes share one copy. The header says what the codes were made from; codes of other vectors are never used."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from realm.errors import SnapshotError
from realm.index.manifest import ERRORS, DamagedSnapshot
from realm.index.native.kernel import Kernel
from realm.index.quantised import ARRAYS, QuantisedRows, array_shapes, quantise
from realm.index.shards import decode
from realm.storage.arrays import array_header, read_array
from realm.storage.files import publish_directory, sha256_file, write_json
from realm.storage.manifests import read_object

FORMAT = 1
METRIC = "ip"  # what codes are saved for: those for distances hold other offsets
CHUNK = 1 << 18  # rows coded at a time, a multiple of GROUP
HEADER = "codes.json"
REMAKE = "Delete it; it is made again from the vectors"


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
        made_from: what ``save_codes`` was given.
        metric: what they are for.
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
