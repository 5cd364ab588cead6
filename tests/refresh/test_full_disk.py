"""A file system that is really full: a small tmpfs in a mount namespace that ends with its process. Skipped where that is refused."""

import contextlib
import ctypes
import errno
import io
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from realm.cli import main
from realm.corpus.change.updates import add_documents
from realm.errors import RealmError

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
REFUSED = 77
PAGE = os.sysconf("SC_PAGE_SIZE")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="tmpfs is Linux's")


def on_a_small_disk(place: Path, pages: int, work: Callable[[], None]) -> None:
    """Run ``work`` in a process that sees a tmpfs of so many pages at ``place``."""
    place.mkdir()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            private = libc.unshare(CLONE_NEWNS) == 0 and libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) == 0
            if not private or libc.mount(b"tmpfs", bytes(place), b"tmpfs", 0, f"size={pages * PAGE}".encode()) != 0:
                code = REFUSED
            else:
                work()
                code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == REFUSED:
        pytest.skip("mounting a tmpfs is not allowed here")
    assert code == 0, "see the traceback above"


@contextlib.contextmanager
def left_free(disk: Path, pages: int) -> Iterator[None]:
    """The disk filled up to so many free pages."""
    filler = disk / "filler"
    filler.write_bytes(bytes(max(0, os.statvfs(disk).f_bavail - pages) * PAGE))
    try:
        yield
    finally:
        filler.unlink()


def test_whatever_does_not_fit_leaves_what_was_published(make_work: Callable[[Path], Any], tmp_path: Path) -> None:
    disk = tmp_path / "disk"

    def fill_up() -> None:
        work = make_work(disk / "run")
        work.told = tmp_path / "told"
        work.told.write_text("0")
        work.round()
        failures = pages = 0
        while True:
            try:
                with left_free(disk, pages):
                    work.round()
                break
            except RealmError as error:
                assert "No space left on device" in str(error) and "published before is intact" in str(error)
            except OSError as error:
                assert error.errno == errno.ENOSPC
            work.check()
            failures, pages = failures + 1, pages + 1 + pages // 4
        work.check()
        assert failures > 5 and not work.left_over()

    on_a_small_disk(disk, 1024, fill_up)


def test_a_command_on_a_full_disk(tiny_run: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"

    def fill_up() -> None:
        run, said = Path(shutil.copytree(tiny_run, disk / "run")), io.StringIO()
        add_documents(run / "corpus", [tiny_run.parent / "more.jsonl"])
        with left_free(disk, 0), contextlib.redirect_stderr(said):
            assert main(["index", "build", str(run)]) == 2
        assert "No space left on device" in said.getvalue().splitlines()[-1] and "intact" in said.getvalue()
        assert main(["index", "verify", str(run)]) == 0
        assert main(["index", "build", str(run)]) == 0 and main(["index", "verify", str(run)]) == 0

    on_a_small_disk(disk, 4096, fill_up)
