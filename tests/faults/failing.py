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
from realm.models import tensor_files

SOURCE = str(Path(realm.__file__).parent)
WRITING, NAMING, DELETING = ("create", "write", "fsync"), ("replace", "rename", "link", "mkdir"), ("unlink", "rmdir")
ANYWHERE = "memory runs out in any function"
KINDS = {
    "EIO": (errno.EIO, ("open", *WRITING, *NAMING, *DELETING)), "ENOSPC": (errno.ENOSPC, (*WRITING, *NAMING)),
    "EMFILE": (errno.EMFILE, ("open", "create")), "EXDEV": (errno.EXDEV, ("replace", "rename", "link")),
    "MemoryError": (0, ("open", *WRITING, *NAMING, *DELETING)), ANYWHERE: (0, ("function",)),
}  # fmt: skip
"""What fails in which way; 0: with MemoryError."""


class Failing:
    """Lets the n-th call of a kind fail, from 0. ``calls``: so many there were; ``failed``: name and path of the one that did."""

    def __init__(self, kind: str, nth: int):
        self.code, self.names = KINDS[kind]
        self.nth, self.calls = nth, 0
        self.failed: str | None = None

    def call(self, name: str, path: Any) -> None:
        if name not in self.names or self.failed is not None:
            return
        self.calls += 1
        if self.calls - 1 == self.nth:
            self.failed = f"{name} {path}"
            raise OSError(self.code, os.strerror(self.code), str(path)) if self.code else MemoryError

    def counted(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.call(name, arguments[0])
            return plain(*arguments, **options)

        return counted

    def opened(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        class File(io.FileIO):
            def write(file, data: Any) -> int:
                self.call("write", file.name)
                return super().write(data)

        def opened(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **named: Any) -> Any:
            if isinstance(file, int):
                return plain(file, mode, buffering, *rest, **named)
            self.call("create" if set(mode) & set("wax") else "open", file)
            if "b" not in mode or not set(mode) & set("wax+"):
                return plain(file, mode, buffering, *rest, **named)
            raw = File(file, mode.replace("b", ""))
            return raw if buffering == 0 else io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)

        return opened

    def trace(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE) and frame.f_code.co_name[0] != "<":
            self.call("function", f"{frame.f_code.co_filename}:{frame.f_code.co_name}")


@contextmanager
def failing_at(kind: str, nth: int) -> Iterator[Failing]:
    """The n-th call of a kind fails; of ``ANYWHERE`` that of a function of this package."""
    failing = Failing(kind, nth)
    if kind == ANYWHERE:
        before = sys.gettrace()
        sys.settrace(failing.trace)
        try:
            yield failing
        finally:
            sys.settrace(before)
        return
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "replace", "rename", "link", "unlink", "mkdir", "rmdir", "open"):
            patch.setattr(os, name, failing.counted(name, getattr(os, name)))
        opened, arrow, save = failing.opened(builtins.open), pa.OSFile, tensor_files.save_file

        def save_tensors(tensors: Any, path: Any, **named: Any) -> None:
            failing.call("create", path)
            failing.call("write", path)
            save(tensors, path, **named)

        patch.setattr(builtins, "open", opened)
        patch.setattr(io, "open", opened)
        patch.setattr(pa, "OSFile", lambda path, mode="r": arrow(path, mode) if mode == "r" else pa.PythonFile(opened(path, "wb"), "w"))
        patch.setattr(tensor_files, "save_file", save_tensors)
        yield failing
