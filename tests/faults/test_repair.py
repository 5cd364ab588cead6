"""``realm repair --yes`` is killed before each call that changes the disk: repaired again it ends whole, and what was intact still is."""

import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from realm.cli import main
from realm.corpus.change.updates import add_documents, remove_documents
from realm.opening import open_run
from realm.paths import RunPaths
from realm.storage.generations import read_current

pytestmark = pytest.mark.own_process
QUESTION = "What is the currency of Arvad?"
CALLS = ("replace", "rename", "fsync", "unlink", "mkdir", "rmdir", "link")
MOST = 8
"""Calls before which a repair is killed in one test; the slow one has them all."""


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 32
    path.write_bytes(data)


def generation(run: Path) -> str:
    return f"{read_current(run / 'index'):06d}"


DAMAGES: dict[str, Callable[[Path], object]] = {
    "vectors": lambda run: flipped(run / "index" / generation(run) / "vectors-00000.npy"),
    "parameters": lambda run: flipped(run / "params" / generation(run) / "model.safetensors"),
    "both are gone": lambda run: [shutil.rmtree(run / part / generation(run)) for part in ("params", "index")],
    "look-up files": lambda run: [flipped(path) for path in (run / "corpus" / "segments").glob("000001.*.npy")],
    "CURRENT of the corpus": lambda run: (run / "corpus" / "CURRENT").unlink(),
    "CURRENT of the index": lambda run: (run / "index" / "CURRENT").write_bytes(b"?"),
}
DAMAGES["many things"] = lambda run: [DAMAGES[name](run) for name in ("vectors", "parameters", "look-up files", "CURRENT of the corpus")]


@pytest.fixture(scope="session")
def repairable(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose corpus has changed and whose index has followed: two versions, a tombstone, a delta."""
    run = Path(shutil.copytree(tiny_run, tmp_path_factory.mktemp("repairable") / "run"))
    add_documents(run / "corpus", [tiny_run.parent / "more.jsonl"])
    assert main(["index", "build", str(run)]) == 0
    remove_documents(run / "corpus", ["Belmor/0"])
    return run


def answers(run: Path) -> Any:
    """What the whole run is for; probabilities to five digits, since vectors that are made again are computed in other batches."""
    found = open_run(run).answerer.answer([QUESTION], k=3)[0]
    return found.answer, [(one.doc_id, one.text, round(one.p_z, 5)) for one in found.evidence]


def intact(run: Path) -> dict[str, bytes]:
    """Weights, segments and tombstones: what nothing makes again. None of them is ever damaged here."""
    paths = (*run.glob("stages/*/model.safetensors"), *run.glob("corpus/segments/*.arrow"), *run.glob("corpus/tombstones-*.npy"))
    return {str(path.relative_to(run)): path.read_bytes() for path in paths}


def repaired(run: Path) -> int:
    return main(["repair", str(run), "--yes"])


def killed_at(run: Path, nth: int) -> bool:
    """Repair in a process that kills itself before its n-th call, from 0. Whether it came so far."""
    pid = os.fork()
    if pid == 0:
        left, code = nth, 99

        def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
            def at(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                return call(*arguments, **options)

            return at

        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            for name in CALLS:
                setattr(os, name, guarded(getattr(os, name)))
            code = repaired(run)
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the repair itself failed"
    return os.WIFSIGNALED(status)


def calls_of(run: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many calls a whole repair makes."""
    count = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def at(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            return call(*arguments, **options)

        return at

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, counted(getattr(os, name)))
        assert repaired(run) == 0
    return count


def check_kills(damage: str, repairable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    start = Path(shutil.copytree(repairable, tmp_path / "start"))
    DAMAGES[damage](start)
    kept = intact(start)
    whole = Path(shutil.copytree(start, tmp_path / "whole"))
    calls = calls_of(whole, monkeypatch)
    expected = answers(whole)
    assert calls > 0
    drawn = range(calls) if calls <= most else sorted(random.Random(damage).sample(range(calls), most))
    for nth in drawn:
        run = Path(shutil.copytree(start, tmp_path / "run"))
        assert killed_at(run, nth), f"call {nth} of {calls}"
        assert {name: data for name, data in intact(run).items() if name in kept} == kept, f"lost before call {nth}"
        assert repaired(run) == 0, f"killed before call {nth} of {calls}"
        assert {name: data for name, data in intact(run).items() if name in kept} == kept
        assert answers(run) == expected and main(["verify", str(run)]) == 0
        shutil.rmtree(run)


@pytest.mark.parametrize("damage", DAMAGES)
def test_killed_while_it_mends(damage: str, repairable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_kills(damage, repairable, tmp_path, monkeypatch, MOST)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("damage", DAMAGES)
def test_killed_before_every_call(damage: str, repairable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_kills(damage, repairable, tmp_path, monkeypatch, 10_000)


def test_what_a_repair_leaves_is_not_more_than_it_says(repairable: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(repairable, tmp_path / "run"))
    DAMAGES["many things"](run)
    assert repaired(run) == 0
    left = [path.name for path in RunPaths(run).root.rglob("*") if path.name.endswith((".staging", ".building", ".removed"))]
    assert left == []
