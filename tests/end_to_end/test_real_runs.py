"""Real training runs of seconds in processes of their own, ranks among them, killed and ended by signals: the same result, no orphans."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import alive, until
from safetensors.torch import load_file
from toy_runs import UNTRAINED, copy_without, rows_of, train

from realm.cli import main
from realm.recipe import dump_recipe, load_recipe
from realm.search.publishing.parameters import KEEP_GENERATIONS, NEXT_NUMBER_FILE
from realm.search.publishing.refresher import read_status
from realm.storage.files import sha256_file
from realm.storage.generations import published_generations
from realm.storage.layout import RunPaths
from realm.storage.metrics import MetricsLog, _line

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


KILLED = [(False, 2, 1), (True, 3, 1), pytest.param(False, 25, 4, marks=SLOW), pytest.param(True, 25, 4, marks=SLOW)]


@pytest.mark.parametrize(("refresher", "kills", "seeds"), KILLED)
def test_a_run_that_is_killed_leaves_nothing_behind(ready, whole, tmp_path, refresher, kills, seeds):
    """Trainer and refresher; without one, the run ends as if nothing had happened."""
    for seed in range(seeds):
        run = copy_of(ready, tmp_path / f"run-{seed}", "external" if refresher else "inline")
        pair = Pair(run, refresher=refresher)
        pair.finish(kills, seed, 0.6)
        assert pair.kills and not left_over(run) and size(run) == size(whole)
        assert main(["verify", str(run.root)]) == 0 and (refresher or outcome(run) == outcome(whole))


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


@pytest.fixture(scope="session")
def launcher():
    command = [sys.executable, Path(__file__).with_name("jobs_of_ranks.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def jobs(launcher, tmp_path):
    """Runs jobs one after the other; returns the exit codes and errors of each."""

    def run(*plan):
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(plan))
        assert launcher.stdin is not None and launcher.stdout is not None
        launcher.stdin.write(f"{path}\n")
        launcher.stdin.flush()
        assert launcher.stdout.readline() == "done\n"
        return json.loads(Path(f"{path}.done").read_text())

    return run


@pytest.fixture
def unwarmed(tiny_run, tmp_path):
    return copy_without(tiny_run, tmp_path / "run", "stages/warm")


STAGES = ("ict", "warm", "pretrain", "finetune")


def test_ranks_and_parts_have_the_gradient_of_the_whole_batch(run_copy, tmp_path, jobs):
    shapes = [(1, 1), (2, 1), (1, 2), (2, 2)]
    outs = [str(tmp_path / f"{world}-{parts}") for world, parts in shapes]
    common = {"work": "gradients", "run": str(run_copy)}
    done = jobs(*({**common, "world": w, "accumulate": a, "out": out} for (w, a), out in zip(shapes, outs, strict=True)))
    assert all(code == 0 for job in done for code in job["codes"]), done
    whole, *others = (load_file(out) for out in outs)
    for stage in STAGES:
        names = [name for name in whole if name.startswith(f"{stage}.")]
        assert len(names) > 10 and all(whole[name].dtype == torch.float64 for name in names)
        assert sum(bool(whole[name].abs().max() > 0) for name in names) > 10
        # A bias in front of a softmax has a gradient of 0, of which rounding leaves something.
        rounding = 1e-13 * max(whole[name].abs().max() for name in names)
        for other in others:
            assert [name for name in other if name.startswith(f"{stage}.")] == names
            assert float(other[f"{stage} loss"]) == pytest.approx(float(whole[f"{stage} loss"]), rel=1e-6)
            for name in names:
                difference, size = (other[name] - whole[name]).abs().max(), whole[name].abs().max()
                assert difference <= 1e-6 * size or size < rounding, (stage, name, float(difference), float(size))
    # Shares of a batch hide more or fewer wordpieces: dividing each by its own number would be another gradient.
    assert len(set(whole["warm weights"].tolist())) > 1


def test_a_gradient_that_no_rank_has_stays_none(tmp_path, jobs):
    (done,) = jobs({"work": "unused", "world": 2, "out": str(tmp_path / "grads")})
    assert done["codes"] == [0, 0], done
    for rank in (0, 1):
        assert json.loads((tmp_path / f"grads.{rank}").read_text()) == [[3.0] * 3, [5.0] * 3, None]


WARM = {"work": "stages", "world": 2, "stages": ["warm"]}


def test_a_rank_that_died(unwarmed, jobs):
    died, again = jobs({**WARM, "run": str(unwarmed), "kill": [1, 3, "warm"]}, {**WARM, "run": str(unwarmed)})
    assert died["codes"] == [2, -9], died
    assert died["errors"][0].startswith("error: rank 0 of 2 gets no answer: another rank has ended or hangs. Start the same command again")
    assert died["errors"][0].count("\n") == 1 and died["seconds"] < 60
    assert again["codes"] == [0, 0] and (unwarmed / "stages/warm/stage.json").exists()


def test_a_rank_that_stands_still(unwarmed, jobs):
    """Stopped, not dead: its connections stay open, and no answer comes. The time limit of a step is 3 seconds here."""
    (stopped,) = jobs({**WARM, "run": str(unwarmed), "stop": [1, 3, "warm"], "timeout": 3})
    assert stopped["codes"][0] in (1, 2) and stopped["codes"][1] == -9, stopped
    assert stopped["errors"][0].startswith("error: rank ") and "Start the same command again" in stopped["errors"][0]
    assert not (unwarmed / "stages/warm").exists() and (unwarmed / "checkpoints/warm").exists()


def test_the_first_rank_fails_alone(unwarmed, jobs):
    """What only the first rank does, it alone explains; the others end with it."""
    shutil.rmtree(unwarmed / "corpus")
    job = {**WARM, "run": str(unwarmed), "stages": ["corpus"], "set": {"corpus": {"sources": [str(unwarmed / "nowhere.jsonl")]}}}
    for name in ("stages", "checkpoints"):
        shutil.rmtree(unwarmed / name, ignore_errors=True)
    (failed,) = jobs(job)
    assert failed["codes"] == [2, 2], failed
    assert "nowhere.jsonl" in failed["errors"][0] and failed["errors"][1] == ""


def test_a_batch_that_the_ranks_cannot_divide(unwarmed, jobs):
    (refused,) = jobs({**WARM, "run": str(unwarmed), "world": 3})
    assert refused["codes"] == [2, 2, 2], refused
    assert all("a batch of 4 cannot be divided into 3 parts (ranks x accumulate)" in error for error in refused["errors"])


PRETRAIN = {"steps": 10, "refresh_every": 4, "held_out": 3, "eval_every": 5, "batch": 4}
OF_TWO_RANKS = {"run": {"checkpoint_every": 3, "accumulate": 2}, "pretrain": PRETRAIN, "eval": {"qa": ""}}


def test_killed_on_two_ranks(tiny_run, tmp_path, jobs):
    """An uninterrupted run, and one whose ranks are killed in turn: the same weights and the same log."""
    runs = [copy_without(tiny_run, tmp_path / name, *UNTRAINED, "results") for name in ("whole", "broken")]
    for run in runs:
        rows = [row for row in MetricsLog(run / "metrics.jsonl").rows() if row["stage"] in ("warm", "ict")]
        (run / "metrics.jsonl").write_text("".join(map(_line, rows)))
    whole, broken = ({"work": "stages", "run": str(run), "world": 2, "set": OF_TWO_RANKS, "stages": ["pretrain"]} for run in runs)
    done = jobs(whole, {**broken, "kill": [1, 5, "pretrain"]}, {**broken, "kill": [0, 8, "pretrain"]}, broken)
    assert done[0]["codes"] == done[-1]["codes"] == [0, 0], done
    for rank, killed in ((1, done[1]), (0, done[2])):
        assert killed["codes"][rank] == -9 and 0 not in killed["codes"], killed
    logs = [rows_of(run) for run in runs]
    assert logs[0] == logs[1] and len({sha256_file(run / "stages/pretrain/model.safetensors") for run in runs}) == 1
    facts = json.loads((runs[0] / "stages/pretrain/stage.json").read_text())
    assert facts["steps"] == 10 and facts["published"] == "last" and 0 <= facts["best_step"] <= 10
    assert [row["step"] for row in logs[0] if "held_out_utility" in row] == [0, 5, 10]


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "realm"]


def ranks_of(pid):
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return sorted((child for child in children if b"RANK=" in Path(f"/proc/{child}/environ").read_bytes()), key=rank_of)


def rank_of(pid):
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return int(next(value for value in variables if value.startswith(b"RANK=")).removeprefix(b"RANK="))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_under_torchrun_and_started_again(unwarmed):
    (unwarmed / "metrics.jsonl").unlink()
    config = unwarmed / "config.toml"
    config.write_text(dump_recipe(load_recipe(config, {"warm": {"steps": 60, "least_steps": 60}, "run": {"checkpoint_every": 10}})))
    command = [*TORCHRUN, "run", str(unwarmed), "--stages", "warm", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        checkpoints, deadline = unwarmed / "checkpoints/warm", time.monotonic() + 200
        while not list(checkpoints.glob("step-*[0-9]")) and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        os.kill(ranks_of(process.pid)[-1], signal.SIGKILL)
        killed = time.monotonic()
        out, errors = process.communicate(timeout=100)
    assert process.returncode != 0 and out == "" and time.monotonic() - killed < 90, errors
    assert not (unwarmed / "stages/warm").exists() and list(checkpoints.iterdir())
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 and json.loads(done.stdout)["stages"]["warm"]["seconds"] > 0
    assert json.loads((unwarmed / "stages/warm/stage.json").read_text())["steps"] == 60
    assert done.stderr.count("60/60") <= 2, done.stderr
