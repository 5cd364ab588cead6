"""Real training runs of seconds, processes of their own, killed and ended by signals: the same result, nothing left behind, no orphans."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
from processes import alive, until
from toy_runs import rows_of, train

from realm.cli import main
from realm.recipe import load_recipe
from realm.search.publishing.parameters import KEEP_GENERATIONS, NEXT_NUMBER_FILE
from realm.search.publishing.refresher import read_status
from realm.storage.files import sha256_file
from realm.storage.generations import published_generations
from realm.storage.layout import RunPaths
from realm.storage.metrics import MetricsLog

SETTINGS: dict[str, dict[str, Any]] = {"run": {"checkpoint_every": 3}, "pretrain": {"steps": 40, "refresh_every": 5}}
SIDES = {"pretrain": ("run", "--stages", "pretrain"), "refresh": ("refresh",)}
HALF_WRITTEN = (".staging", ".building", ".removed", ".quarantined")


def ready_to_pretrain(recipe: Path, out: Path, **pretrain: Any) -> RunPaths:
    """A run whose next stage is pre-training, with ``SETTINGS`` and these."""
    settings = SETTINGS | {"pretrain": SETTINGS["pretrain"] | pretrain}
    train(load_recipe(recipe, settings), out, ("corpus", "warm", "ict"))
    return RunPaths(out)


def copy_of(run: RunPaths, to: Path, mode: str) -> RunPaths:
    copied = RunPaths(Path(shutil.copytree(run.root, to)))
    copied.config.write_text(copied.config.read_text().replace('refresh = "inline"', f'refresh = "{mode}"'))
    return copied


def started(*command: str, says: Path) -> int:
    """``realm`` with these arguments in a forked process: no imports to wait for. Its number; what it says goes to a file."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            with open(says, "ab", buffering=0) as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            with os.fdopen(1, "w", closefd=False) as sys.stdout, os.fdopen(2, "w", closefd=False) as sys.stderr:
                try:
                    code = main(list(command))
                except BaseException:
                    traceback.print_exc()  # nobody else says it: the process ends below
        finally:
            os._exit(code)
    return pid


