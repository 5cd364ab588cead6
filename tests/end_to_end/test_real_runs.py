"""Real training runs, killed and ended by signals on either side: the same result in the end, nothing left behind, no orphans."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from realm.cli import main
from realm.search.publishing.refresher import read_status
from realm.storage.metrics import MetricsLog

from .real_runs import SIDES, Pair, copy_of, end, ended, left_over, outcome, ready_to_pretrain, size, started, until, waited

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


@pytest.mark.slow
def test_trainer_and_the_refresher_beside_it_are_killed(ready, whole, tmp_path):
    """Mode "process": the trainer starts a killed refresher again; then it is killed itself, and its refresher ends with it."""
    run, says, seen = copy_of(ready, tmp_path / "run", "process"), tmp_path / "says", []

    def another():
        status = read_status(run.index)
        return None if status is None or status.pid in seen else status.pid

    trainer = started(*SIDES["pretrain"], str(run.root), says=says)
    for killed in ("refresher", "trainer"):
        seen.append(until(another))
        os.kill(seen[-1] if killed == "refresher" else trainer, signal.SIGKILL)
    os.waitpid(trainer, 0)
    until(lambda: not any(runs(pid) for pid in seen))
    trainer = started(*SIDES["pretrain"], str(run.root), says=says)
    assert waited(trainer) == 0, says.read_text()[-2000:]
    assert not left_over(run) and size(run) == size(whole)


def runs(pid):
    """Whether a process is there and not just waiting to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{pid}/stat").exists() or Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


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
        if runs(pid):
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
    assert not any(runs(child) for child in children)
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
    until(lambda: not any(runs(child) for child in children), 10.0)
    assert not half_written(run)


@pytest.mark.slow
def test_external_mode_as_a_user_starts_it(ready, tmp_path):
    """``realm refresh RUN`` and ``realm run RUN``, interpreters of their own: both end by themselves, and the index is valid."""
    run = copy_of(ready, tmp_path / "run", "external")
    commands = [[sys.executable, "-m", "realm", *said, str(run.root)] for said in (["refresh"], ["run", "--stages", "pretrain"])]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert "pre-training has ended" in said[0]
    assert not left_over(run) and main(["verify", str(run.root)]) == 0
    status = read_status(run.index)
    assert status is not None and status.pid == both[0].pid
