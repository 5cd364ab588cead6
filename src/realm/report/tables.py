"""Tables of comparisons and ablations as JSON and text, from the measured rows of every seed."""

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from realm.evaluation.measures import bootstrap_interval
from realm.report.markup import WORDS, aligned
from realm.storage.files import write_atomic, write_json

interval = partial(bootstrap_interval, draws=2000, of="compare")
"""Of a mean over questions, or of paired differences."""
MEANS = ("em", "f1", "train_em", "encoded", "parameters", "index_bytes", "ms_per_question", "calibration_error")
REALM, BASELINES = "finetune", ("published", "orqa", "closed_book")
HEADS = WORDS["comparison"]

Rows = Mapping[str, Sequence[Mapping[str, Any]]]


def comparison(rows: Rows) -> dict[str, Any]:
    """Means over seeds of each row's measures, and REALM minus its baselines.

    Returns {"n", "rows": [{"name", "title", "seeds", "em", "em_interval", "em_by_seed", "f1", "recall", "recall_gold", "zero_shot",
    "encoded", "parameters", "index_bytes", "ms_per_question", ...}], "differences": [{"of", "minus", "em", "interval"}], "datasets": the
    same of each if there are several}. Intervals are bootstraps over questions of means over seeds, paired for differences."""
    every = [row.get("datasets", {}) for found in rows.values() for row in found]
    names = [name for name in (every[0] if every else ()) if all(name in datasets for datasets in every)]
    apart = {name: {of: [_of_dataset(row, name) for row in found] for of, found in rows.items()} for name in names}
    return _compared(rows) | {"datasets": {name: _compared(found) for name, found in apart.items()} if len(apart) > 1 else {}}


