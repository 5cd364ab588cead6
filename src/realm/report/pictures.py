"""Charts that the numbers of a stage make, for the report and the web page, and a run's examples, curves and results as records.

``columns.toml`` has the captions and lines of every column, ``stages.toml`` the names of the stages."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from realm.answering.records import RunExample
from realm.report.read import StageRecord, read_run
from realm.storage.layout import RunPaths

Table = dict[str, dict[str, Any]]


def _table(name: str) -> Table:
    return tomllib.loads((files("realm.report") / name).read_text("utf-8"))


COLUMNS = _table("columns.toml")
STAGE_TEXTS = _table("stages.toml")
RANKED = "utility_rank_"
NOT_DRAWN = ("seconds_left", "dev_recall_gain")
MOST_LINES = 3
"""Colours and dashes there are; of the ranks no more are drawn."""


@dataclass(frozen=True)
class Picture:
    """A chart of a stage: its caption, and (label, column) of each line.

    ``unit``: fractions, on an axis from 0 to 1; ``zero``: the sign matters; ``machinery``: for those who look for a fault."""

    caption: str
    lines: list[tuple[str, str]]
    unit: bool
    zero: bool
    machinery: bool


def row_name(stage: str) -> str:
    return str(STAGE_TEXTS.get(stage, {}).get("row", stage))


def pictures(stage: StageRecord) -> list[Picture]:
    """The charts of a stage, in the order in which people read them."""
    beside = {name: column["with"] for name, column in COLUMNS.items() if "with" in column} | _ranks(stage)
    inside = {other for others in beside.values() for other in others}
    return [_picture(stage, name, beside.get(name, [])) for name in ordered_columns(stage) if name not in inside]


def _picture(stage: StageRecord, name: str, beside: list[str]) -> Picture:
    known = COLUMNS.get(name, {})
    names = [n for n in (name, *beside) if n in stage.columns][:MOST_LINES]
    values = [y for n in names for _, y in stage.columns[n]]
    unit = "fraction" in known and min(values) >= 0 and max(values) <= 1
    lines = [(f"rank {_rank(n)}" if n.startswith(RANKED) else COLUMNS.get(n, {}).get("line", n), n) for n in names]
    return Picture(known.get("caption", name), lines, unit, "signed" in known, "machinery" in known)


def _ranks(stage: StageRecord) -> dict[str, list[str]]:
    """The first rank with all others, of which the middle and the last one are drawn."""
    ranks = sorted((name for name in stage.columns if name.startswith(RANKED)), key=_rank)
    if not ranks:
        return {}
    drawn = dict.fromkeys((ranks[0], ranks[len(ranks) // 2], ranks[-1]))
    first, *others = [*drawn, *(name for name in ranks if name not in drawn)]
    return {first: others}


def _rank(name: str) -> int:
    return int(rank) if (rank := name.removeprefix(RANKED)).isdecimal() else 0


def ordered_columns(stage: StageRecord) -> list[str]:
    """Columns with a caption in the order of the table, then the others by name."""
    known = [name for name, column in COLUMNS.items() if "caption" in column]
    shown = [name for name in stage.columns if name not in NOT_DRAWN]
    return sorted(shown, key=lambda name: (known.index(name) if name in known else len(known), name))


def run_summary(paths: RunPaths) -> dict[str, Any]:
    """Return "run", "examples" and "results" of ``records.RunResponse``."""
    record = read_run(paths)
    return {
        "run": record.name,
        "examples": [_example(answer) for answer in record.answers if isinstance(answer.get("question"), str)],
        "results": [{**result, "title": row_name(result["name"])} for result in record.results],
    }


def _example(answer: dict[str, Any]) -> RunExample:
    said = "" if answer.get("abstained") else str(answer.get("answer", ""))
    correct = answer.get("correct")
    return RunExample(answer["question"], said, correct if said and isinstance(correct, bool) else None)
