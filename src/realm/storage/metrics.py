"""metrics.jsonl: one JSON object a line, the truth that the report, the terminal and the tests read. Each ends with its own checksum.

Only the keys in ``TIMES`` hold anything that a second run of the same seed would not repeat (with an inline refresh)."""

import json
import logging
import math
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from realm.storage.files import fsync_directory, fsync_file, json_value, make_directory, reached, write_atomic

Row = dict[str, Any]
SPEED = ("seconds_per_step", "seconds_left", "tokens_per_second")
SMALL_VALUE = 1e-3
TIMES = ("time", "refresh_seconds", "blocks_per_second", "wait_seconds", *SPEED)
CHECKSUM = "crc32"
"""The last entry of a line: CRC-32 of the JSON without it, in hexadecimal. Rows are read without it."""
logger = logging.getLogger(__name__)


class MetricsLog:
    """Appends rows to a metrics file; a resumed stage first takes back what came after its checkpoint."""

    def __init__(self, path: Path):
        self.path = path

    def write(self, stage: str, step: int, **values: Any) -> None:
        """Append one row. Numbers are plain JSON, at any depth; NaN and infinity are written as null."""
        row = {"stage": stage, "step": step, **{k: _plain(v) for k, v in values.items()}, "time": round(time.time(), 3)}
        make_directory(self.path.parent)
        with open(self.path, "ab+") as file:
            # A killed process may have left half a line: the new row must not be glued to it.
            if file.tell() and (file.seek(-1, 2), file.read(1))[1] != b"\n":
                file.write(b"\n")
            file.write(_line(row).encode())
        reached("metrics: appended", self.path)

    def sync(self) -> None:
        """Make all rows durable: what is published next says how many there are, or that there will be no more."""
        if self.path.exists():
            fsync_file(self.path)
            fsync_directory(self.path.parent)

    def rows(self) -> Iterator[Row]:
        """Rows in the order written. What is damaged, or was left incomplete by a killed process, is skipped with a warning."""
        # Not splitlines(): a string in JSON may hold other characters that it takes for line ends.
        rows = [_row(line) for line in self._text().split("\n") if line]
        if damaged := sum(row is None for row in rows):
            logger.warning("%s: damaged rows are skipped: %d of %d", self.path, damaged, len(rows))
        yield from (row for row in rows if row is not None)

    def damaged(self) -> int:
        """Count the damaged rows; the last line may be on its way and is none."""
        return sum(_row(line) is None for line in self._text().split("\n")[:-1] if line)

    def count(self, stage: str) -> int:
        return sum(row["stage"] == stage for row in self.rows())

    def rewind(self, stage: str, count: int) -> None:
        """Keep only the first ``count`` rows of a stage: what came after its checkpoint is written again by the resumed run."""
        kept: list[Row] = []
        seen = 0
        for row in self.rows():
            seen += row["stage"] == stage
            if row["stage"] != stage or seen <= count:
                kept.append(row)
        text = "".join(map(_line, kept))
        if text != self._text():
            write_atomic(self.path, text)

    def _text(self) -> str:
        """The whole file; a character that a killed process cut in two does not stop the reading of the rest."""
        return self.path.read_text("utf-8", errors="replace") if self.path.exists() else ""


def _line(row: Row) -> str:
    return json.dumps(row | {CHECKSUM: _checksum(row)}, ensure_ascii=False) + "\n"


def _row(line: str) -> Row | None:
    """The row of a line; None if the line is damaged."""
    try:
        row = json_value(line)
        name, last = row.popitem()
        checksum = _checksum(row)
    except (ValueError, AttributeError, KeyError):
        return None
    return row if (name, last) == (CHECKSUM, checksum) else None


def _checksum(row: Row) -> str:
    return f"{zlib.crc32(json.dumps(row, ensure_ascii=False).encode()):08x}"


def rounded(value: float) -> float:
    """``value`` as the log holds it: six decimals, and of small numbers four digits, so that probabilities and learning rates stay."""
    return round(value, 6) if abs(value) >= SMALL_VALUE else float(f"{value:.4g}")


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return rounded(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
