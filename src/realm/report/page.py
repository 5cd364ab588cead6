"""The page: what the run is, what it answers, what it reached and how surely, how each stage went, and what to try when it went wrong.

Each stage has a section: its curves, grouped by what they tell, and the numbers behind them as a table."""

import datetime
from pathlib import Path
from typing import Any

from realm.report.diagnoses import Diagnosis, attainable_share, diagnoses
from realm.report.evidence import answers_section, claims_section, explanation_section
from realm.report.markup import WORDS, Html, Series, document, join, line_chart, short, table, tag, thinned
from realm.report.read import STAGE_TEXTS, Picture, RunRecord, StageRecord, number, ordered_columns, pictures, read_run, row_name
from realm.storage.files import write_atomic
from realm.storage.layout import RunPaths


def write_report(paths: RunPaths) -> Path:
    """Write ``report.html`` of a run, finished or not, from its directory, and return its path.

    Missing or damaged files only make the page shorter. Raises OSError: the page cannot be written."""
    # A lone surrogate in a document must not cost the page.
    write_atomic(paths.report, render(read_run(paths)).encode("utf-8", "replace"))
    return paths.report


def render(run: RunRecord) -> str:
    """The report as one HTML page that needs no other file."""
    sections = [
        alarms_section(run),
        claims_section(run.claims),
        answers_section(run.answers),
        explanation_section(run.explanation),
        _results(run),
        confidence_section(run),
        stages_section(run),
        advice(run),
        _recipe(run),
    ]
    header = tag("header", tag("p", "REALM report", class_="kicker"), tag("h1", run.name), _tiles(run), _facts(run))
    return document(f"{run.name} – REALM report", tag("main", header, *[section for section in sections if section]))


def _tiles(run: RunRecord) -> Html | None:
    """The few numbers that people come for."""
    tuned = run.result("finetune")
    tiles: list[tuple[str, str, str]] = []
    if (em := number(tuned.get("em"))) is not None:
        interval = _interval(tuned.get("em_interval"))
        tiles.append(("Exact match", percent(em), f"95 % interval {interval} %" if interval else "share of questions answered exactly"))
    before, after = (_recall(run.result(name), "recall_gold", "5") for name in ("ict", "pretrain"))
    if after is not None:
        note = (
            "questions whose document is among the first 5" if before is None else f"after pre-training; {percent(before)} after ICT alone"
        )
        tiles.append(("Gold recall@5", percent(after), note))
    if (utility := run.stage("pretrain").last("marginal_utility")) is not None:
        shown = f"+{short(utility)}" if utility > 0 else short(utility)
        tiles.append(("Marginal utility", shown, "what documents add to log p(y|x); above 0 they help"))
    if not tiles:
        return None
    boxes = [tag("div", tag("dt", name), tag("dd", value, class_="value"), tag("dd", note, class_="note")) for name, value, note in tiles]
    return tag("dl", *boxes, class_="tiles")


def _facts(run: RunRecord) -> Html:
    model, seed = run.config.get("model", {}), run.config.get("run", {}).get("seed")
    facts: list[tuple[str, Any]] = []
    if run.corpus is not None:
        facts.append(("Corpus", f"{run.corpus.documents:,} documents, {run.corpus.blocks:,} blocks, {run.corpus.vocab_size:,} wordpieces"))
    if model:
        layers, hidden = model.get("layers"), model.get("hidden")
        facts.append(("Model", model.get("body") or f"{model.get('preset')}: {layers} layers × {hidden}, from nothing"))
    if seed is not None:
        facts.append(("Seed", seed))
    trained = [s for s in run.stages if s.columns]
    if trained:
        facts.append(("Stages", ", ".join(f"{s.name} ({duration(s.seconds)})" if s.seconds else s.name for s in trained)))
    if run.finished is not None:
        facts.append(("Last step", f"{datetime.datetime.fromtimestamp(run.finished, datetime.UTC):%Y-%m-%d %H:%M} UTC"))
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts")


