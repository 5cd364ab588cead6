"""The n-th call of the operating system fails: every call that opens, writes, syncs, renames, links, makes or deletes is one."""

import builtins
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import realm
from realm.nn import saving

SOURCE = str(Path(realm.__file__).parent)
OPENING, WRITING = ("open", "create"), ("create", "write", "fsync")
NAMING, DELETING = ("replace", "rename", "link", "mkdir"), ("unlink", "rmdir")
KINDS = {
    "EIO": (errno.EIO, ("open", *WRITING, *NAMING, *DELETING)),
    "ENOSPC": (errno.ENOSPC, (*WRITING, *NAMING)),
    "EMFILE": (errno.EMFILE, OPENING),
    "EXDEV": (errno.EXDEV, ("replace", "rename", "link")),
    "MemoryError": (0, ("open", *WRITING, *NAMING, *DELETING)),
}
"""What fails in which way."""


class Failing:
    """Lets the n-th call of a kind fail, from 0.

    Args:
        kind: of ``KINDS``.

    Attributes:
        calls: so many there were.
        failed: name and path of the one that did.
    """

    def __init__(self, kind: str, nth: int):
        self.code, self.names = KINDS[kind]
        self.nth, self.calls = nth, 0
        self.failed: str | None = None

    def call(self, name: str, path: Any) -> None:
        """A call comes by. Raises OSError, MemoryError: it is the one."""
        if name not in self.names or self.failed is not None:
            return
        self.calls += 1
        if self.calls - 1 != self.nth:
            return
        self.failed = f"{name} {path}"
        if self.code == 0:
            raise MemoryError
        raise OSError(self.code, os.strerror(self.code), str(path))


class _File(io.FileIO):
    """A file of which each write is a call."""

    def __init__(self, failing: Failing, path: Any, mode: str):
        self._failing = failing
        super().__init__(path, mode)

    def write(self, data: Any) -> int:
        self._failing.call("write", self.name)
        return super().write(data)


def _opened(failing: Failing, plain: Callable[..., Any]) -> Callable[..., Any]:
    def opened(file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, *rest: Any, **named: Any) -> Any:
        if isinstance(file, int):
            return plain(file, mode, buffering, encoding, *rest, **named)
        failing.call("create" if set(mode) & set("wax") else "open", file)
        if "b" not in mode or not set(mode) & set("wax+"):
            return plain(file, mode, buffering, encoding, *rest, **named)
        raw = _File(failing, file, mode.replace("b", ""))
        return raw if buffering == 0 else io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)

    return opened


@contextmanager
def failing_at(kind: str, nth: int) -> Iterator[Failing]:
    """The n-th call of a kind fails."""
    failing = Failing(kind, nth)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "replace", "rename", "link", "unlink", "mkdir", "rmdir", "open"):
            patch.setattr(os, name, _counted(failing, name, getattr(os, name)))
        opened = _opened(failing, builtins.open)
        patch.setattr(builtins, "open", opened)
        patch.setattr(io, "open", opened)
        arrow, save = pa.OSFile, saving.save_file

        def arrow_file(path: str, mode: str = "r") -> Any:
            return arrow(path, mode) if mode == "r" else pa.PythonFile(opened(path, "wb"), "w")

        def save_tensors(tensors: Any, path: Any, **named: Any) -> None:
            failing.call("create", path)
            failing.call("write", path)
            save(tensors, path, **named)

        patch.setattr(pa, "OSFile", arrow_file)
        patch.setattr(saving, "save_file", save_tensors)
        yield failing


def _counted(failing: Failing, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*arguments: Any, **options: Any) -> Any:
        failing.call(name, arguments[0])
        return plain(*arguments, **options)

    return counted


@contextmanager
def out_of_memory_at(nth: int) -> Iterator[Failing]:
    """The n-th call of a function of this package ends in MemoryError, from 0."""
    failing = Failing("MemoryError", nth)
    failing.names = ("function",)

    def trace(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE) and frame.f_code.co_name[0] != "<":
            failing.call("function", f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield failing
    finally:
        sys.settrace(before)
