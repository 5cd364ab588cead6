"""A bar chart as an SVG file of its own: one bar a row, an interval as a whisker, colours inside the file."""

from collections.abc import Sequence

from realm.report.chart import short
from realm.report.markup import tag

WIDTH, ROW, LABELS, RIGHT, TOP = 560, 26, 190, 60, 30
STYLE = (
    "text{font:12px sans-serif;fill:#222}rect{fill:#4477aa}.whisker{stroke:#222;stroke-width:1.5}.axis{stroke:#999}"
    "@media(prefers-color-scheme:dark){text{fill:#eee}.whisker{stroke:#eee}}"
)


def bar_chart(title: str, bars: Sequence[tuple[str, float, Sequence[float]]]) -> str:
    """The chart as text, in percent; the longest bar or whisker fills the width.

    Args:
        bars: label, a rate 0..1, and the two ends of its interval.
    """
    most = max([0.01, *(max(value, ends[1]) for _, value, ends in bars)])
    scale = (WIDTH - LABELS - RIGHT) / most
    rows = []
    for i, (label, value, ends) in enumerate(bars):
        y = TOP + i * ROW
        low, high = (LABELS + end * scale for end in ends)
        rows += [
            tag("text", label, x=LABELS - 8, y=y + 17, text_anchor="end"),
            tag("rect", x=LABELS, y=y + 4, width=f"{value * scale:.1f}", height=ROW - 8),
            tag("line", class_="whisker", x1=f"{low:.1f}", x2=f"{high:.1f}", y1=y + ROW / 2, y2=y + ROW / 2),
            tag("text", short(100 * value), x=f"{max(high, LABELS + value * scale) + 6:.1f}", y=y + 17),
        ]
    height = TOP + len(bars) * ROW + 10
    axis = tag("line", class_="axis", x1=LABELS, x2=LABELS, y1=TOP, y2=height - 8)
    name = tag("text", title, x=8, y=18)
    size = {"viewBox": f"0 0 {WIDTH} {height}", "width": WIDTH, "height": height, "xmlns": "http://www.w3.org/2000/svg"}
    return tag("svg", tag("title", title), tag("style", STYLE), name, axis, *rows, role="img", **size) + "\n"
