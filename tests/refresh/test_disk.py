"""A disk that refuses, and swaps under load: published state stays intact, messages are clear, results are never mixed."""

import errno
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from realm.cli import main
from realm.errors import RealmError, SnapshotError
from realm.storage import files
from realm.storage.files import POINTS
from realm.storage.generations import prune, read_current

DISK = sorted(p for p in POINTS if p.split(":")[0] in ("build", "array", "file", "directory", "parameters"))
REFUSALS = [(point, errno.ENOSPC) for point in DISK] + [("build: written", errno.EIO), ("file: staged", errno.EROFS)]


@pytest.mark.parametrize(("point", "code"), REFUSALS)
def test_what_the_disk_refuses(point: str, code: int, copied: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    work = copied()

    def refuse(name: str, path: Path) -> None:
        if name == point:
            raise OSError(code, os.strerror(code), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(files, "listener", refuse)
        with pytest.raises(RealmError, match=f"{os.strerror(code)}.*published before is intact"):
            work.round()
    work.check()
    work.round()
    work.check()
    assert not work.left_over()


def test_a_file_size_limit(work: Any) -> None:
    work.round()

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        with pytest.raises(SnapshotError, match="too large"):
            work.publish()

    assert not work.dies(limited)
    work.check()
    assert work.round() == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory(work: Any) -> None:
    work.round()
    work.paths.index.chmod(0o500)
    with pytest.raises(SnapshotError, match="could not be written"):
        work.publish()
    work.check()
    work.paths.index.chmod(0o700)
    assert work.round() == 2


def test_a_full_disk_ends_the_command(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from realm.corpus.change.updates import add_documents

    run = shutil.copytree(tiny_run, tmp_path / "run")
    add_documents(run / "corpus", [tiny_run.parent / "more.jsonl"])

    def full(point: str, path: Path) -> None:
        if point == "array: staged":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "listener", full)
    assert main(["index", "build", str(run)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "No space left on device" in error and "intact" in error
    monkeypatch.setattr(files, "listener", None)
    assert main(["index", "build", str(run)]) == 0 and main(["index", "verify", str(run)]) == 0


@pytest.mark.parametrize("swaps", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_swaps_under_concurrent_searches(work: Any, swaps: int) -> None:
    """Zero errors, zero mixed results: readers open the newest and search while a process publishes and deletes."""
    index, problems, seen = work.paths.index, [], set()
    work.publish()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                seen.add(work.open_unmixed().manifest.generation)
            except BaseException as error:
                problems.append(error)
                return

    def swap() -> None:
        for _ in range(swaps):
            work.publish()
            prune(index, 3, set())

    pid = os.fork()
    if pid == 0:
        try:
            swap()
            os._exit(0)
        finally:
            os._exit(9)
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    status = os.waitpid(pid, 0)[1]
    stop.set()
    for reader in readers:
        reader.join()
    assert status == 0 and not problems, problems
    assert read_current(index) == swaps + 1 and len(seen) > 5
