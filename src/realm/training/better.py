"""Training never makes a network worse: of what a stage began with and what it learnt, the better is published.

``publish = "better"`` asks for it. Each network is judged by its own measure, the retriever first, since the reader reads what it finds.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Verdict:
    """What one measure says of a network before a stage and after it; higher is better.

    Args:
        measure: what was measured, in words for the report.
        before: of the weights that the stage began with.
        after: of those that it learnt.
    """

    measure: str
    before: float
    after: float

    @property
    def improved(self) -> bool:
        """Whether what was learnt is kept: it is, unless it is worse. If the measure is NaN, nothing is kept."""
        return self.after >= self.before

    def facts(self) -> dict[str, Any]:
        """For ``stage.json`` and the report."""
        return {**asdict(self), "kept": "after" if self.improved else "before"}


def better_of(network: nn.Module, start: Mapping[str, Tensor], name: str, measure: Callable[[], float]) -> Verdict:
    """Leave a network with the better of two weights.

    Args:
        network: as it was trained.
        start: its ``state_dict`` at the stage's beginning.
        name: of the measure, in words.
        measure: of the network as it is when it is called; higher is better. Draws nothing.
    """
    learnt = {key: value.clone() for key, value in network.state_dict().items()}
    after = measure()
    network.load_state_dict(start)
    verdict = Verdict(name, measure(), after)
    if verdict.improved:
        network.load_state_dict(learnt)
    return verdict
