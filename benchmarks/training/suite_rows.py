"""The rows of one part of ``gpu_suite.py``: asked for once, on disk after each, so that a part can stop anywhere and go on later."""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class OutOfTime(Exception):
    """The part's time is over; what is left is for the next start."""


class Rows:
    """The rows of one part, on disk after each.

    Args:
        path: its JSON file; rows that are there are not measured again.
        part: its name.
        device: what it runs on, in words.
        seconds: it may take.
    """

    def __init__(self, path: Path, part: str, device: str, seconds: float):
        self.path = path
        self.end = time.monotonic() + seconds
        self.state: dict[str, Any] = {"part": part, "device": device, "done": False, "rows": {}}
        if path.exists() and (found := json.loads(path.read_text("utf-8")))["device"] == device:
            self.state = found

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def measure(self, name: str, run: Callable[[], Row]) -> None:
        """Ask for a row unless it is there; what goes wrong in it is noted and the next row is asked for.

        Raises:
            OutOfTime: nothing new is begun.
        """
        if name in self.state["rows"] and "error" not in self.state["rows"][name]:
            return
        if self.left <= 0:
            raise OutOfTime
        try:
            self.put(name, run())
        except OutOfTime:
            raise
        except Exception as error:  # an accelerator without memory, an index kind without a kernel: the other rows still count
            self.put(name, {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"})
            traceback.print_exc()

    def put(self, name: str, row: Row) -> None:
        """Set a row and write the file whole: a reader never sees half of it."""
        self.state["rows"][name] = row
        print(f"{self.state['part']}: {name}: {row}", file=sys.stderr, flush=True)
        self.write()

    def finish(self) -> None:
        self.state["done"] = not any("error" in row for row in self.state["rows"].values())
        self.write()

    def write(self) -> None:
        staged = self.path.with_suffix(".part")
        with open(staged, "w", encoding="utf-8") as file:
            json.dump(self.state, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, self.path)
