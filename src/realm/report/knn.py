"""The page of ``realm knn tune``: loss over a, temperature and k, and the chosen settings."""

from pathlib import Path
from typing import Any

from realm.report.chart import Series, line_chart, short
from realm.report.markup import Html, document, table, tag
from realm.storage.files import write_atomic

AXES = (("a", "share of p_kNN, a"), ("temperature", "temperature"), ("k", "neighbours, k"))


def write_grid(path: Path, found: dict[str, Any]) -> None:
    settings = [[name, short(value) if isinstance(value, float | int) else str(value)] for name, value in found["settings"].items()]
    rows = [[name.replace("_", " "), short(found[name])] for name in ("model_loss", "loss", "perplexity", "knn_perplexity")]
    charts = [tag("figure", tag("figcaption", label), _chart(found, name, label)) for name, label in AXES]
    note = "The loss is the mean negative log-probability of a held-out token; each point is the best of the grid at that value."
    chosen = table(["Setting", "Value"], settings, "Chosen settings"), table(["Measured", ""], rows, "Losses")
    grid = tag("div", *charts, class_="charts"), tag("p", note, class_="note")
    head = tag("header", tag("p", "kNN settings", class_="kicker"), tag("h1", str(found["datastore"])))
    main = tag("main", head, *(tag("section", tag("h2", title), *parts) for title, parts in (("Chosen", chosen), ("Grid", grid))))
    write_atomic(path, document(f"{found['datastore']} – kNN", main).encode("utf-8", "replace"))


def _chart(found: dict[str, Any], name: str, label: str) -> Html:
    """The least loss at each value of one setting, beside the model's own."""
    least: dict[float, float] = {}
    for row in found["grid"]:
        least[row[name]] = min(row["loss"], least.get(row[name], float("inf")))
    points = sorted(least.items())
    alone = [(value, found["model_loss"]) for value, _ in points]
    return line_chart(f"Loss by {label}", [Series("with neighbours", points), Series("model alone", alone)], across=label)
