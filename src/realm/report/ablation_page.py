"""The page of an ablation: its table, and for the main measures a dot for each seed, with the mean marked."""

import statistics
from collections.abc import Mapping, Sequence

from realm.report.chart import short
from realm.report.markup import Html, document, table, tag

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
