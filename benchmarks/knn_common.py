"""What the kNN proofs share: results that are kept as they come, so that a killed run goes on, and the closing table."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from realm.knn.building import Progress
from realm.storage.files import write_json


class Kept:
    """Results in one JSON file: what is there is not measured again."""

    def __init__(self, path: Path):
        self._path = path
        self.rows: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def get(self, name: str, measure: Callable[[], Any]) -> Any:
        """The result ``name``, measured now if it is not there."""
        if name not in self.rows:
            started = time.perf_counter()
            self.rows[name] = measure()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, self.rows)
            print(f"{self._path.stem}: {name} ({time.perf_counter() - started:.0f} s)", file=sys.stderr, flush=True)
        return self.rows[name]


def arguments(about: str) -> argparse.Namespace:
    """--data, --work and --seeds."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the data directory of the tests")
    parser.add_argument("--work", type=Path, required=True, help="where models, datastores and results are kept; a killed run goes on here")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    return parser.parse_args()


def telling(what: str) -> Progress:
    """Progress on standard error, a line every 20 seconds."""
    last = [time.perf_counter()]

    def tell(done: int, total: int) -> None:
        if time.perf_counter() - last[0] > 20:
            last[0] = time.perf_counter()
            print(f"{what}: {done}/{total}", file=sys.stderr, flush=True)

    return tell


def mean_and_range(values: list[float]) -> str:
    """ "12.3 (11.9 to 12.8)"."""
    return f"{sum(values) / len(values):.4g} ({min(values):.4g} to {max(values):.4g})"
