"""What to try when a run goes wrong: the table of diagnoses; what this run's own numbers show is marked."""

from typing import Any

from realm.diagnoses import Diagnosis, attainable_share, diagnoses
from realm.report.chart import short
from realm.report.markup import Html, tag
from realm.report.read import RunRecord, number


def alarms_section(run: RunRecord) -> Html | None:
    """The alarms that the run raised, as they were said."""
    if not run.alarms:
        return None
    shown = [
        _entry(str(row.get("alarm")), f"step {short(number(row.get('step')))}", row.get("problem", ""), row.get("cure", ""), seen=True)
        for row in run.alarms
    ]
    return tag("section", tag("h2", "Alarms"), tag("ul", *shown, class_="advice"))


def advice(run: RunRecord) -> Html:
    """The table, the troubles of this run first."""
    rung = {str(row.get("alarm")) for row in run.alarms}
    judged = [(d, d.name in rung or shown_at_the_end(d, run)) for d in diagnoses(attainable=_attainable(run))]
    items = [
        _entry(d.sign, "seen in this run" if seen else None, f"{d.problem[0].upper()}{d.problem[1:]}.", d.cure, seen=seen)
        for d, seen in sorted(judged, key=lambda pair: not pair[1])
    ]
    return tag("section", tag("h2", "What to try when it goes wrong"), tag("ul", *items, class_="advice"))


def shown_at_the_end(diagnosis: Diagnosis, run: RunRecord) -> bool:
    """Whether the last rows that have the number show the trouble, as many as an alarm needs; all of them if there are fewer."""
    stage = run.stage(diagnosis.stage)
    points = stage.columns.get(diagnosis.column, [])
    if isinstance(fact := stage.facts.get(diagnosis.column), bool):  # an outcome of the stage instead of a row
        points = [(0, float(fact))]
    if not points:
        return False
    highest = max(value for _, value in points) if diagnosis.from_highest else 0.0
    steps = number(run.config.get(diagnosis.stage, {}).get("steps")) or points[-1][0] or 1
    return all(diagnosis.shows(value - highest, step / steps) for step, value in points[-diagnosis.rows :])


def _attainable(run: RunRecord) -> float:
    """The share of distinct documents that the run's corpus allows; 1 where its size is not known."""
    section = run.config.get("pretrain", {})
    batch, candidates = number(section.get("batch")), number(section.get("candidates"))
    if run.corpus is None or batch is None or candidates is None:
        return 1.0
    return attainable_share(run.corpus.blocks, batch, candidates)


def _entry(heading: str, badge: str | None, problem: Any, cure: Any, *, seen: bool) -> Html:
    marked = tag("span", badge, class_="badge") if badge else None
    shown = tag("h3", heading, marked), tag("p", problem), tag("p", tag("b", "Try: "), cure)
    return tag("li", *shown, class_="seen" if seen else None)