def _results(run: RunRecord) -> Html | None:
    """One row per stage; empty columns are left out."""
    if not run.results:
        return None
    recalls = [found for r in run.results for key in ("recall", "recall_gold") if isinstance(found := r.get(key), dict)]
    depths = sorted({depth for recall in recalls for depth in recall if str(depth).isdecimal()}, key=int)
    groups: list[tuple[str, list[tuple[str, list[str]]]]] = [
        ("Gold recall@", [(d, [_hundredths(_recall(r, "recall_gold", d)) for r in run.results]) for d in depths]),
        ("Recall by answer@", [(d, [_hundredths(_recall(r, "recall", d)) for r in run.results]) for d in depths]),
    ]
    answer = [(label, [_score(r, key) for r in run.results]) for label, key in (("EM", "em"), ("F1", "f1"))]
    answer.append(("Questions", [short(number(r.get("n"))) for r in run.results]))
    answer.append(("Time", [duration(number(r.get("seconds"))) for r in run.results]))
    groups.append(("Answers", answer))
    kept = [(title, [(label, cells) for label, cells in columns if any(cell != "–" for cell in cells)]) for title, columns in groups]
    kept = [(title, columns) for title, columns in kept if columns]
    if not kept:
        return None
    above = tag("tr", tag("td", ""), *(tag("th", title, colspan=len(columns), scope="colgroup") for title, columns in kept))
    head = ["", *(label for _, columns in kept for label, _ in columns)]
    rows = [[row_name(r["name"]), *(cells[i] for _, columns in kept for _, cells in columns)] for i, r in enumerate(run.results)]
    return tag(
        "section",
        tag("h2", "Results"),
        table(head, rows, "Every stage; rates in percent", above=above),
        tag("p", WORDS["about"]["results"], class_="note"),
        class_="results",
    )


def _score(result: dict[str, Any], key: str) -> Any:
    """A rate, with its interval below where there is one."""
    value, interval = number(result.get(key)), _interval(result.get(f"{key}_interval"))
    shown = _hundredths(value)
    return shown if value is None or not interval else join(shown, tag("span", interval, class_="interval"))


def _recall(result: dict[str, Any], key: str, depth: str) -> float | None:
    values = result.get(key)
    return number(values.get(depth)) if isinstance(values, dict) else None


def _interval(value: Any) -> str | None:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return None
    low, high = number(value[0]), number(value[1])
    return None if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f}"


def _recipe(run: RunRecord) -> Html | None:
    rows = [[f"{section}.{key}", str(value)] for section, values in run.config.items() for key, value in values.items()]
    if not rows:
        return None
    shown = table(["Key", "Value"], rows, "The resolved recipe of this run (config.toml)")
    return tag("section", tag("h2", "Recipe"), tag("details", tag("summary", f"{len(rows)} settings"), shown), class_="plain")


def percent(rate: float) -> str:
    """A rate 0..1 as people read it."""
    return f"{100 * rate:.1f} %"


def _hundredths(rate: float | None) -> str:
    """A rate 0..1 in percent, for a table whose caption names the unit."""
    return "–" if rate is None else f"{100 * rate:.1f}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them: "45 s", "3 min 20 s", "2 h 5 min"; a dash if unknown."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


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
    """Tell whether the last rows that have the number show the trouble, as many as an alarm needs."""
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


SHOWN = (0.25, 0.5, 0.75, 1.0)


def confidence_section(run: RunRecord) -> Html | None:
    """Risk-coverage curve of the run's answers; None before answers were measured."""
    points = _points(run.result("finetune"))
    if not points:
        return None
    series = [Series("REALM", [(coverage, risk) for coverage, risk, _ in points])]
    chart = line_chart("Wrong answers among the most confident", series, unit=True, across="coverage")
    rows = [[f"{100 * at:.0f} % answered", f"{100 * risk:.1f} %", short(threshold)] for at, risk, threshold in points if at in SHOWN]
    error = number(run.result("finetune").get("calibration_error"))
    note = WORDS["about"]["confidence"]
    if error is not None:
        note += f" Confidence and share of right answers differ by {100 * error:.1f} points on average (expected calibration error)."
    figure = tag("figure", tag("figcaption", tag("span", "Risk by coverage")), chart)
    shown = table(["", "Wrong", "Confidence at least"], rows, "Points of the curve")
    return tag("section", tag("h2", "Confidence"), tag("div", figure, class_="charts"), shown, tag("p", note, class_="note"))


def _points(row: dict[str, Any]) -> list[tuple[float, float, float]]:
    """(coverage, risk, threshold) of a result; empty for anything else than such a curve."""
    measured = row.get("risk_coverage")
    curve = measured.get("curve") if isinstance(measured, dict) else None
    points = []
    for point in curve if isinstance(curve, list) else []:
        values = [number(value) for value in point] if isinstance(point, list) and len(point) == 3 else [None]
        if None in values:
            return []
        points.append(tuple(values))
    return points  # type: ignore[return-value]


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
