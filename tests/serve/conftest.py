"""A served copy of the tiny run: in this process, and as a command of its own."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'serve'")

from starlette.testclient import TestClient

from realm.client import Client
from realm.serve.app import make_app
from realm.serve.guard import Rules
from realm.serve.serving import Serving

HERE = "http://127.0.0.1"


@pytest.fixture(scope="session", autouse=True)
def native_kernel() -> None:
    """Made once, so that no test waits for it."""


@pytest.fixture
def run_copy(tiny_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_run, tmp_path / "run")


@contextmanager
def served(run: Path, rules: Rules | None = None, **options: Any) -> Iterator[TestClient]:
    """A server in this process, without a socket; ``served.serving`` of the client is what answers."""
    serving = Serving(run, **options)
    app = make_app(serving, rules or Rules())
    with TestClient(app, base_url=HERE, raise_server_exceptions=False) as client:
        client.serving = serving  # type: ignore[attr-defined]
        yield client


@pytest.fixture(scope="module")
def client(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One server for tests that leave its documents as they were."""
    with served(shutil.copytree(tiny_run, tmp_path_factory.mktemp("served") / "run")) as found:
        yield found


class Process:
    """``realm serve RUN --port 0`` as a process."""

    def __init__(self, run: Path, *options: str):
        command = [sys.executable, "-m", "realm", "serve", str(run), "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.said = ""
        for line in self.process.stderr:
            self.said += line
            if line.startswith("serving "):
                break
        else:
            raise AssertionError(self.said)
        self.url = line.split(" at ")[1].split(";")[0]
        self.port = int(self.url.rpartition(":")[2])

    def client(self, **options: Any) -> Client:
        return Client(self.url, **options)

    def end(self, number: int) -> tuple[int, str]:
        """Send a signal; the exit code and what was said on standard error since the start."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, self.said + said


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


def document(name: str, text: str, title: str = "") -> dict[str, str]:
    return {"id": name, "title": title, "text": text}
