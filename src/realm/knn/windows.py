"""What a model reads and what it has to say there: windows of tokens with the places that count and the token wanted at each.

One layout for all uses: a language model's sliding context, a translation under teacher forcing, a sentence with masks. A set of windows
is a directory of ``.npy`` files, written in a stream and published whole; the wanted tokens are the values of a datastore, in its order.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from realm.decoding import json_value
from realm.errors import DataError, SnapshotError
from realm.index.embed import length_batches
from realm.storage.arrays import load_array
from realm.storage.files import publish_directory, sha256_file
from realm.storage.manifests import Errors, unsealed, write_sealed

HEADER = "windows.json"
FORMAT = 1
ARRAYS = {"ids": np.int32, "id_ends": np.int64, "sources": np.int32, "source_ends": np.int64}
ARRAYS |= {"places": np.int32, "targets": np.int32, "target_ends": np.int64}
PART_ROWS = 8192
"""Keys that are computed and made durable together, at least; a window is never split."""
TOKENS_PER_BATCH = 4096
REMAKE = "Build the datastore again: realm knn build"


def _damage(problem: object, path: Path) -> SnapshotError:
    return SnapshotError(str(problem), path=path, cure=REMAKE)


ERRORS = Errors(damaged=_damage, refused=_damage)
"""For the files of a datastore."""


@dataclass(frozen=True)
class Window:
    """One input of a model: int32 arrays.

    Attributes:
        ids: [t], what the (de)coder reads.
        places: [r], ascending positions in ``ids`` whose states are keys.
        targets: [r], the token wanted at each: the next one, or the hidden one.
        source: [s], what the encoder of an encoder-decoder model reads; empty for others.
    """

    ids: np.ndarray
    places: np.ndarray
    targets: np.ndarray
    source: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def length(self) -> int:
        """Tokens to compute, padding apart."""
        return max(len(self.ids), len(self.source))


def sliding_windows(ids: np.ndarray, context: int, stride: int) -> Iterator[Window]:
    """Windows over one document of L tokens that want every token but the first exactly once.

    Args:
        ids: integer [L].
        stride: tokens that each window but the first wants; those before them are context alone. A token is predicted from at least
            context - stride tokens, or from all before it.

    Raises:
        ValueError: not 1 <= stride <= context.
    """
    if not 1 <= stride <= context:
        raise ValueError(f"stride {stride} must be from 1 to the context {context}")
    ids = np.asarray(ids, np.int32)
    done = 1  # tokens that are context or were wanted
    while done < len(ids):
        end = min(len(ids), done + (context if done == 1 else stride))
        start = max(0, end - 1 - context)
        yield Window(ids[start : end - 1], np.arange(done - 1 - start, end - 1 - start, dtype=np.int32), ids[done:end])
        done = end


class WindowSet:
    """Windows on disk, memory-mapped.

    Args:
        verify: compare the SHA-256 of all files.

    Attributes:
        targets: int32 [n], wanted tokens of all windows in order.
        sha256: of all that the windows say: files that were made alike have it alike.

    Raises:
        SnapshotError: missing, damaged, or of another version.
    """

    def __init__(self, path: Path, *, verify: bool = False):
        self.path = path
        header = _read_header(path / HEADER)
        self.facts: dict[str, Any] = header["facts"]
        arrays = {name: mapped_array(path / f"{name}.npy", header["files"][name], verify) for name in ARRAYS}
        self._ids, self._sources, self._places = arrays["ids"], arrays["sources"], arrays["places"]
        self.targets = arrays["targets"]
        self._ends = np.stack([arrays["id_ends"], arrays["source_ends"], arrays["target_ends"]])
        self._starts = np.concatenate([np.zeros((3, 1), np.int64), self._ends[:, :-1]], axis=1)
        files = {name: header["files"][name]["sha256"] for name in ARRAYS}
        self.sha256 = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()

    def __len__(self) -> int:
        return self._ends.shape[1]

    @property
    def count(self) -> int:
        """n, wanted tokens in all."""
        return len(self.targets)

    def window(self, number: int) -> Window:
        (i, s, r), (j, t, u) = self._starts[:, number].tolist(), self._ends[:, number].tolist()
        return Window(self._ids[i:j], self._places[r:u], self.targets[r:u], self._sources[s:t])

    def parts(self, first_row: int = 0) -> Iterator[tuple[int, int]]:
        """Runs of windows (first, stop) of PART_ROWS wanted tokens or a little more, those from row ``first_row`` on.

        Raises:
            ValueError: no part begins there.
        """
        ends, first = self._ends[2], 0
        while first < len(self):
            begin = int(self._starts[2, first])
            stop = min(len(self), int(np.searchsorted(ends, begin + PART_ROWS)) + 1)
            if begin >= first_row:
                if begin > first_row:
                    raise ValueError(f"no part begins at row {first_row}")
                first_row = int(ends[stop - 1])
                yield first, stop
            first = stop

    def batches(self, first: int, stop: int) -> Iterator[tuple[np.ndarray, list[Window]]]:
        """The windows of a part in batches of similar length: the rows of their wanted tokens, counted from the part's first, and they.

        The batches depend on the part alone, so a continued build computes the same bits.
        """
        windows = [self.window(number) for number in range(first, stop)]
        base = int(self._starts[2, first])
        for chosen in length_batches(np.array([window.length for window in windows]), TOKENS_PER_BATCH):
            spans = [np.arange(self._starts[2, first + i], self._ends[2, first + i]) - base for i in chosen.tolist()]
            yield np.concatenate(spans), [windows[i] for i in chosen.tolist()]

    def rows(self, first: int, stop: int) -> slice:
        """The rows of the wanted tokens of a run of windows."""
        return slice(int(self._starts[2, first]), int(self._ends[2, stop - 1]))


def write_windows(path: Path, windows: Iterable[Window], facts: Callable[[], dict[str, Any]]) -> WindowSet:
    """Publish windows as the directory ``path``, which must not exist; one window is in memory at a time.

    Args:
        facts: asked when the last window is written; JSON, kept beside them.

    Raises:
        DataError: not one wanted token.
        FileExistsError: ``path`` exists.
    """
    with publish_directory(path) as staging, ExitStack() as open_files:
        files = {name: open_files.enter_context(closing(_GrowingArray(staging / f"{name}.npy", dtype))) for name, dtype in ARRAYS.items()}
        for window in windows:
            for name, values in (("ids", window.ids), ("sources", window.source), ("places", window.places), ("targets", window.targets)):
                files[name].extend(values)
            for ends, of in (("id_ends", "ids"), ("source_ends", "sources"), ("target_ends", "targets")):
                files[ends].extend(np.array([files[of].count]))
        open_files.close()
        if not files["targets"].count:
            raise DataError("the sources hold no text to predict", cure="Give documents of at least two tokens.")
        described = {name: {"count": files[name].count, "sha256": sha256_file(staging / f"{name}.npy")} for name in ARRAYS}
        write_sealed(staging / HEADER, json.loads(json.dumps({"format": FORMAT, "facts": facts(), "files": described})))
    return WindowSet(path)


class _GrowingArray:
    """A one-dimensional ``.npy`` file that grows; numpy leaves room in its header for the length."""

    def __init__(self, path: Path, dtype: type):
        self.count = 0
        self._dtype = np.dtype(dtype)
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115 - closed by close
        self._write_header()

    def close(self) -> None:
        self._file.seek(0, os.SEEK_SET)
        self._write_header()
        self._file.close()

    def extend(self, values: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(values, self._dtype).tobytes())
        self.count += len(values)

    def _write_header(self) -> None:
        described = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self.count,)}
        np.lib.format.write_array_header_1_0(self._file, described)


def _read_header(path: Path) -> dict[str, Any]:
    try:
        header = unsealed(json_value(path.read_text("utf-8")), ERRORS, path)
        if header["format"] != FORMAT:
            raise SnapshotError(f"windows of format {header['format']}, this version reads {FORMAT}", path=path, cure=REMAKE)
        if all({"count", "sha256"} <= set(header["files"][name]) for name in ARRAYS) and isinstance(header["facts"], dict):
            return dict(header)
    except OSError as error:
        raise SnapshotError(error.strerror or "cannot be read", path=path, cure=REMAKE) from None
    except (ValueError, KeyError, TypeError):
        pass
    raise SnapshotError("damaged", path=path, cure=REMAKE)


def mapped_array(path: Path, described: dict[str, Any], verify: bool) -> np.ndarray:
    """A one-dimensional ``.npy`` file, mapped, if it is as {"count", "sha256"} describe it. Raises SnapshotError: it is not."""
    try:
        array = load_array(path, "r" if described["count"] else None)
        damaged = array.shape != (described["count"],) or (verify and sha256_file(path) != described["sha256"])
    except (OSError, ValueError, EOFError) as error:
        raise SnapshotError(f"missing or cut short ({error})", path=path, cure=REMAKE) from None
    if damaged:
        raise SnapshotError("changed since it was written", path=path, cure=REMAKE)
    return array
