"""HTML and SVG elements. Text is escaped by construction: only what :func:`tag` made passes as markup.

Line charts as inline SVG; tables as plain text."""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

WORDS: dict[str, dict[str, str]] = tomllib.loads((files("realm.report") / "words.toml").read_text("utf-8"))
"""Words of pages and tables, by subject."""
EMPTY_ELEMENTS = ("br", "meta", "circle", "line", "path", "rect", "col")


class Html(str):
    """Markup that is safe to put into a page as it is."""


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """One element; children are :class:`Html` as it is, None left out, anything else as escaped text.

    ``_`` in the names of attributes stands for ``-`` (``class_`` for class); None leaves one out, values are escaped."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items() if value is not None
    )
    if name in EMPTY_ELEMENTS and not children:
        return Html(f"<{name}{shown}>" if name in ("br", "meta", "col") else f"<{name}{shown}/>")
    return Html(f"<{name}{shown}>{join(*children)}</{name}>")


def join(*children: Any) -> Html:
    """Children side by side, escaped as in :func:`tag`."""
    return Html("".join(child if isinstance(child, Html) else escape(str(child)) for child in children if child is not None))


def table(head: list[Any], rows: list[list[Any]], caption: str, *, above: Html | None = None) -> Html:
    """A table that scrolls on a narrow screen; a row's first cell is its heading unless empty in ``head``; ``above``: group headings."""
    heading = tag("tr", *(tag("td") if cell == "" else tag("th", cell, scope="col") for cell in head))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    inner = tag("table", tag("caption", caption), tag("thead", above, heading), tag("tbody", *body))
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def document(title: str, main: Html) -> str:
    """A whole HTML page as text: one file that fetches nothing and runs nothing, whatever text it shows."""
    style = Html((files("realm.report") / "style.css").read_text("utf-8"))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        tag("title", title),
        tag("style", style),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', main), lang='en')}\n"


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Cells in columns: the first one to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]


WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 36
MOST_POINTS = 300
MOST_HOVERS = 80

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One line: its name and (step, value) in order of the steps."""

    name: str
    points: list[Point]


@dataclass(frozen=True)
class _Axis:
    """Places of values on one axis of the picture."""

    low: float
    high: float
    ticks: list[float]
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def line_chart(title: str, series: list[Series], *, unit: bool = False, zero: bool = False, across: str = "step") -> Html:
    """An SVG of one or more lines over ``across``; ``unit``: an axis from 0 to 1; ``zero``: a line at 0."""
    drawn = [Series(s.name, thinned(s.points, MOST_POINTS)) for s in series]
    steps = [x for s in drawn for x, _ in s.points]
    values = [y for s in drawn for _, y in s.points]
    x_axis = _axis(min(0.0, *steps), max(steps), 5, LEFT, WIDTH - RIGHT)
    low, high = (0.0, 1.0) if unit else (min([*values, 0.0] if zero else values), max([*values, 0.0] if zero else values))
    up = _axis(low, high, 4, HEIGHT - BOTTOM, TOP, round_out=True)
    baseline = [tag("line", class_="zero", x1=LEFT, x2=WIDTH - RIGHT, y1=_px(up.at(0)), y2=_px(up.at(0)))] if zero else []
    last = ", ".join(f"{s.name} ends at {short(s.points[-1][1])}" for s in drawn)
    description = tag("desc", f"{len(drawn)} line{'s' * (len(drawn) > 1)} over {across}s {short(steps[0])} to {short(max(steps))}: {last}.")
    lines = [_line(s, i, x_axis, up, across) for i, s in enumerate(drawn)]
    return tag(
        "svg",
        tag("title", title),
        description,
        _grid(x_axis, up, across),
        *baseline,
        *lines,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title}: {last}",
    )


def _grid(across: _Axis, up: _Axis, label: str) -> Html:
    parts: list[Html] = []
    for tick in up.ticks:
        y = _px(up.at(tick))
        parts.append(tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
        parts.append(tag("text", short(tick), class_="tick", x=LEFT - 6, y=y, dy="0.32em", text_anchor="end"))
    for tick in across.ticks:
        x = across.at(tick)
        anchor = "end" if x > WIDTH - RIGHT - 12 else "middle"
        parts.append(tag("text", short(tick), class_="tick", x=_px(x), y=HEIGHT - BOTTOM + 15, text_anchor=anchor))
    parts.append(tag("line", class_="axis", x1=LEFT, x2=WIDTH - RIGHT, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM))
    parts.append(tag("text", label, class_="label", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 5, text_anchor="middle"))
    return tag("g", *parts, aria_hidden="true")


def _line(series: Series, number: int, across: _Axis, up: _Axis, label: str) -> Html:
    """The line, a dot at its end, and unseen discs whose title shows a value under the pointer."""
    places = [(_px(across.at(x)), _px(up.at(y))) for x, y in series.points]
    path = "M" + " L".join(f"{x} {y}" for x, y in places)
    hovers = [
        tag("circle", tag("title", f"{series.name} at {label} {short(x)}: {short(y)}"), class_="hover", cx=px, cy=py, r=7)
        for (x, y), (px, py) in thinned(list(zip(series.points, places, strict=True)), MOST_HOVERS)
    ]
    end = tag("circle", class_="end", cx=places[-1][0], cy=places[-1][1], r=3)
    return tag("g", tag("path", class_="line", d=path) if len(places) > 1 else None, end, join(*hovers), class_=f"series s{number % 3}")


def _axis(low: float, high: float, wanted: int, start: float, end: float, *, round_out: bool = False) -> _Axis:
    """An axis with about ``wanted`` round ticks; ``round_out`` widens it to whole ticks."""
    if high - low <= 1e-12 * max(1.0, abs(high)):
        pad = abs(high) * 0.5 or 0.5
        low, high, round_out = low - pad, high + pad, True
    raw = (high - low) / wanted
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if round_out:
        low, high = first * step, last * step
    ticks = [tick for i in range(first, last + 1) if low - 1e-9 * step <= (tick := i * step) <= high + 1e-9 * step]
    return _Axis(low, high, ticks, start, end)


def thinned(points: list, most: int) -> list:
    """``most`` of the points at most, evenly, and the last one always."""
    every = max(1, math.ceil(len(points) / most))
    kept = points[::every]
    return kept if (len(points) - 1) % every == 0 else [*kept, points[-1]]


def _px(value: float) -> str:
    return f"{value:.1f}"


def short(value: float | None) -> str:
    """A number as people read it: three significant digits or three decimals, thousands with commas, a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 1e6:
        return f"{value:.3g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 0.001:
        digits, exponent = f"{value:.1e}".split("e")
        return f"{digits} · 10{str(int(exponent)).translate(_RAISED)}".replace("-", "−").replace(".0 ", " ")
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"
    return text.rstrip("0").rstrip(".").replace("-", "−")
