"""Python processes that we start: none of them imports from the current directory.

``python -m`` and ``python -c``, which multiprocessing starts its processes with, look there first: a ``token.py`` beside somebody's
documents would be run. Python's safe path (``-P``) leaves that out, and what the user put on ``PYTHONPATH`` stays.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""The environment of a child whose command line is not ours to write."""
_starting = threading.RLock()


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module in a Python of its own."""
    return [sys.executable, "-P", "-m", module, *arguments]


@contextmanager
def safely() -> Iterator[None]:
    """Python processes that others' code starts in this block get ``SAFE_PATH``. The environment is this process's only while it lasts:
    scripts that the user's own code starts may import what lies beside them.
    """
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
