"""The interface between a stage and the loop, and the loop's options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from realm.training.order import WHOLE, Share

Metrics = dict[str, float]
Scalar = float | Tensor
"""A number, or a tensor of one that may still be on its way on an accelerator: the loop reads it when a row is logged."""
Measured = dict[str, Scalar]
Rates = Mapping[str, float]
ALIKE: Rates = MappingProxyType({})
"""Every parameter learns at the one rate."""


@dataclass(frozen=True)
class StepResult:
    """Result of one share of a step's batch.

    ``loss``: scalar, summed over what the stage averages over, ``weight`` its number (masked wordpieces, questions); ``valid``: examples
    with something to learn; ``metrics``: averaged over shares by weight."""

    loss: Tensor
    valid: Scalar
    metrics: Measured = field(default_factory=dict)
    weight: Scalar = 1.0

    @property
    def mean(self) -> Tensor:
        """The loss of this share on its own."""
        return self.loss / torch.as_tensor(self.weight, dtype=self.loss.dtype, device=self.loss.device).clamp(min=1e-12)


class Task:
    """A stage for :func:`realm.training.loop.loop.fit`: ``step`` and what else it overrides; ``model`` is learnt and checkpointed."""

    name: str
    model: Any

    best_by: str = ""
    """The number among those of :meth:`between` of which the highest value marks the best weights; they are kept besides the newest."""

    rates: Rates = ALIKE
    """Factors on the learning rate of the model's parts by their names; the others learn at the one rate."""

    kept_states: Callable[[], list[dict[str, Any]]] = list
    """:meth:`state` of each checkpoint that is kept; set by :func:`realm.training.loop.loop.fit`."""

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        """The summed loss of a share of step ``step`` (from 0); a pure function of the weights, the task's state and these two."""
        raise NotImplementedError

    def between(self, step: int) -> Metrics | None:
        """Called before step ``step``, and once after the last, on every rank: refresh, evaluate. What the first rank's gives is logged."""
        return None

    def row(self, step: int, steps: int) -> Metrics:
        """Further numbers of a log row, besides the means of its window."""
        return {}

    def phase(self, step: int, steps: int) -> tuple[int, int]:
        """The steps [begin, end) around ``step``, of ``steps``, in which the same parts learn: the learning rate rises and falls once."""
        return 0, steps

    def finished(self, step: int) -> bool:
        """Tell, on the first rank, whether the stage may end before its last step."""
        return False

    def state(self) -> dict[str, Any]:
        """JSON that a checkpoint carries for the task; asked on the first rank."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave, on every rank."""


@dataclass(frozen=True)
class LoopOptions:
    """Options of a stage's training.

    ``lr`` is the peak, ``warmup`` steps of linear warm-up, ``clip`` the global gradient norm, ``accumulate`` parts of a rank's share,
    ``log_every`` and ``checkpoint_every`` (0: none) steps between rows and checkpoints. ``deferred``: read no number of a step before its
    row is logged. ``patience``: windows without a valid example, or non-finite steps in a row, before stopping."""

    steps: int
    lr: float
    warmup: int
    optimizer: str = "adamw"
    clip: float = 1.0
    seed: int = 0
    accumulate: int = 1
    log_every: int = 20
    checkpoint_every: int = 100
    bf16: bool = False
    device: str = "cpu"
    deferred: bool = False
    patience: int = 3
