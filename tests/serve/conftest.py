"""A served copy of the tiny run: in this process, and as a command of its own."""

import importlib.util
import shutil

import pytest

if importlib.util.find_spec("fastapi") is None:  # the extra 'serve' is not installed
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="module")
def client(tiny_run, tmp_path_factory):
    from .tools import served

    with served(shutil.copytree(tiny_run, tmp_path_factory.mktemp("served") / "run")) as found:
        yield found


@pytest.fixture
def start():
    from .tools import Process

    started = []

    def begin(run, *options, **verb):
        started.append(Process(run, *options, **verb))
        return started[-1]

    yield begin
    for found in started:
        found.process.kill()
        found.process.communicate()
