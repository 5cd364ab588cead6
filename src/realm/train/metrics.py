"""metrics.jsonl: one JSON object a line, the truth that the report, the terminal and the tests read. Each ends with its own checksum.

Only the keys in ``TIMES`` hold anything that a second run of the same seed would not repeat (with an inline refresh). Rows may be
mirrored to TensorBoard and Weights & Biases; nothing is read back from there.
"""

import importlib.util
import json
import logging
import math
import secrets
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from realm.decoding import json_value
from realm.errors import MissingExtra, RunError
from realm.storage.files import fsync_directory, fsync_file, make_directory, reached, write_atomic, write_json
from realm.timing import KINDS

Row = dict[str, Any]
SHARES = tuple(f"share_{kind}" for kind in KINDS)
"""What the time of pre-training is divided into; a row has a share of each."""
SPEED = ("seconds_per_step", "seconds_left", "tokens_per_second", *SHARES)
SMALL = 1e-3
TIMES = ("time", "refresh_seconds", "blocks_per_second", "wait_seconds", *SPEED)
CHECKSUM = "crc32"
"""The last entry of a line: CRC-32 of the JSON without it, in hexadecimal. Rows are read without it."""
logger = logging.getLogger(__name__)


class Sink(Protocol):
    """Something that is told every row."""

    def write(self, row: Row) -> None:
        """Show a row, after it was written."""

    def rewind(self, stage: str, step: int) -> None:
        """Forget the rows of a stage after ``step``: they are about to be written again."""


class MetricsLog:
    """Appends rows to a metrics file and tells ``sinks``; a resumed stage first takes back what came after its checkpoint."""

    def __init__(self, path: Path, sinks: tuple[Sink, ...] = ()):
        self.path = path
        self.sinks = sinks

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
        for sink in self.sinks:
            sink.write(row)

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

    def count(self, stage: str) -> int:
        """Rows of one stage so far."""
        return sum(row["stage"] == stage for row in self.rows())

    def rewind(self, stage: str, count: int) -> None:
        """Keep only the first ``count`` rows of a stage: what came after its checkpoint is written again by the resumed run."""
        kept: list[Row] = []
        seen = step = 0
        for row in self.rows():
            seen += row["stage"] == stage
            step = row["step"] if row["stage"] == stage and seen <= count else step
            if row["stage"] != stage or seen <= count:
                kept.append(row)
        text = "".join(map(_line, kept))
        if text != self._text():
            write_atomic(self.path, text)
        for sink in self.sinks:
            sink.rewind(stage, step if count else -1)

    def _text(self) -> str:
        """The whole file; a character that a killed process cut in two does not stop the reading of the rest."""
        return self.path.read_text("utf-8", errors="replace") if self.path.exists() else ""


def _line(row: Row) -> str:
    return json.dumps(row | {CHECKSUM: _checksum(row)}, ensure_ascii=False) + "\n"


def _row(line: str) -> Row | None:
    """What a line was written from; None: it is not what was written."""
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
    return round(value, 6) if abs(value) >= SMALL else float(f"{value:.4g}")


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return rounded(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def open_sinks(root: Path, *, tensorboard: bool | str, wandb: str, config: dict[str, Any]) -> tuple[Sink, ...]:
    """Sinks for ``tensorboard`` ("auto": where it is installed) and a project of ``wandb``; nothing is loaded before the first row.

    Raises:
        MissingExtra: one that is asked for is not installed.
    """
    sinks: list[Sink] = []
    installed = importlib.util.find_spec("tensorboard") is not None
    if tensorboard is True and not installed:
        raise MissingExtra("run.tensorboard = true", "tensorboard")
    if tensorboard is True or (tensorboard == "auto" and installed):
        sinks.append(TensorBoard(root / "tensorboard"))
    if wandb:
        if importlib.util.find_spec("wandb") is None:
            raise MissingExtra(f"run.wandb = '{wandb}'", "wandb")
        sinks.append(WeightsAndBiases(root, wandb, config))
    return tuple(sinks)


class TensorBoard:
    """Event files, one directory a stage: ``tensorboard --logdir RUN/tensorboard``."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._writers: dict[str, Any] = {}
        self._purge: dict[str, int] = {}

    def write(self, row: Row) -> None:
        stage = row["stage"]
        if stage not in self._writers:
            from torch.utils.tensorboard import SummaryWriter

            self._writers[stage] = SummaryWriter(str(self._directory / stage), purge_step=self._purge.pop(stage, None))
        writer = self._writers[stage]
        for name, value in _numbers(row).items():
            writer.add_scalar(name, value, row["step"], walltime=row["time"])
        if "alarm" in row:
            writer.add_text(f"alarm/{row['alarm']}", f"{row['problem']}. {row['cure']}", row["step"], walltime=row["time"])
        writer.flush()  # rows are seconds apart, and a killed run should show its last one

    def rewind(self, stage: str, step: int) -> None:
        if stage in self._writers:
            self._writers.pop(stage).close()
        # Read by TensorBoard itself: it hides whatever earlier files of the directory say of later steps.
        self._purge[stage] = step + 1


class WeightsAndBiases:
    """A run of a W&B project, the same one when training is resumed. Rows that a resumed run writes again overlay the old ones."""

    def __init__(self, root: Path, project: str, config: dict[str, Any]):
        self._root = root
        self._project = project
        self._config = config
        self._run: Any = None
        self._stages: set[str] = set()

    def write(self, row: Row) -> None:
        if self._run is None:
            self._run = self._start()
        stage = row["stage"]
        if stage not in self._stages:
            self._stages.add(stage)
            self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
        self._run.log({f"{stage}/step": row["step"], **{f"{stage}/{name}": value for name, value in _numbers(row).items()}})
        if "alarm" in row:
            self._run.alert(title=f"{stage}: {row['alarm']}", text=f"step {row['step']}: {row['problem']}. {row['cure']}")

    def rewind(self, stage: str, step: int) -> None:
        """Nothing is taken back there."""

    def _start(self) -> Any:
        import wandb

        mark = self._root / "wandb.json"
        if not mark.exists():
            write_json(mark, {"id": secrets.token_hex(6)})
        known = json_value(mark.read_text("utf-8"))["id"]
        try:
            return wandb.init(
                project=self._project, name=self._root.resolve().name, id=known, resume="allow", dir=str(self._root), config=self._config
            )
        except wandb.Error as error:
            cure = "Log in (wandb login), set WANDB_MODE=offline, or leave run.wandb empty."
            raise RunError(f"W&B refuses the project '{self._project}': {error}", path=self._root, cure=cure) from error


def _numbers(row: Row) -> dict[str, float]:
    others = {name: value for name, value in row.items() if name not in ("stage", "step", "time")}
    return {name: value for name, value in others.items() if isinstance(value, int | float) and not isinstance(value, bool)}
