"""What a stage gives to the loop, and how it is trained; where bfloat16 pays."""

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
    """What one share of a step's batch gave.

    Attributes:
        loss: scalar, summed over whatever the stage averages over.
        valid: how many examples had something to learn from.
        metrics: numbers for the log, averaged over shares by their weight.
        weight: how much was summed (masked wordpieces, questions): the step's loss is the sum of losses by the sum of weights, so that
            it does not depend on how a batch was shared out.
    """

    loss: Tensor
    valid: Scalar
    metrics: Measured = field(default_factory=dict)
    weight: Scalar = 1.0

    @property
    def mean(self) -> Tensor:
        """The loss of this share on its own."""
        return self.loss / torch.as_tensor(self.weight, dtype=self.loss.dtype, device=self.loss.device).clamp(min=1e-12)


class Task:
    """What a stage gives to :func:`realm.training.loop.loop.fit`. A stage overrides ``step`` and what else it needs.

    ``model`` is the nn.Module whose trainable parameters are learnt and checkpointed; each stage knows its own type.
    """

    name: str
    model: Any

    best_by: str = ""
    """The number among those of :meth:`between` of which the highest value marks the best weights; they are kept besides the newest."""

    rates: Rates = ALIKE
    """Factors on the learning rate of the model's parts by their names; the others learn at the one rate."""

    kept_states: Callable[[], list[dict[str, Any]]] = list
    """What :meth:`state` gave for each checkpoint that is still kept; set by :func:`realm.training.loop.loop.fit`."""

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        """The summed loss of a share of step ``step`` (from 0); a pure function of the weights, the task's state and these two."""
        raise NotImplementedError

    def between(self, step: int) -> Metrics | None:
        """Called before step ``step``, and once after the last, on every rank: refresh, evaluate. What the first rank's gives is logged."""
        return None

    def row(self, step: int, steps: int) -> Metrics:
        """What a log row at step ``step`` of ``steps`` says besides the means of its window."""
        return {}

    def phase(self, step: int, steps: int) -> tuple[int, int]:
        """The steps [begin, end) around ``step``, of ``steps``, in which the same parts learn: the learning rate rises and falls once."""
        return 0, steps

    def finished(self, step: int) -> bool:
        """Whether the stage may end before its last step (a test passed); asked on the first rank."""
        return False

    def state(self) -> dict[str, Any]:
        """JSON that a checkpoint carries for the task; asked on the first rank."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave, on every rank."""

    def examples(self, step: int) -> list[dict[str, Any]]:
        """What a batch is made of, as JSON: ids by which a person finds the examples of a step that went wrong."""
        return []


@dataclass(frozen=True)
class LoopOptions:
    """How a stage is trained.

    Args:
        lr: peak learning rate.
        warmup: steps of linear warm-up.
        optimizer: of ``optim.OPTIMIZERS``.
        clip: global gradient norm.
        accumulate: parts in which each rank computes its share of a batch, one after the other.
        log_every: steps between metric rows.
        checkpoint_every: steps between checkpoints; 0 for none.
        bf16: autocast the networks to bfloat16 where the hardware multiplies it; elsewhere they stay in float32.
        deferred: read no number of a step before its row is logged, so that an accelerator is never waited for; a step that is not finite
            is left out by the accelerator itself. Otherwise every step's numbers are read at once.
        patience: windows of ``log_every`` steps without a valid example, or steps in a row that are not finite, before stopping.
    """

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