def ended(pid: int) -> int | None:
    """The exit code of a child that has ended, the negative signal for one that was killed; None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return None if found == 0 else os.waitstatus_to_exitcode(status)


def end(pid: int, how: signal.Signals, seconds: float = 60.0) -> int:
    """Send a signal and wait. The exit code as :func:`ended` gives it."""
    os.kill(pid, how)
    deadline = time.monotonic() + seconds
    while (code := ended(pid)) is None:
        assert time.monotonic() < deadline, f"process {pid} does not end"
        time.sleep(0.01)
    return code


class Pair:
    """A trainer and, where the mode is "external", a refresher, which are killed and started again until pre-training has ended."""

    def __init__(self, run: RunPaths, *, refresher: bool):
        self.run = run
        self.says = run.root.with_name(run.root.name + ".says")
        self.commands = {side: (*SIDES[side], str(run.root)) for side in (("pretrain", "refresh") if refresher else ("pretrain",))}
        self.pids: dict[str, int] = {}
        self.kills = 0

    def finish(self, kills: int, seed: int, longest: float) -> None:
        """Kill one or both (SIGKILL) after up to ``longest`` seconds, start them again, ``kills`` times; then let them end."""
        rng = random.Random(seed)
        try:
            while self.kills < kills:
                self._start()
                if not self._runs_for(rng.uniform(0.0, longest)):
                    break
                self._kill(rng.choice([[name] for name in self.commands] + [list(self.commands)]))
            self._start()
            until(lambda: not self._reaped(), 120.0)
        finally:
            self._kill(list(self.pids))

    def words(self) -> str:
        return self.says.read_text(errors="replace")[-2000:]

    def _start(self) -> None:
        for name, command in self.commands.items():
            if name not in self.pids and not self._over():
                self.pids[name] = started(*command, says=self.says)

    def _runs_for(self, seconds: float) -> bool:
        end_of_life = time.monotonic() + seconds
        while time.monotonic() < end_of_life and not self._over():
            self._reaped()
            time.sleep(0.005)
        return not self._over()

    def _reaped(self) -> dict[str, int]:
        """Forget who has ended, which must have been without an error. Those that are left."""
        for name, pid in list(self.pids.items()):
            if (code := ended(pid)) is not None:
                del self.pids[name]
                assert code == 0, f"{name} ended with {code}: {self.words()}"
        return self.pids

    def _over(self) -> bool:
        return self.run.stage("pretrain").exists()

    def _kill(self, names: list[str]) -> None:
        for name in names:
            if (pid := self.pids.pop(name, None)) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                self.kills += 1


def outcome(run: RunPaths) -> tuple[str, str, list[dict[str, Any]]]:
    """What must not depend on who was killed when: weights, vectors of the index and metrics, times and numbers left out."""
    newest = run.index / f"{published_generations(run.index)[-1]:06d}"
    rows = [{key: value for key, value in row.items() if key != "refresher_restarts"} for row in rows_of(run.root, "pretrain")]
    return sha256_file(run.stage("pretrain") / "model.safetensors"), sha256_file(newest / "vectors-00000.npy"), rows


def left_over(run: RunPaths) -> set[str]:
    """What a finished run should not have: anything half-written, put aside, or kept for nobody."""
    kept = {f"{number:06d}" for number in published_generations(run.index)}
    names = {path.relative_to(run.root).as_posix() for path in run.root.rglob("*") if path.name.endswith(HALF_WRITTEN)}
    names |= {f"params/{path.name}" for path in run.params.iterdir() if path.name not in (*kept, NEXT_NUMBER_FILE)}
    names |= {f"index/{path.name}" for path in run.index.iterdir() if path.is_dir() and path.name not in kept}
    names |= {path.relative_to(run.root).as_posix() for path in run.checkpoints("pretrain").glob("*")}
    return names if len(kept) <= KEEP_GENERATIONS else {*names, f"{len(kept)} generations"}


def size(run: RunPaths) -> int:
    places = (run.index, run.params, run.root / "stages")
    return sum(
        path.stat().st_size for place in places for path in place.rglob("*") if path.is_file() and path.suffix in (".npy", ".safetensors")
    )


SLOW = pytest.mark.slow


@pytest.fixture(scope="session")
def ready(tmp_path_factory, write_tiny):
    root = tmp_path_factory.mktemp("ready")
    return ready_to_pretrain(write_tiny(root), root / "run")


@pytest.fixture(scope="session")
def whole(ready, tmp_path_factory):
    """The same run after inline pre-training that nobody disturbed."""
    run = copy_of(ready, tmp_path_factory.mktemp("whole") / "run", "inline")
    assert main([*SIDES["pretrain"], str(run.root)]) == 0
    return run


@pytest.mark.parametrize(("kills", "seeds"), [(2, 1), pytest.param(25, 4, marks=SLOW)])
def test_a_killed_inline_run_ends_as_if_nothing_had_happened(ready, whole, tmp_path, kills, seeds):
    for seed in range(seeds):
        run = copy_of(ready, tmp_path / f"run-{seed}", "inline")
        pair = Pair(run, refresher=False)
        pair.finish(kills, seed, 0.6)
        assert pair.kills and outcome(run) == outcome(whole)
        assert not left_over(run) and size(run) == size(whole)


@pytest.mark.parametrize(("kills", "seeds"), [(3, 1), pytest.param(25, 4, marks=SLOW)])
def test_a_run_whose_trainer_and_refresher_are_killed_leaves_nothing_behind(ready, whole, tmp_path, kills, seeds):
    for seed in range(seeds):
        run = copy_of(ready, tmp_path / f"run-{seed}", "external")
        pair = Pair(run, refresher=True)
        pair.finish(kills, seed, 0.6)
        assert pair.kills and not left_over(run) and size(run) == size(whole)
        assert main(["verify", str(run.root)]) == 0


def descendants(pid):
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, rest = re.match(r"(\d+) \(.*\) \S (\d+)", stat.read_text(), re.DOTALL).groups()
        except OSError:  # it ended while we looked
            continue
        parents[int(number)] = int(rest)
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


LONG = "steps = 100000"
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture
def endless(ready, tmp_path):
    """Starts a trainer, and a refresher if it is external, that do not end by themselves."""
    pids = {}

    def start(mode, *devices):
        run = copy_of(ready, tmp_path / "run", mode)
        run.config.write_text(
            run.config.read_text().replace("steps = 40", LONG).replace("devices = []", f"devices = {json.dumps(devices)}")
        )
        names = ("pretrain", "refresh") if mode == "external" else ("pretrain",)
        pids.update({name: started(*SIDES[name], str(run.root), says=tmp_path / name) for name in names})
        return run, pids

    yield start
    for pid in pids.values():
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def half_written(run):
    return [path for path in run.root.rglob("*") if path.name.endswith(".staging")]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize(("side", "how"), [
    ("refresh", signal.SIGINT), pytest.param("refresh", signal.SIGTERM, marks=SLOW),
    pytest.param("pretrain", signal.SIGTERM, marks=SLOW), pytest.param("pretrain", signal.SIGINT, marks=SLOW),
])  # fmt: skip
def test_either_side_ends_cleanly_by_a_signal(endless, tmp_path, side, how):
    run, pids = endless("external")
    until(lambda: any(row["step"] > 20 for row in MetricsLog(run.metrics).rows() if row["stage"] == "pretrain"))
    other, children = pids["pretrain" if side == "refresh" else "refresh"], descendants(pids[side])
    assert end(pids[side], how) == CODES[how]
    assert "run the same command again to continue" in (tmp_path / side).read_text()
    assert not any(alive(child) for child in children)
    assert ended(other) is None, "the other side is somebody else's and goes on"
    pids[side] = started(*SIDES[side], str(run.root), says=tmp_path / side)
    seen = read_status(run.index)
    until(lambda: read_status(run.index) != seen)
    assert ended(pids[side]) is None, "and the signalled side can be started again"
    for name in ("pretrain", "refresh"):
        assert end(pids[name], signal.SIGTERM) == CODES[signal.SIGTERM]
    assert not half_written(run)


@pytest.mark.slow
@pytest.mark.parametrize("how", list(CODES))
def test_a_refresher_with_workers_leaves_none(endless, monkeypatch, how):
    monkeypatch.setattr("realm.search.publishing.embedding.PART_ROWS", 2)  # enough parts for several processes
    run, pids = endless("external", "cpu", "cpu")
    children = until(lambda: descendants(pids["refresh"]))
    assert end(pids["refresh"], how) == CODES[how]
    until(lambda: not any(alive(child) for child in children), 10.0)
    assert not half_written(run)
