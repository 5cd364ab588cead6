"""What abstaining buys: the share of wrong answers among the most confident ones, as a curve and a table."""

from typing import Any

from realm.report.chart import Series, line_chart, short
from realm.report.markup import WORDS, Html, table, tag
from realm.report.read import RunRecord, number

NAMES = {"finetune": "REALM", "bm25": "BM25 + reader"}
SHOWN = (0.25, 0.5, 0.75, 1.0)


def confidence_section(run: RunRecord) -> Html | None:
    """The risk-coverage curves of the run's own answers and of its baseline's; None before answers were measured."""
    curves = {name: points for name in NAMES if (points := _points(run.result(name)))}
    if not curves:
        return None
    series = [Series(NAMES[name], [(coverage, risk) for coverage, risk, _ in points]) for name, points in curves.items()]
    chart = line_chart("Wrong answers among the most confident", series, unit=True, across="coverage")
    rows = [
        [f"{NAMES[name]}, {100 * coverage:.0f} % answered", f"{100 * risk:.1f} %", short(threshold)]
        for name, points in curves.items()
        for coverage, risk, threshold in points
        if coverage in SHOWN
    ]
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
