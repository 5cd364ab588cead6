"""The table of an ablation: mean and spread of every measure of every row, as text, JSON, CSV and a page with a plot."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from realm.report.chart import short
from realm.report.markup import WORDS, Html, aligned, csv_text, document, table, tag
from realm.storage.files import write_atomic, write_json

Finished = dict[str, Any]
"""One finished row and seed: "row", "seed", "em_interval" and a number or None for each of MEASURES."""

MEASURES = WORDS["ablation"]
COUNTS = ("tokens", "seconds")
PLOTTED = WORDS["drawn"]


def ablation_summary(titles: Mapping[str, str], seeds: Sequence[int], runs: Sequence[Finished]) -> dict[str, Any]:
    """Mean and spread over the seeds that are finished.

    Args:
        titles: of every row asked for, by its name, in order.
        seeds: asked for.
        runs: what is finished.

    Returns:
        {"rows": [{"row", "title", "seeds", "measures": {name: {"mean", "sd", "min", "max"} or None}, "em_interval", "runs"}],
        "waiting": [{"row", "seed"}]}; sd is the sample's, None for one seed.
    """
    rows, waiting = [], []
    for name, title in titles.items():
        mine = sorted((run for run in runs if run["row"] == name), key=lambda run: run["seed"])
        done = [run["seed"] for run in mine]
        waiting += [{"row": name, "seed": seed} for seed in seeds if seed not in done]
        measures = {measure: _spread([run[measure] for run in mine if run.get(measure) is not None]) for measure in MEASURES}
        intervals = [run["em_interval"] for run in mine if run.get("em_interval")]
        widest = [min(low for low, _ in intervals), max(high for _, high in intervals)] if intervals else None
        rows.append({"row": name, "title": title, "seeds": done, "measures": measures, "em_interval": widest, "runs": mine})
    return {"rows": rows, "waiting": waiting}


def _spread(values: Sequence[float]) -> dict[str, float | None] | None:
    if not values:
        return None
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": sd, "min": min(values), "max": max(values)}


def write_ablation(root: Path, summary: Mapping[str, Any]) -> None:
    """Write ``ablation.txt``, ``.json``, ``.csv`` and ``.html`` into ``root``."""
    write_json(root / "ablation.json", summary)
    write_atomic(root / "ablation.txt", ablation_text(summary))
    write_atomic(root / "ablation.csv", ablation_csv(summary))
    write_atomic(
        root / "ablation.html",
        ablation_page(root.resolve().name, _head(summary), _cells(summary), WORDS["about"]["ablation"], _plotted(summary)),
    )


def ablation_text(summary: Mapping[str, Any]) -> str:
    """The table in columns, what its headings mean, and what is still waiting."""
    first, *others = aligned([_head(summary), *_cells(summary)])
    waiting = ", ".join(f"{one['row']} (seed {one['seed']})" for one in summary["waiting"])
    unfinished = [f"\nNot finished: {waiting}"] if waiting else []
    return "\n".join([first, "-" * len(first), *others, "", WORDS["about"]["ablation"], *unfinished]) + "\n"


def ablation_csv(summary: Mapping[str, Any]) -> str:
    """One line a row: mean, standard deviation, least and greatest value of every measure; empty where there is none."""
    statistic = ("mean", "sd", "min", "max")
    names = [f"{measure}_{one}" for measure in MEASURES for one in statistic]
    lines: list[list[Any]] = [["row", "title", "seeds", *names, "em_low", "em_high"]]
    for row in summary["rows"]:
        values = [(row["measures"][measure] or {}).get(one) for measure in MEASURES for one in statistic]
        lines.append([row["row"], row["title"], len(row["seeds"]), *values, *(row["em_interval"] or (None, None))])
    return csv_text(lines)


def _shown_measures(summary: Mapping[str, Any]) -> list[str]:
    """Measures that some row has."""
    return [measure for measure in MEASURES if any(row["measures"][measure] for row in summary["rows"])]


def _head(summary: Mapping[str, Any]) -> list[str]:
    return ["row", "seeds", *(MEASURES[measure] for measure in _shown_measures(summary))]


def _cells(summary: Mapping[str, Any]) -> list[list[str]]:
    measures = _shown_measures(summary)
    return [[row["title"], str(len(row["seeds"])), *(_cell(row, measure) for measure in measures)] for row in summary["rows"]]


def _cell(row: Mapping[str, Any], measure: str) -> str:
    values = row["measures"][measure]
    if values is None:
        return "–"
    if measure in COUNTS:
        return f"{values['mean']:,.0f}"
    spread = "" if values["sd"] is None else f" ±{values['sd']:.3f}"
    interval = row["em_interval"] if measure == "em" else None
    return f"{values['mean']:.3f}{spread}" + ("" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]")


def _plotted(summary: Mapping[str, Any]) -> dict[str, list[tuple[str, list[float]]]]:
    """The values of every seed, by plot and row: recall (by gold document where questions name one) and EM."""
    shown = _shown_measures(summary)
    left_out = "answer_recall_5" if "gold_recall_5" in shown else None
    measured = [name for name in PLOTTED if name in shown and name != left_out]
    return {
        PLOTTED[name]: [(row["title"], [run[name] for run in row["runs"] if run.get(name) is not None]) for row in summary["rows"]]
        for name in measured
    }


WIDTH, LEFT, RIGHT, STEP, TOP, BOTTOM = 720, 270, 24, 24, 12, 30
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)

Plot = Sequence[tuple[str, Sequence[float]]]


def ablation_page(name: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str, plots: Mapping[str, Plot]) -> str:
    """The page as text: one file that needs nothing else.

    Args:
        name: of the ablation.
        head: headings of the table.
        rows: its cells; the first of a row is its heading.
        note: what the headings mean.
        plots: for each title rows with a fraction for each seed.
    """
    shown = table(list(head), [list(row) for row in rows], "Mean over seeds")
    figures = [tag("section", tag("h2", title), dot_plot(title, plot)) for title, plot in plots.items()]
    results = tag("section", tag("h2", "Results"), shown, tag("p", note, class_="note"), class_="results")
    main = tag("main", tag("header", tag("p", "REALM ablation", class_="kicker"), tag("h1", name)), results, *figures)
    return document(f"{name} – REALM ablation", main)


def dot_plot(title: str, rows: Plot) -> Html:
    """An SVG with a line for each row: a dot for each value, a bar at their mean. Values are fractions on an axis from 0 to 1."""
    height = TOP + STEP * len(rows) + BOTTOM
    lines = [_row(i, name, values) for i, (name, values) in enumerate(rows)]
    last = ", ".join(f"{name} {short(statistics.fmean(values))}" for name, values in rows if values)
    size = {"viewBox": f"0 0 {WIDTH} {height}"}
    return tag("svg", tag("title", title), _grid(height), *lines, **size, role="img", aria_label=f"{title}: {last}")


def _grid(height: int) -> Html:
    parts: list[Html] = []
    for tick in TICKS:
        x = _x(tick)
        parts.append(tag("line", class_="grid", x1=x, x2=x, y1=TOP, y2=height - BOTTOM))
        parts.append(tag("text", short(tick), class_="tick", x=x, y=height - BOTTOM + 16, text_anchor="middle"))
    return tag("g", *parts, aria_hidden="true")


def _row(number: int, name: str, values: Sequence[float]) -> Html:
    y = TOP + STEP * (number + 0.5)
    label = tag("text", name, class_="label", x=LEFT - 12, y=y, dy="0.32em", text_anchor="end")
    if not values:
        return tag("g", label, class_="series")
    mean = statistics.fmean(values)
    bar = tag("line", class_="line", x1=_x(mean), x2=_x(mean), y1=y - 8, y2=y + 8, stroke="currentColor")
    dots = [tag("circle", tag("title", f"{name}: {short(value)}"), class_="end", cx=_x(value), cy=y, r=3.5) for value in values]
    return tag("g", label, bar, *dots, class_="series")


def _x(value: float) -> str:
    return f"{LEFT + value * (WIDTH - LEFT - RIGHT):.1f}"
