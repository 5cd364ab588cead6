"""Alarms: what goes wrong in training is said while it runs and written into metrics.jsonl, not found in the report the day after."""

from collections.abc import Callable

from realm.config import Recipe
from realm.diagnoses import Diagnosis, attainable_share, diagnoses
from realm.train.loop import Metrics
from realm.train.metrics import MetricsLog, rounded

Report = Callable[[str, int, int, Metrics], None]


def alarms_of(recipe: Recipe, blocks: int) -> tuple[Diagnosis, ...]:
    """What rings in runs of a recipe on a corpus of so many blocks. An index that is meant to stay never is too old."""
    section = recipe.pretrain
    limit = 0 if section.refresh in ("frozen", "inline") else recipe.refresher.staleness_limit or 5 * section.refresh_every
    return diagnoses(attainable=attainable_share(blocks, section.batch, section.candidates), staleness_limit=limit)


class Alarms:
    """A report callback that hands everything on and speaks up once for each trouble, again only after it had gone.

    An alarm is said and written as a row {"alarm", "problem", "cure"} of the stage. What earlier rows showed is read back from
    the log, so that a resumed run raises the alarms that an uninterrupted one raises.

    Args:
        report: gets every call.
        say: gets the alarms as one line.
        log: metrics.jsonl, where the row of each call has been written before the call.
        table: what may ring; of the diagnoses in it those that are ``told``.
    """

    def __init__(self, report: Report, say: Callable[[str], None], log: MetricsLog, table: tuple[Diagnosis, ...]):
        self._report = report
        self._say = say
        self._log = log
        self._alarms = [diagnosis for diagnosis in table if diagnosis.told]
        self._seen: dict[str, dict[str, int]] = {}
        self._highest: dict[str, float] = {}

    def __call__(self, stage: str, step: int, steps: int, metrics: Metrics) -> None:
        self._report(stage, step, steps, metrics)
        if stage not in self._seen:
            self._look_back(stage, steps)
        for alarm, value in self._raised(stage, step, steps, metrics):
            problem = f"{alarm.told.format(value=value)}: {alarm.problem}"
            self._say(f"warning: step {step}: {problem}. {alarm.cure}")
            self._log.write(stage, step, alarm=alarm.name, problem=problem, cure=alarm.cure)

    def _look_back(self, stage: str, steps: int) -> None:
        """Count what the stage's rows before the newest one showed."""
        self._seen[stage] = {}
        earlier = [row for row in self._log.rows() if row["stage"] == stage and "alarm" not in row]
        for row in earlier[:-1]:
            self._raised(stage, row["step"], steps, row)

    def _raised(self, stage: str, step: int, steps: int, metrics: Metrics) -> list[tuple[Diagnosis, float]]:
        """The stage's alarms whose trouble has just lasted for their number of rows, each with the number that shows it."""
        seen, raised = self._seen[stage], []
        for alarm in self._alarms:
            if alarm.stage != stage or metrics.get(alarm.column) is None:
                continue
            value = rounded(metrics[alarm.column])  # as the log rounds: what is read back must count as it did
            if alarm.from_highest:
                highest = self._highest[alarm.name] = max(value, self._highest.get(alarm.name, value))
                value -= highest
            seen[alarm.name] = seen.get(alarm.name, 0) + 1 if alarm.shows(value, step / max(1, steps)) else 0
            if seen[alarm.name] == alarm.rows:
                raised.append((alarm, value))
        return raised
