"""Real processes that are killed at random moments beside those that read, and a disk that is really full."""

import contextlib
import ctypes
import errno
import os
import random
import signal
import sys
import time

import pytest
from processes import ended, forked

from realm.errors import RealmError
from realm.storage import files
from realm.storage.generations import read_current

from .examples import left_over, read_round, round_of

pytestmark = pytest.mark.own_process
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
REFUSED = 77
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("kills", [10, pytest.param(300, marks=pytest.mark.slow)])
def test_killed_at_random_moments(tmp_path, kills):
    """A writer and a reader are killed; then the writer comes through, beside a reader whose results are never mixed."""
    root, told, stop, rng = tmp_path / "run", tmp_path / "told", tmp_path / "stop", random.Random(7)
    round_of(root)

    def write(rounds=1 << 30):
        for _ in range(rounds):
            round_of(root)
            files.write_atomic(told, str(read_current(root / "index")))

    def read():
        while not stop.exists():
            read_round(root)

    before = 1
    for _ in range(kills):
        pids = forked(read), forked(write)
        time.sleep(rng.uniform(0.0, 0.15))
        for pid in pids:
            assert os.waitpid(pid, os.WNOHANG) == (0, 0), "a reader or the writer failed"
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        read_round(root)
        newest = read_current(root / "index") or 0
        assert newest >= max(before, int(told.read_text()) if told.exists() else 1), "what was published is gone"
        before = newest
    reader = forked(read)
    assert ended(forked(lambda: write(20))) == 0
    stop.touch()
    assert ended(reader) == 0 and not left_over(root) and read_current(root / "index") == before + 20


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_whole_run_goes_on_from_each_of_its_write_points(tmp_path):
    """From its documents to its questions, with the processes it starts: weights, vectors, log, blocks and answers bit for bit the same."""
    from benchmarks.reliability.kill_run import WholeRuns

    found = WholeRuns(tmp_path, kills=10, seed=0).run()
    assert found["lost"] == [] and found["at_points"] > 300


def on_a_small_disk(place, pages, work):
    """Run ``work`` in a process that sees a tmpfs of so many pages at ``place``, in a mount namespace that ends with it."""
    place.mkdir()

    def mounted():
        libc = ctypes.CDLL(None, use_errno=True)
        private = libc.unshare(CLONE_NEWNS) == 0 and libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) == 0
        if not private or libc.mount(b"tmpfs", bytes(place), b"tmpfs", 0, f"size={pages * PAGE}".encode()) != 0:
            return REFUSED
        work()
        return 0

    code = ended(forked(mounted)) if sys.platform.startswith("linux") else REFUSED
    if code == REFUSED:
        pytest.skip("mounting a tmpfs is not allowed here")
    assert code == 0, "see the traceback above"


@contextlib.contextmanager
def left_free(disk, pages):
    filler = disk / "filler"
    filler.write_bytes(bytes(max(0, os.statvfs(disk).f_bavail - pages) * PAGE))
    try:
        yield
    finally:
        filler.unlink()


def test_whatever_does_not_fit_leaves_what_was_published(tmp_path):
    disk = tmp_path / "disk"

    def fill_up():
        root = disk / "run"
        round_of(root)
        failures = pages = 0
        while True:
            try:
                with left_free(disk, pages):
                    round_of(root)
                break
            except RealmError as error:
                assert "No space left on device" in str(error) and "published before is intact" in str(error)
            except OSError as error:
                assert error.errno == errno.ENOSPC
            read_round(root)
            failures, pages = failures + 1, pages + 1 + pages // 4
        read_round(root)
        assert failures > 5 and not left_over(root)

    on_a_small_disk(disk, 1024, fill_up)
