"""The figures of docs/evidence.md, from the numbers in results/evidence: differences with their intervals, and bars.

    python -m benchmarks.evidence.evidence_figures

evidence-pays.svg shows the primary differences of every FILE.json that evidence.py left in results/evidence as pays-CORPUS.json; the
others are copied from the pages that their files name.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from realm.report.markup import short, tag

RESULTS = Path(__file__).parents[1] / "results"
WIDTH, ROW, LABELS, TOP, RIGHT = 760, 22, 440, 46, 60
STYLE = (
    "text{font:12px sans-serif;fill:#222}.whisker{stroke:#4477aa;stroke-width:2}circle{fill:#4477aa}.axis{stroke:#999}"
    "@media(prefers-color-scheme:dark){text{fill:#eee}}"
)
FIRST_ROUND = (("REALM", "recall@5", "dense"), ("REALM", "em", "hybrid"))
PRIMARY = {
    "covid-ict": (("REALM, ict", "recall@5", "dense"),),
    "cranfield": (("REALM", "ndcg_10", "dense"),),
    "cranfield-1500": (("REALM", "ndcg_10", "dense"),),
    "new2018": (("REALM", "held-out recall@5", "dense"),),
}
"""Row, measure and search of the primary differences that were registered for a file; for the others those of the first round."""
NAMES = {"recall@5": "recall@5, dense", "em": "EM, hybrid", "ndcg_10": "nDCG@10, dense", "held-out recall@5": "hidden spans, dense"}


def primary(corpus: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """The primary differences of one file, recall before EM."""
    wanted, rows = PRIMARY.get(corpus, FIRST_ROUND), found["differences"]
    return [row for one in wanted for row in rows if (row["of"], row["measure"], row["search"]) == one]


def label(corpus: str, row: dict[str, Any]) -> str:
    """Corpus, measure and the row compared with; the number of seeds, if it is not three."""
    labels = f", {row['labels']} labels" if row["measure"] == "em" else ""
    seeds = "" if (n := len(row["by_seed"])) == 3 else f" ({n} seed{'s' * (n > 1)})"
    name = corpus.replace("-1500", ", 1,500 steps").replace("-150", ", 150 steps").replace("-ict", " with ICT")
    return f"{name}: {NAMES[row['measure']]}{labels}, minus {row['minus'].replace('off the shelf', 'published')}{seeds}"


def forest(title: str, rows: Sequence[tuple[str, float, Sequence[float]]]) -> str:
    """Differences as points with their intervals around a line at 0, in points of a hundred, as the text of an SVG."""
    most = max(0.01, *(abs(end) for _, _, ends in rows for end in ends))
    middle, scale = LABELS + (WIDTH - LABELS - RIGHT) / 2, (WIDTH - LABELS - RIGHT) / 2 / most
    drawn = []
    for i, (name, value, ends) in enumerate(rows):
        y = TOP + i * ROW
        low, high = (f"{middle + end * scale:.1f}" for end in ends)
        drawn += [
            tag("text", name, x=LABELS - 8, y=y + 4, text_anchor="end"),
            tag("line", class_="whisker", x1=low, x2=high, y1=y, y2=y),
            tag("circle", cx=f"{middle + value * scale:.1f}", cy=y, r=4),
            tag("text", f"{'+' if value > 0 else ''}{short(round(100 * value, 1))}", x=WIDTH - RIGHT + 10, y=y + 4),
        ]
    height = TOP + len(rows) * ROW
    axis = tag("line", class_="axis", x1=middle, x2=middle, y1=TOP - 16, y2=height - 8)
    size = {"viewBox": f"0 0 {WIDTH} {height}", "width": WIDTH, "height": height, "xmlns": "http://www.w3.org/2000/svg"}
    return tag("svg", tag("title", title), tag("style", STYLE), tag("text", title, x=8, y=18), axis, *drawn, role="img", **size) + "\n"


def bars(found: dict[str, Any]) -> list[tuple[str, float, Sequence[float]]]:
    """Bars with their intervals; of what was measured by seed the mean, with the least and the largest."""
    return [
        (one["label"], round(float(np.mean(one["by_seed"])), 3), (min(one["by_seed"]), max(one["by_seed"])))
        if "by_seed" in one
        else (one["label"], one["value"], one["interval"])
        for one in found["bars"]
    ]


BAR_WIDTH, BAR, BAR_LABELS, BAR_TOP = 620, 26, 190, 30
BAR_STYLE = (
    "text{font:12px sans-serif;fill:#222}rect{fill:#4477aa}.whisker{stroke:#222;stroke-width:1.5}.axis{stroke:#999}"
    "@media(prefers-color-scheme:dark){text{fill:#eee}.whisker{stroke:#eee}}"
)


def bar_chart(title: str, bars: Sequence[tuple[str, float, Sequence[float]]]) -> str:
    """The chart as text, in percent; the longest bar or whisker fills the width.

    Args:
        bars: label, a rate 0..1, and the two ends of its interval.
    """
    most = max([0.01, *(max(value, ends[1]) for _, value, ends in bars)])
    scale = (BAR_WIDTH - BAR_LABELS - RIGHT) / most
    rows = []
    for i, (label, value, ends) in enumerate(bars):
        y = BAR_TOP + i * BAR
        low, high = (BAR_LABELS + end * scale for end in ends)
        rows += [
            tag("text", label, x=BAR_LABELS - 8, y=y + 17, text_anchor="end"),
            tag("rect", x=BAR_LABELS, y=y + 4, width=f"{value * scale:.1f}", height=BAR - 8),
            tag("line", class_="whisker", x1=f"{low:.1f}", x2=f"{high:.1f}", y1=y + BAR / 2, y2=y + BAR / 2),
            tag("text", short(100 * value), x=f"{max(high, BAR_LABELS + value * scale) + 6:.1f}", y=y + 17),
        ]
    height = BAR_TOP + len(bars) * BAR + 10
    axis = tag("line", class_="axis", x1=BAR_LABELS, x2=BAR_LABELS, y1=BAR_TOP, y2=height - 8)
    name = tag("text", title, x=8, y=18)
    size = {"viewBox": f"0 0 {BAR_WIDTH} {height}", "width": BAR_WIDTH, "height": height, "xmlns": "http://www.w3.org/2000/svg"}
    return tag("svg", tag("title", title), tag("style", BAR_STYLE), name, axis, *rows, role="img", **size) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS / "evidence")
    parser.add_argument("--out", type=Path, default=RESULTS.parents[1] / "docs" / "images")
    options = parser.parse_args()
    rows = [
        (label(corpus, row), row["value"], row["interval"])
        for path in sorted(options.results.glob("pays-*.json"))
        for corpus in [path.stem.removeprefix("pays-")]
        for row in primary(corpus, json.loads(path.read_text("utf-8")))
    ]
    drawn = {"pays": forest("REALM minus another retriever under one reader, in points, 95 % intervals", rows)}
    for name in ("masks", "knowledge", "books"):
        found = json.loads((options.results / f"{name}.json").read_text("utf-8"))
        drawn[name] = bar_chart(found["title"], bars(found))
    for name, picture in drawn.items():
        (options.out / f"evidence-{name}.svg").write_text(picture, "utf-8")
        print(options.out / f"evidence-{name}.svg")


if __name__ == "__main__":
    main()
