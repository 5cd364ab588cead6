"""One Ray cluster for all tests here: starting it takes longer than they do."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

NICENESS = "RAY_worker_niceness"


def processes(marker, *without):
    """Number and command of every process, zombies aside, whose environment has ``marker`` and none of the others."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
            if without and not re.match(rb"[A-Za-z_]\w*=", environment):
                continue
            if marker.encode() in environment and not any(other.encode() in environment for other in without):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


@pytest.fixture(scope="session")
def marked():
    if not Path("/proc/self/environ").exists():
        pytest.skip("no /proc here")
    return processes


@pytest.fixture(scope="session")
def extra():
    if find_spec("ray") is None:  # importing it here would be too early
        pytest.skip("the extra ray is not installed")


@pytest.fixture(scope="session")
def cluster(extra):
    """This process is connected to a local cluster of 8 CPUs that are not there: only the bookkeeping needs them."""
    from realm.training.pool.cluster import connected

    # Ray's workers are nice by default: on a busy machine these tests would wait for minutes.
    os.environ[NICENESS] = "0"
    try:
        with connected(cpus=8):
            yield
    finally:
        del os.environ[NICENESS]
