"""Rows of ``metrics.jsonl`` shown elsewhere, too: TensorBoard, Weights & Biases. Nothing is read back from there."""

import importlib.util
import secrets
from pathlib import Path
from typing import Any

from realm.errors import MissingExtra, RunError
from realm.storage.decoding import json_value
from realm.storage.files import write_json
from realm.storage.metrics import Row, Sink


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