def _of_dataset(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The measures of a row on one dataset."""
    return row["datasets"][name] | {key: row[key] for key in ("name", "title", "seed")}


def _compared(rows: Rows) -> dict[str, Any]:
    table = [_row(name, found) for name, found in rows.items() if found]
    pairs = [(rows.get(REALM, ()), rows.get(name, ())) for name in BASELINES]
    differences = [_difference(ours, theirs) for ours, theirs in pairs if ours and len(ours) == len(theirs)]
    return {"n": table[0]["n"] if table else 0, "rows": table, "differences": differences}


def _row(name: str, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "title": found[0]["title"], "n": found[0]["n"], "seeds": [r["seed"] for r in found]}
    for key in MEANS:
        values = [r[key] for r in found if r.get(key) is not None]
        row[key] = float(np.mean(values)) if values else None
    for key in ("encoded", "parameters", "index_bytes"):
        row[key] = round(row[key]) if row[key] is not None else None
    row["em_by_seed"] = [r["em"] for r in found]
    row["em_interval"] = list(interval(np.mean([r["hits"] for r in found], axis=0)))
    row |= {key: _mean_recall([r.get(key) for r in found]) for key in ("recall", "recall_gold")}
    zero = [r["zero_shot"] for r in found if r.get("zero_shot")]
    row["zero_shot"] = {key: _mean_recall([z.get(key) for z in zero]) for key in ("recall", "recall_gold")} if zero else None
    return row


def _mean_recall(values: Sequence[Mapping[str, float] | None]) -> dict[str, float] | None:
    known = [value for value in values if value]
    return {k: float(np.mean([value[k] for value in known])) for k in known[0]} if known else None


def _difference(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    gaps = np.mean([a["hits"] for a in ours], axis=0) - np.mean([b["hits"] for b in theirs], axis=0)
    return {"of": ours[0]["name"], "minus": theirs[0]["name"], "em": float(gaps.mean()), "interval": list(interval(gaps))}


def write_comparison(out: Path, found: Mapping[str, Any]) -> None:
    write_json(out / "compare.json", found)
    write_atomic(out / "compare.txt", as_text(found))


def columns(found: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """(key, depth) of the columns that some row fills, in order; depth for recall only."""
    kept: list[tuple[str, str | None]] = []
    for key in HEADS:
        filled = [row[key] for row in found["rows"] if row.get(key) is not None]
        if key in ("recall", "recall_gold"):
            kept += [(key, depth) for depth in (filled[0] if filled else ())]
        elif filled:
            kept.append((key, None))
    return kept


def head(key: str, depth: str | None) -> str:
    return HEADS[key] + (depth or "")


def cell(row: Mapping[str, Any], key: str, depth: str | None) -> str:
    """One value as people read it: rates in percent, counts with commas."""
    value = row.get(key)
    value = value.get(depth) if depth is not None and isinstance(value, Mapping) else value
    if value is None:
        return "–"
    if key == "em_interval":
        return f"{100 * value[0]:.1f}–{100 * value[1]:.1f}"
    if key in ("encoded", "parameters", "index_bytes"):
        return f"{value:,}"
    if key == "ms_per_question":
        return f"{value:.2f}"
    return value if isinstance(value, str) else f"{100 * value:.1f}"


def as_text(found: Mapping[str, Any]) -> str:
    """An aligned table with the differences below; where there are several datasets, one for each behind it."""
    text = _table_text(found)
    for name, apart in found["datasets"].items():
        text += f"\n{name}, {apart['n']} questions\n{_table_text(apart)}"
    return text


def _table_text(found: Mapping[str, Any]) -> str:
    shown = columns(found)
    lines = [[head(*column) for column in shown], *([cell(row, *column) for column in shown] for row in found["rows"])]
    text = [line.rstrip() for line in aligned(lines)]
    titles = {row["name"]: row["title"] for row in found["rows"]}
    for row in found["rows"]:
        if row["zero_shot"]:
            recall = ", ".join(f"recall@{depth} {100 * value:.1f}" for depth, value in row["zero_shot"]["recall"].items())
            text.append(f"{row['title']} before fine-tuning: {recall}")
    for gap in found["differences"]:
        low, high = gap["interval"]
        between = f"{titles[gap['of']]} minus {titles[gap['minus']]}"
        text.append(f"{between}: {100 * gap['em']:+.1f} EM, 95 % interval {100 * low:+.1f} to {100 * high:+.1f} (paired bootstrap)")
    return "\n".join(text) + "\n"


Finished = dict[str, Any]
"""One finished row and seed: "row", "seed", "em_interval" and a number or None for each of MEASURES."""

MEASURES = WORDS["ablation"]
COUNTS = ("tokens", "seconds")


def ablation_summary(titles: Mapping[str, str], seeds: Sequence[int], runs: Sequence[Finished]) -> dict[str, Any]:
    """Mean and spread over the finished seeds of each row, in order of ``titles``.

    Returns {"rows": [{"row", "title", "seeds", "measures": {name: {"mean", "sd", "min", "max"} or None}, "em_interval", "runs"}],
    "waiting": [{"row", "seed"}]}; sd is the sample's, None for one seed."""
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
    write_json(root / "ablation.json", summary)
    write_atomic(root / "ablation.txt", ablation_text(summary))


def ablation_text(summary: Mapping[str, Any]) -> str:
    """The table in columns, what its headings mean, and what is still waiting."""
    head = ["row", "seeds", *(MEASURES[measure] for measure in _shown_measures(summary))]
    first, *others = aligned([head, *_cells(summary)])
    waiting = ", ".join(f"{one['row']} (seed {one['seed']})" for one in summary["waiting"])
    unfinished = [f"\nNot finished: {waiting}"] if waiting else []
    return "\n".join([first, "-" * len(first), *others, "", WORDS["about"]["ablation"], *unfinished]) + "\n"


def _shown_measures(summary: Mapping[str, Any]) -> list[str]:
    return [measure for measure in MEASURES if any(row["measures"][measure] for row in summary["rows"])]


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
