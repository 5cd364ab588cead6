"""The pages of kNN: how the loss depends on a, temperature and k, and what was chosen; quality against the size of the datastore."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from realm.report.chart import Series, line_chart, short
from realm.report.markup import Html, document, table, tag
from realm.storage.files import write_atomic

MEASURES = (
    ("knn_perplexity", "perplexity", "Perplexity"),
    ("translation_with.bleu", "translation_without.bleu", "BLEU"),
    ("translation_with.chrf", "translation_without.chrf", "chrF"),
    ("knn_accuracy", "accuracy", "Share of masks filled right"),
)
"""Of ``realm knn eval``: with neighbours, without, what people read."""
AXES = (("a", "share of p_kNN, a"), ("temperature", "temperature"), ("k", "neighbours, k"))


def write_grid(path: Path, found: dict[str, Any]) -> None:
    """Write the page to ``path``.

    Args:
        found: what ``realm knn tune`` prints: "datastore", "settings", "grid", "model_loss", "loss", "perplexity", "knn_perplexity".
    """
    settings = [[name, short(value) if isinstance(value, float | int) else str(value)] for name, value in found["settings"].items()]
    rows = [[name.replace("_", " "), short(found[name])] for name in ("model_loss", "loss", "perplexity", "knn_perplexity")]
    charts = [tag("figure", tag("figcaption", label), _chart(found, name, label)) for name, label in AXES]
    note = "The loss is the mean negative log-probability of a held-out token; each point is the best of the grid at that value."
    chosen = table(["Setting", "Value"], settings, "Chosen settings"), table(["Measured", ""], rows, "Losses")
    grid = tag("div", *charts, class_="charts"), tag("p", note, class_="note")
    _write(path, "kNN settings", found, {"Chosen": chosen, "Grid": grid})


def _chart(found: dict[str, Any], name: str, label: str) -> Html:
    """The least loss at each value of one setting, beside the model's own."""
    least: dict[float, float] = {}
    for row in found["grid"]:
        least[row[name]] = min(row["loss"], least.get(row[name], float("inf")))
    points = sorted(least.items())
    alone = [(value, found["model_loss"]) for value, _ in points]
    return line_chart(f"Loss by {label}", [Series("with neighbours", points), Series("model alone", alone)], across=label)


def write_sizes(path: Path, found: dict[str, Any]) -> None:
    """Write the page of ``realm knn eval`` to ``path``: what was measured, and against size where there are pruned datastores.

    Args:
        found: what it prints: "datastore", "settings", "keys", "pruned", and of MEASURES what was measured.
    """
    measured = [(mixed, alone, label) for mixed, alone, label in MEASURES if _value(found, mixed) is not None]
    points = [found, *found["pruned"]]
    rows = [
        [" then ".join(point["pruned_by"]) or "all pairs", f"{point['keys']:,}", *(short(_value(point, mixed)) for mixed, _, _ in measured)]
        for point in points
    ]
    rows.append(["model alone", "–", *(short(_value(found, alone)) for _, alone, _ in measured)])
    sections = {"Measured": (table(["Datastore", "Keys", *(label for _, _, label in measured)], rows, "Quality"),)}
    if found["pruned"]:
        charts = [tag("figure", tag("figcaption", label), _sizes_chart(points, mixed, alone, label)) for mixed, alone, label in measured]
        sections["Quality against size"] = (tag("div", *charts, class_="charts"),)
    _write(path, "kNN", found, sections)


def _write(path: Path, kind: str, found: dict[str, Any], sections: Mapping[str, tuple[Html, ...]]) -> None:
    """A page about a datastore."""
    head = tag("header", tag("p", kind, class_="kicker"), tag("h1", str(found["datastore"])))
    main = tag("main", head, *(tag("section", tag("h2", title), *parts) for title, parts in sections.items()))
    write_atomic(path, document(f"{found['datastore']} – kNN", main).encode("utf-8", "replace"))


def _sizes_chart(points: list[dict[str, Any]], mixed: str, alone: str, label: str) -> Html:
    """One line for each way of pruning, up to the whole datastore, beside the model's own."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for point in points[1:]:
        value = _value(point, mixed)
        if value is not None:
            lines.setdefault(" then ".join(point["pruned_by"]), []).append((point["keys"], value))
    best, own = _value(points[0], mixed), _value(points[0], alone)
    whole = [] if best is None else [(points[0]["keys"], best)]
    series = [Series(name, sorted([*line, *whole])) for name, line in lines.items()] or [Series("all pairs", whole)]
    if own is not None:
        least = min(line.points[0][0] for line in series)
        series.append(Series("model alone", [(least, own), (points[0]["keys"], own)]))
    return line_chart(f"{label} by keys", series, across="key")


def _value(found: dict[str, Any], name: str) -> float | None:
    """A measure by its path; None where it was not measured, or is infinite."""
    first, _, second = name.partition(".")
    value = found.get(first)
    return value.get(second) if second and value else value
