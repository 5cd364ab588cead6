"""``block_records.npy`` of the published models: a pickled array of bytes, read without unpickling.

The file is an ``.npy`` header and a pickle stream. Its opcodes are only looked at (``pickletools.genops``), never run: numpy's fixed
opening for an object array, then byte strings, then its fixed end. Anything else is refused by name. One record is in memory at a time."""

import pickletools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import numpy as np

from realm.errors import DataError

LARGEST_RECORD = 1 << 24
"""Bytes. The published blocks have about 1,500; a length above this is damage or an attack."""
MOST_SHARED = 1024
"""Values that may be referred to again; numpy's own files have fewer than 300."""
_CURE = "Use the block_records.npy of a published REALM model; it is read without unpickling."
_SILENT = {"PROTO", "FRAME"}
_MEMO = {"BINPUT", "LONG_BINPUT", "MEMOIZE", "PUT"}
_RECALL = {"BINGET", "LONG_BINGET", "GET"}
_BYTES = {"SHORT_BINBYTES", "BINBYTES", "BINBYTES8"}
_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE"}
_NUMBERS = {"BININT", "BININT1", "BININT2", "LONG1"}
_TUPLES = {"TUPLE", "TUPLE1", "TUPLE3"}
_PLAIN = {"REDUCE", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BUILD", "EMPTY_LIST", "APPEND", "APPENDS", "STOP", *_TUPLES}
_RECONSTRUCT = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_GLOBALS = {*_RECONSTRUCT, "numpy ndarray", "numpy dtype"}
_COUNT = object()
_OPENING: tuple[Any, ...] = (
    *("_reconstruct", "numpy ndarray", 0, "TUPLE1", b"b", "TUPLE3", "REDUCE", "MARK", 1, _COUNT, "TUPLE1"),
    *("numpy dtype", "'O8'", "NEWFALSE", "NEWTRUE", "TUPLE3", "REDUCE", "MARK", 3, "'|'", "NONE", "NONE", "NONE", -1, -1, 63),
    *("TUPLE", "BUILD", "NEWFALSE", "EMPTY_LIST"),
)
"""Values that numpy writes before the first record, memo and framing left out."""


class _Bounded:
    """A file for ``genops`` that refuses to hand out more than a record's bytes at once, and lines without end."""

    def __init__(self, file: IO[bytes], path: Path):
        self._file, self._path = file, path

    def read(self, count: int = -1) -> bytes:
        if not 0 <= count <= LARGEST_RECORD:
            raise DataError(f"a record of {count} bytes", path=self._path, cure=_CURE)
        return self._file.read(count)

    def readline(self) -> bytes:
        return self._file.readline(256)

    def tell(self) -> int:
        return self._file.tell()


class RecordFile:
    """The records of one file, in order, as often as they are asked for; ``count`` as the header promises it, checked by reading them all.
    Raises DataError: no ``.npy`` file, or one of another type than a one-dimensional array of objects."""

    def __init__(self, path: Path):
        self.path = Path(path)
        try:
            with open(self.path, "rb") as file:
                self.count = self._header(file)
                self._start = file.tell()
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", path=self.path, cure=_CURE) from error

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        """The records. Raises DataError: an opcode or a global that such a file does not have, a cut or a wrong number of records."""
        with open(self.path, "rb") as file:
            file.seek(self._start)
            yield from self._records(self._tokens(file))

    def _header(self, file: IO[bytes]) -> int:
        """Number of records by the ``.npy`` header. A pickle without that header is refused as well."""
        try:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, _, dtype = read(file)
        except (ValueError, KeyError) as error:
            raise DataError(f"not an .npy file ({' '.join(str(error).split())[:80]})", path=self.path, cure=_CURE) from error
        if dtype != np.dtype(object) or len(shape) != 1:
            problem = f"an array of {dtype} with the shape {list(shape)}, not one row of byte strings"
            raise DataError(problem, path=self.path, cure=_CURE)
        return int(shape[0])

    def _refuse(self, problem: str) -> NoReturn:
        raise DataError(f"{problem}; nothing was unpickled", path=self.path, cure=_CURE)

    def _tokens(self, file: IO[bytes]) -> Iterator[Any]:
        """The stream as values: int, bytes, "'text'", "module name" of a global, or an opcode's name. The memo is resolved."""
        memo: dict[int, Any] = {}
        memoised = 0
        value: Any = None
        waiting: list[str] = []  # texts that a STACK_GLOBAL may take
        operations = pickletools.genops(cast(IO[bytes], _Bounded(file, self.path)))
        while True:
            try:
                opcode, argument, _ = next(operations)
            except StopIteration:
                return
            except (ValueError, struct.error, UnicodeError) as error:
                self._refuse(f"the stream of opcodes is damaged or cut short ({error})")
            name = opcode.name
            if name in _SILENT:
                continue
            if name in _MEMO:
                # Only what numpy itself refers to again: texts, and the byte strings that Python keeps once (of one byte or none).
                short = isinstance(value, str) or (isinstance(value, bytes) and len(value) < 2)
                if short and len(memo) < MOST_SHARED:
                    memo[memoised if argument is None else argument] = value
                memoised += 1
                continue
            if name in _RECALL:
                if argument not in memo:
                    self._refuse(f"the opcode {name} refers to something else than a short byte string")
                value = memo[argument]
            elif name in _BYTES or name in _NUMBERS:
                value = argument
            elif name in _TEXTS:
                value = f"'{argument}'"
            elif name in ("GLOBAL", "STACK_GLOBAL"):
                value = argument
                if name == "STACK_GLOBAL":
                    value, waiting = " ".join(text.strip("'") for text in waiting[-2:]), waiting[:-2]
                if value not in _GLOBALS:
                    self._refuse(f"the global '{value}' is not one of a record file")
            elif name in _PLAIN:
                value = name
            else:
                self._refuse(f"the opcode {name} is not one of a record file")
            if isinstance(value, str) and value.startswith("'") and len(waiting) < 3:
                waiting.append(value)
                continue
            yield from waiting
            waiting = []
            yield value

    def _records(self, tokens: Iterator[Any]) -> Iterator[bytes]:
        self._opening(tokens)
        found, batch = 0, False
        for value in tokens:
            if isinstance(value, bytes):
                found += 1
                if found > self.count:
                    self._refuse(f"more records than the {self.count} of the header")
                yield value
            elif value == "MARK" and not batch:
                batch = True
            elif value == "APPENDS" and batch:
                batch = False
            elif value == "APPEND" and not batch:
                continue
            else:
                break
        else:
            self._refuse("the stream of opcodes is cut short")
        if [value, *tokens] != ["TUPLE", "BUILD", "STOP"] or batch:
            self._refuse(f"'{value}' where a byte string was expected")
        if found != self.count:
            self._refuse(f"{found} records where the header promises {self.count}")

    def _opening(self, tokens: Iterator[Any]) -> None:
        for wanted in _OPENING:
            value = next(tokens, None)
            if wanted is _COUNT:
                matches = value == self.count and not isinstance(value, str | bytes)
            elif wanted == "_reconstruct":
                matches = value in _RECONSTRUCT
            else:
                matches = type(value) is type(wanted) and value == wanted
            if not matches:
                self._refuse(f"{value!r} where numpy's opening of an object array was expected")
