"""The table of an ablation as JSON and text: mean and spread of every measure of every row."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from realm.report.markup import WORDS, aligned
from realm.storage.files import write_atomic, write_json

Finished = dict[str, Any]
"""One finished row and seed: "row", "seed", "em_interval" and a number or None for each of MEASURES."""

MEASURES = WORDS["ablation"]
COUNTS = ("tokens", "seconds")


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
    """Publish ablation.json and ablation.txt in a directory."""
    write_json(root / "ablation.json", summary)
    write_atomic(root / "ablation.txt", ablation_text(summary))


def ablation_text(summary: Mapping[str, Any]) -> str:
    """The table in columns, what its headings mean, and what is still waiting."""
    first, *others = aligned([_head(summary), *_cells(summary)])
    waiting = ", ".join(f"{one['row']} (seed {one['seed']})" for one in summary["waiting"])
    unfinished = [f"\nNot finished: {waiting}"] if waiting else []
    return "\n".join([first, "-" * len(first), *others, "", WORDS["about"]["ablation"], *unfinished]) + "\n"


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
