"""The command under torchrun: one voice, a rank that is killed ends it with a code, the next start goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from realm.recipe import dump_recipe, load_recipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "realm"]


@pytest.fixture
def unwarmed(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    shutil.rmtree(run / "stages/warm")
    (run / "metrics.jsonl").unlink()
    return run


def ranks_of(pid):
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return sorted((child for child in children if b"RANK=" in Path(f"/proc/{child}/environ").read_bytes()), key=rank_of)


def rank_of(pid):
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return int(next(value for value in variables if value.startswith(b"RANK=")).removeprefix(b"RANK="))


def test_killed_under_torchrun_and_started_again(unwarmed):
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
