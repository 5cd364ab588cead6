"""A served copy of the tiny run: in this process, and as a command of its own."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'serve'")

from starlette.testclient import TestClient

from .tools import Process, served


@pytest.fixture
def run_copy(tiny_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_run, tmp_path / "run")


@pytest.fixture(scope="module")
def client(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One server for tests that leave its documents as they were."""
    with served(shutil.copytree(tiny_run, tmp_path_factory.mktemp("served") / "run")) as found:
        yield found


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts servers; those that are left are killed."""
    started: list[Process] = []

    def begin(run: Path, *options: str) -> Process:
        started.append(Process(run, *options))
        return started[-1]

    yield begin
    for found in started:
        found.process.kill()
        found.process.communicate()
