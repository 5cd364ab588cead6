"""The codes of compressed search as a directory of ``.npy`` files and a JSON header: published whole, opened by memory map, so that
processes share one copy. The header says what the codes were made from; codes of other vectors are never used."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from realm.errors import SnapshotError
from realm.index.manifest import DamagedSnapshot
from realm.index.quantised import ARRAYS, QuantisedRows, array_shapes
from realm.paths import publish_directory, sha256_file, write_json

FORMAT = 1
HEADER = "codes.json"
REMAKE = "Delete it; it is made again from the vectors"


def save_codes(directory: Path, rows: QuantisedRows, *, made_from: str, metric: str) -> None:
    """Publish codes as ``directory``, which must not exist.

    Args:
        made_from: names the vectors, e.g. the SHA-256 of their manifest; ``open_codes`` asks for it.
        metric: "ip" or "l2": the biases among the codes are those of one metric.

    Raises:
        FileExistsError: ``directory`` exists.
    """
    with publish_directory(directory) as staging:
        sha256 = {}
        for name in ARRAYS:
            path = staging / f"{name}.npy"
            np.save(path, getattr(rows, name), allow_pickle=False)
            sha256[name] = sha256_file(path)
        facts = {"format": FORMAT, "rows": rows.rows, "dim": rows.dim, "metric": metric, "made_from": made_from, "sha256": sha256}
        write_json(staging / HEADER, facts)


def open_codes(directory: Path, *, made_from: str, metric: str, verify: bool = False) -> QuantisedRows:
    """The codes in ``directory``, memory-mapped; what a process changes of them stays its own.

    Args:
        made_from, metric: what ``save_codes`` was given.
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
    arrays = {name: _array(directory / f"{name}.npy", *shapes[name], facts["sha256"][name] if verify else None) for name in ARRAYS}
    return QuantisedRows(facts["rows"], facts["dim"], **arrays)


def _header(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DamagedSnapshot("missing", path=path) from None
    except ValueError as error:
        raise DamagedSnapshot(f"not JSON ({error})", path=path) from None
    wanted = {"format": int, "rows": int, "dim": int, "metric": str, "made_from": str, "sha256": dict}
    if not isinstance(facts, dict) or any(not isinstance(facts.get(name), kind) for name, kind in wanted.items()):
        raise DamagedSnapshot("lacks entries of the header of codes", path=path)
    if set(facts["sha256"]) != set(ARRAYS):
        raise DamagedSnapshot("does not name the files of codes", path=path)
    return facts


def _array(path: Path, shape: tuple[int, ...], dtype: type, sha256: str | None) -> np.ndarray:
    try:
        if sha256 is not None and sha256_file(path) != sha256:
            raise DamagedSnapshot("changed since it was published (SHA-256 differs)", path=path)
        array = np.load(path, mmap_mode="c" if shape[0] else None, allow_pickle=False)
    except FileNotFoundError:
        raise DamagedSnapshot("missing", path=path) from None
    except (ValueError, EOFError) as error:
        raise DamagedSnapshot(f"not a whole .npy file ({error})", path=path) from None
    if array.shape != shape or array.dtype != dtype:
        raise DamagedSnapshot(f"holds {array.dtype} {list(array.shape)}, not {np.dtype(dtype)} {list(shape)}", path=path)
    return array
