"""A batch gives the same gradient however it is shared out; ranks that die or stand still; the command under torchrun."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from toy_runs import UNTRAINED, copy_without, rows_of

from realm.recipe import dump_recipe, load_recipe
from realm.storage.files import sha256_file
from realm.storage.metrics import MetricsLog, _line


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
SETTINGS = {"run": {"checkpoint_every": 3, "accumulate": 2}, "pretrain": PRETRAIN, "eval": {"qa": ""}}


def test_killed_on_two_ranks(tiny_run, tmp_path, jobs):
    """An uninterrupted run, and one whose ranks are killed in turn: the same weights and the same log."""
    runs = [copy_without(tiny_run, tmp_path / name, *UNTRAINED, "results") for name in ("whole", "broken")]
    for run in runs:
        rows = [row for row in MetricsLog(run / "metrics.jsonl").rows() if row["stage"] in ("warm", "ict")]
        (run / "metrics.jsonl").write_text("".join(map(_line, rows)))
    whole, broken = ({"work": "stages", "run": str(run), "world": 2, "set": SETTINGS, "stages": ["pretrain"]} for run in runs)
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
