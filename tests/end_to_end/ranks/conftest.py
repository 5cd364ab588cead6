"""Jobs of several ranks, in processes of their own: one process has imported everything and forks them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def launcher():
    command = [sys.executable, Path(__file__).with_name("jobs.py")]
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
