"""Python processes: the place of this one in a job, and children, which never import from the current directory.

``python -m`` and multiprocessing look there first: a ``token.py`` beside the user's documents would be run. ``-P`` leaves that out."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""The environment of a child whose command line is not ours to write."""
_starting = threading.RLock()


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module in a Python of its own."""
    return [sys.executable, "-P", "-m", module, *arguments]


def end_with_stdin() -> None:
    """This process ends at once when its standard input does, which the kernel closes with the process that started it. What is half done
    then was never published."""
    threading.Thread(target=_end_with, args=(sys.stdin.fileno(),), daemon=True).start()


def _end_with(descriptor: int) -> None:
    """By its descriptor: the lock of a buffered reader would not be free when the interpreter ends."""
    while os.read(descriptor, 1):
        pass
    os._exit(0)


@contextmanager
def safely() -> Iterator[None]:
    """Python processes that others' code starts in this block get ``SAFE_PATH``. The environment is this process's only while it lasts:
    scripts that the user's own code starts may import what lies beside them."""
    with _starting, environment(SAFE_PATH):
        yield


@contextmanager
def environment(settings: dict[str, str]) -> Iterator[None]:
    """These variables in this process's environment while the block lasts; then what was there before."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass(frozen=True)
class ProcessPlace:
    """One process among the ``world`` of a job: its rank, and its number among those of this machine."""

    rank: int
    local: int
    world: int

    @property
    def first(self) -> bool:
        """Return whether this is the process that writes and speaks."""
        return self.rank == 0


def place() -> ProcessPlace:
    """This process's place as ``torchrun`` says in the environment; alone without it."""
    number = {name: int(os.environ.get(name) or default) for name, default in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1))}
    return ProcessPlace(number["RANK"], number["LOCAL_RANK"], number["WORLD_SIZE"])
