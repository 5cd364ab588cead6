"""Jobs of several ranks, in processes of their own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Jobs = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    """Runs jobs one after the other (see jobs.py); returns the exit codes and errors of each."""

    def run(*plan: dict[str, Any]) -> list[dict[str, Any]]:
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(plan))
        done = subprocess.run([sys.executable, Path(__file__).with_name("jobs.py"), path], capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stderr
        return json.loads(Path(f"{path}.done").read_text())

    return run
