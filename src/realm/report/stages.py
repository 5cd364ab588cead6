"""One section a stage: its curves, grouped by what they tell, and the numbers behind them as a table."""

from realm.report.markup import Html, Series, join, line_chart, short, table, tag, thinned
from realm.report.pictures import STAGE_TEXTS, Picture, ordered_columns, pictures
from realm.report.read import RunRecord, StageRecord, number

MOST_ROWS = 60


def stages_section(run: RunRecord) -> Html | None:
    """All stages that left numbers or facts."""
    shown = [_stage(stage) for stage in run.stages if stage.columns or stage.facts]
    return tag("section", tag("h2", "Training"), *shown) if shown else None


def _stage(stage: StageRecord) -> Html:
    known = STAGE_TEXTS.get(stage.name, {"title": stage.name, "about": None})
    drawn = pictures(stage)
    telling = [_figure(stage, picture) for picture in drawn if not picture.machinery]
    machinery = [_figure(stage, picture) for picture in drawn if picture.machinery]
    parts = [
        tag("h3", known["title"]),
        tag("p", known["about"], class_="about") if known["about"] else None,
        _outcome(stage),
        _gate(stage),
        tag("div", *telling, class_="charts") if telling else None,
        tag("details", tag("summary", "Learning rate, gradients and other internals"), tag("div", *machinery, class_="charts"))
        if machinery
        else None,
        _numbers(stage) if drawn else None,
    ]
    return tag("article", *parts)


def _outcome(stage: StageRecord) -> Html | None:
    hidden = ("format", "stage", "fingerprint")
    facts = [(k, v) for k, v in stage.facts.items() if k not in hidden and isinstance(v, bool | int | float | str)]
    if not facts:
        return None
    words = [f"{k.replace('_', ' ')} {_fact(v)}" for k, v in facts]
    return tag("p", join(*(tag("span", w) for w in words)), class_="outcome")


def _gate(stage: StageRecord) -> Html | None:
    """Each network before the stage and after it, and which of the two is published; None if not measured."""
    verdicts = stage.facts.get("gate")
    if not isinstance(verdicts, dict):
        return None
    rows = [
        [name, found.get("measure"), short(number(found.get("before"))), short(number(found.get("after"))), found.get("kept")]
        for name, found in verdicts.items()
        if isinstance(found, dict)
    ]
    return table(["", "Measured by", "Before", "After", "Published"], rows, "What this stage made better, and what went back")


def _fact(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else short(value)


def _figure(stage: StageRecord, picture: Picture) -> Html:
    series = [Series(label, stage.columns[column]) for label, column in picture.lines]
    chart = line_chart(picture.caption, series, unit=picture.unit, zero=picture.zero)
    shown = [
        tag(
            "span",
            tag("i", "", class_=f"swatch s{i}") if len(series) > 1 else None,
            f"{s.name} " if len(series) > 1 else "",
            short(s.points[-1][1]),
        )
        for i, s in enumerate(series)
    ]
    return tag("figure", tag("figcaption", tag("span", picture.caption), tag("span", *shown, class_="last")), chart)


def _numbers(stage: StageRecord) -> Html:
    """The curves as a table, for reading and for screen readers; long runs are thinned, the last row always stands."""
    names = ordered_columns(stage)
    values: dict[float, dict[str, float]] = {}
    for name in names:
        for step, value in stage.columns[name]:
            values.setdefault(step, {})[name] = value
    steps = sorted(values)
    every = max(1, -(-len(steps) // MOST_ROWS))
    rows = [[short(step), *(short(values[step].get(name)) for name in names)] for step in thinned(steps, MOST_ROWS)]
    caption = "Numbers behind the curves" + (f" (every {every}th row)" if every > 1 else "")
    return tag("details", tag("summary", caption), table(["step", *names], rows, f"{stage.name}: {caption}"))
