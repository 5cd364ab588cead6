"""Troubles of a run: conditions, problems and cures, of the one table in ``diagnoses.toml``.

Alarms, the report, docs/watching.md and docs/troubleshooting.md hold the same words."""

import math
import tomllib
from dataclasses import dataclass, replace
from importlib.resources import files


@dataclass(frozen=True)
class Diagnosis:
    """One thing that goes wrong. ``name`` is what the row of an alarm in metrics.jsonl calls it; the table explains the others."""

    name: str
    stage: str
    column: str
    when: str
    sign: str
    problem: str
    cure: str
    told: str = ""
    below: float = -math.inf
    at_most: float = -math.inf
    above: float = math.inf
    at_least: float = math.inf
    after: float = -math.inf
    rows: int = 1
    from_highest: bool = False

    def shows(self, value: float, done: float) -> bool:
        """Tell whether a row shows it, from the number and the share of the stage's steps that are done."""
        return done > self.after and (value < self.below or value <= self.at_most or value > self.above or value >= self.at_least)


def diagnoses(*, attainable: float = 1.0, staleness_limit: int = 0) -> tuple[Diagnosis, ...]:
    """The table in order of stages; ``attainable``: see ``attainable_share``; ``staleness_limit``: steps, 0 for no limit."""
    table = tomllib.loads((files("realm.report") / "diagnoses.toml").read_text("utf-8"))
    known = {name: Diagnosis(name, **entry) for name, entry in table.items()}
    few, old = known["distinct"], known["staleness"]
    known["distinct"] = replace(few, below=few.below * attainable)
    known["staleness"] = replace(old, at_least=staleness_limit or math.inf, told=old.told.replace("{limit}", str(staleness_limit)))
    return tuple(known.values())


def attainable_share(blocks: float, batch: float, candidates: float) -> float:
    """The largest share of distinct documents among those that a batch retrieves."""
    return min(1.0, blocks / max(1, batch * (candidates - 1)))
