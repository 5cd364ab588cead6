"""Rows of ``metrics.jsonl`` mirrored for TensorBoard, which ``wandb sync`` reads, too. Nothing is read back from there."""

import importlib.util
from pathlib import Path
from typing import Any

from realm.errors import MissingExtra
from realm.storage.metrics import Row, Sink


def open_sinks(root: Path, *, tensorboard: bool | str) -> tuple[Sink, ...]:
    """Return the mirrors that are wanted ("auto": where TensorBoard is installed). Raises MissingExtra: it is wanted and not installed."""
    installed = importlib.util.find_spec("tensorboard") is not None
    if tensorboard is True and not installed:
        raise MissingExtra("run.tensorboard = true", "tensorboard")
    return (TensorBoard(root / "tensorboard"),) if installed and tensorboard else ()


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


def _numbers(row: Row) -> dict[str, float]:
    others = {name: value for name, value in row.items() if name not in ("stage", "step", "time")}
    return {name: value for name, value in others.items() if isinstance(value, int | float) and not isinstance(value, bool)}
