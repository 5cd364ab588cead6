"""The best weights of a stage by one of its numbers, kept besides its checkpoints: ``best-N`` directories of weights and a score.

A better one does not replace the best that a kept checkpoint knows: a run that continues from there must find it.
"""

import math
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn

from realm.decoding import json_value
from realm.errors import RunError
from realm.nn.tensor_files import save_tensors
from realm.storage.files import write_json
from realm.train.checkpoint import publish_anew
from realm.train.distributed import on_first

WEIGHTS, SCORE = "weights.safetensors", "best.json"


class BestWeights:
    """What is the best so far.

    Args:
        path: the stage's checkpoint directory.

    Attributes:
        step: finished steps behind the best weights; None before any.
    """

    def __init__(self, path: Path):
        self.path = path
        self.step: int | None = None
        self.score = -math.inf

    def offer(self, step: int, score: float, module: nn.Module) -> None:
        """Publish the weights after ``step`` finished steps if they are better than any before."""
        if not score > self.score:
            return
        with publish_anew(self.path / f"best-{step:07d}") as staging:
            save_tensors({k: v.contiguous() for k, v in module.state_dict().items()}, staging / WEIGHTS)
            write_json(staging / SCORE, {"step": step, "score": score})
        self.step, self.score = step, score

    def state(self) -> dict[str, Any] | None:
        return None if self.step is None else {"step": self.step, "score": self.score}

    def restore(self, state: dict[str, Any] | None) -> None:
        self.step, self.score = (None, -math.inf) if state is None else (state["step"], state["score"])

    def prune(self, known: list[dict[str, Any] | None]) -> None:
        """Delete all but the best and those that kept checkpoints know as the best."""
        kept = {state["step"] for state in [*known, self.state()] if state is not None}
        for directory in self.path.glob("best-[0-9]*[0-9]"):
            if int(directory.name.removeprefix("best-")) not in kept:
                shutil.rmtree(directory)


def _scored(directory: Path) -> list[Any]:
    """Step, score and weights in a directory. Raises RunError: its score is damaged."""
    file = directory / SCORE
    try:
        facts = json_value(file.read_text("utf-8"))
        return [int(facts["step"]), float(facts["score"]), str(directory / WEIGHTS)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        cure = f"Remove {directory.name} and run the same command again"
        raise RunError("the score of the best weights is damaged", path=file, cure=cure) from error


def shared_best(path: Path) -> tuple[int, float, Path] | None:
    """Step, score and weights of the best that a stage which has ended left in its checkpoint directory; None without any.

    What the first rank finds, on every rank.
    """

    def find() -> list[Any] | None:
        rows = [_scored(found) for found in path.glob("best-[0-9]*[0-9]")]
        return max(rows, key=lambda row: row[1]) if rows else None

    found = on_first(find)
    return None if found is None else (found[0], found[1], Path(found[2]))


def load_weights(weights: Path, module: nn.Module) -> None:
    """Load weights that :class:`BestWeights` wrote. Raises RunError: the file cannot be read."""
    try:
        module.load_state_dict(load_file(weights))
    except (OSError, ValueError, RuntimeError) as error:
        raise RunError(f"the best weights cannot be read: {error}", path=weights, cure='Set pretrain.publish = "last".') from error
