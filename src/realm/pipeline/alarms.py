"""Alarms: what goes wrong in training is said while it runs and written into metrics.jsonl, not found in the report the day after."""

from collections.abc import Callable
from dataclasses import dataclass

from realm.config import Recipe
from realm.train.loop import Metrics
from realm.train.metrics import MetricsLog, rounded

LATE = 0.25
"""Share of the stage before which a utility around 0 is the ordinary start."""
ROWS = 3
"""Rows in a row that must show it: one row is the mean of 20 steps and may be luck."""
FEW_DISTINCT = 0.25
"""Share of distinct documents among those that could be distinct; a healthy retriever stays far above."""
LOST_RECALL = 0.05
"""Recall on dev that fine-tuning may cost: 10 of 200 questions may be luck."""
LOST_UTILITY = 0.05
"""Nats of marginal utility that held-out sentences may lose since it was highest."""

Report = Callable[[str, int, int, Metrics], None]


@dataclass(frozen=True)
class Alarm:
    """A trouble that has a name.

    Args:
        name: what the row in metrics.jsonl calls it.
        column: the number that shows it; rows without it say nothing.
        shows: (value, step, steps) -> whether a row shows the trouble.
        problem: what is wrong; {value} stands for the number.
        cure: what to try.
        rows: so many rows in a row must show it.
        stage: whose rows.
        from_highest: the number is told as its change since it was highest.
    """

    name: str
    column: str
    shows: Callable[[float, int, int], bool]
    problem: str
    cure: str
    rows: int = ROWS
    stage: str = "pretrain"
    from_highest: bool = False


def usual_alarms(*, attainable: float = 1.0, staleness_limit: int = 0) -> tuple[Alarm, ...]:
    """The alarms of pre-training and of fine-tuning.

    Args:
        attainable: the largest share of distinct documents that the corpus allows in one batch.
        staleness_limit: steps above which an index is too old; 0: none is.
    """
    return (
        Alarm(
            "utility",
            "marginal_utility",
            lambda value, step, steps: value <= 0 and step > LATE * steps,
            "marginal utility {value:.3f}: documents do not help to fill the masks, so the retriever learns nothing",
            "See single_block_span_share (realm corpus info), and the warm stage's test.",
        ),
        Alarm(
            "held_out",
            "held_out_utility",
            lambda value, step, steps: value < -LOST_UTILITY,
            "marginal utility on held-out sentences has changed by {value:+.2f} nats since it was highest: documents help less and less",
            'Lower pretrain.lr or pretrain.retriever_rate, or keep the best weights: pretrain.publish = "best".',
            rows=2,
            from_highest=True,
        ),
        Alarm(
            "collapse",
            "collapsed",
            lambda value, step, steps: value > 0,
            "recall of the probe set stays below that of ICT: the retriever gets worse",
            "Lower pretrain.retriever_rate, or let the encoder learn to read for longer (warm.steps).",
            rows=1,
        ),
        Alarm(
            "distinct",
            "distinct",
            lambda value, step, steps: value < FEW_DISTINCT * attainable,
            "only {value:.0%} of the documents retrieved in a batch are distinct: the retriever is collapsing",
            "Lower pretrain.lr, or refresh more often (pretrain.refresh_every).",
        ),
        Alarm(
            "staleness",
            "staleness_highest",
            lambda value, step, steps: 0 < staleness_limit <= value,
            f"the index is {{value:.0f}} steps old, and {staleness_limit} are the limit: the trainer waits for its refresher",
            "Give the refresher more (refresher.threads, workers or devices), raise pretrain.refresh_every, or look into refresher.log.",
            rows=1,
        ),
        Alarm(
            "recall",
            "dev_recall_gain",
            lambda value, step, steps: value < -LOST_RECALL,
            "recall on dev has changed by {value:+.3f} since fine-tuning began: the retriever unlearns what it could find",
            "Lower finetune.retriever_rate, or fine-tune for fewer steps.",
            rows=1,
            stage="finetune",
        ),
    )


def alarms_of(recipe: Recipe, blocks: int) -> tuple[Alarm, ...]:
    """The alarms of a recipe on a corpus of so many blocks. An index that is meant to stay never is too old."""
    section = recipe.pretrain
    limit = 0 if section.refresh in ("frozen", "inline") else recipe.refresher.staleness_limit or 5 * section.refresh_every
    return usual_alarms(attainable=attainable_share(blocks, section.batch, section.candidates), staleness_limit=limit)


class Alarms:
    """A report callback that hands everything on and speaks up once for each trouble, again only after it had gone.

    An alarm is said and written as a row {"alarm", "problem", "cure"} of the stage. What earlier rows showed is read back from
    the log, so that a resumed run raises the alarms that an uninterrupted one raises.

    Args:
        report: gets every call.
        say: gets the alarms as one line.
        log: metrics.jsonl, where the row of each call has been written before the call.
        alarms: which.
    """

    def __init__(self, report: Report, say: Callable[[str], None], log: MetricsLog, alarms: tuple[Alarm, ...]):
        self._report = report
        self._say = say
        self._log = log
        self._alarms = alarms
        self._seen: dict[str, dict[str, int]] = {}
        self._highest: dict[str, float] = {}

    def __call__(self, stage: str, step: int, steps: int, metrics: Metrics) -> None:
        self._report(stage, step, steps, metrics)
        if stage not in self._seen:
            self._look_back(stage, steps)
        for alarm, value in self._raised(stage, step, steps, metrics):
            problem = alarm.problem.format(value=value)
            self._say(f"warning: step {step}: {problem}. {alarm.cure}")
            self._log.write(stage, step, alarm=alarm.name, problem=problem, cure=alarm.cure)

    def _look_back(self, stage: str, steps: int) -> None:
        """Count what the stage's rows before the newest one showed."""
        self._seen[stage] = {}
        earlier = [row for row in self._log.rows() if row["stage"] == stage and "alarm" not in row]
        for row in earlier[:-1]:
            self._raised(stage, row["step"], steps, row)

    def _raised(self, stage: str, step: int, steps: int, metrics: Metrics) -> list[tuple[Alarm, float]]:
        """The stage's alarms whose trouble has just lasted for their number of rows, each with the number that shows it."""
        seen, raised = self._seen[stage], []
        for alarm in self._alarms:
            if alarm.stage != stage or metrics.get(alarm.column) is None:
                continue
            value = rounded(metrics[alarm.column])  # as the log rounds: what is read back must count as it did
            if alarm.from_highest:
                highest = self._highest[alarm.name] = max(value, self._highest.get(alarm.name, value))
                value -= highest
            now = alarm.shows(value, step, steps)
            seen[alarm.name] = seen.get(alarm.name, 0) + 1 if now else 0
            if seen[alarm.name] == alarm.rows:
                raised.append((alarm, value))
        return raised


def attainable_share(blocks: int, batch: int, candidates: int) -> float:
    """The largest share of distinct documents among those that a batch retrieves."""
    return min(1.0, blocks / max(1, batch * (candidates - 1)))
