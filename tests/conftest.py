"""What every test gets: no network, two threads, the shared data directory."""

import os
import sys
from pathlib import Path

# Before anything imports torch or transformers; the commands that tests start inherit it.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "2"

import hypothesis
import pytest

# Two busy cores: a slow example is no failure. The same examples every time, so that a failure is the change's, not the day's.
hypothesis.settings.register_profile("realm", deadline=None, derandomize=True)
hypothesis.settings.load_profile("realm")

ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_finish() -> None:
    """Fix the number of threads, on which bits of a sum depend, without importing torch for tests that need none."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(2)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real data: $REALM_DATA, else ../shared/data beside the repository. Tests that need it are skipped without it."""
    path = Path(os.environ.get("REALM_DATA") or ROOT.parent / "shared" / "data").resolve()
    if not path.is_dir():
        pytest.skip(f"no data at {path}: set REALM_DATA")
    return path
