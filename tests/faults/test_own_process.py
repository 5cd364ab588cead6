"""Tests that fork, in a process of their own: beside another test's threads a forked child may wait for a lock for ever."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("chosen", ["own_process and not slow", pytest.param("own_process and slow", marks=pytest.mark.slow)])
def test_tests_that_fork(chosen):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", chosen, str(HERE)]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout.strip().splitlines()[-1]
