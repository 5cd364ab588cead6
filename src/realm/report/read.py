"""Contents of a run directory for its report. Anything may be missing or odd: the page then shows less, it never fails.

Charts that the numbers of a stage make, for the report and the web page, and a run's examples, curves and results as records.
``columns.toml`` has the captions and lines of every column, ``stages.toml`` the names of the stages."""

import logging
import math
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from realm.answering.records import RunExample
from realm.documents.store.manifest import CorpusManifest, read_manifest
from realm.errors import RealmError
from realm.report.markup import Point
from realm.storage.files import STAGING_SUFFIX, read_json, toml_values
from realm.storage.layout import DAMAGED, STAGE_FILE, RunPaths, lost_files
from realm.storage.manifests import check_sealed, read_note
from realm.storage.metrics import MetricsLog

logger = logging.getLogger(__name__)
_ORDER = ("ict", "warm", "pretrain", "finetune")
"""Order of stages and of result rows; others follow by name."""


@dataclass(frozen=True)
class StageRecord:
    """One stage: its facts (stage.json) and its numeric columns as (step, value) points."""

    name: str
    facts: dict[str, Any]
    columns: dict[str, list[Point]]
    seconds: float | None

    def last(self, column: str) -> float | None:
        points = self.columns.get(column)
        return points[-1][1] if points else None


@dataclass(frozen=True)
class RunRecord:
    """A run as its files tell it, for a page: what has no file yet is empty or None; ``finished`` in seconds since 1970."""

    name: str
    config: dict[str, dict[str, Any]]
    corpus: CorpusManifest | None
    stages: list[StageRecord]
    results: list[dict[str, Any]]
    answers: list[dict[str, Any]]
    claims: list[str]
    explanation: dict[str, Any] | None
    alarms: list[dict[str, Any]]
    finished: float | None

    def stage(self, name: str) -> StageRecord:
        return next((s for s in self.stages if s.name == name), StageRecord(name, {}, {}, None))

    def result(self, name: str) -> dict[str, Any]:
        return next((r for r in self.results if r["name"] == name), {"name": name})


def read_run(paths: RunPaths) -> RunRecord:
    """Read metrics, results, stage facts, recipe and corpus manifest, whatever of them is there."""
    rows = _Rows(MetricsLog(paths.metrics).rows())
    for lost in lost_files(paths):
        logger.warning("%s: missing, and not shown. To cure it: realm verify %s", lost, paths.root)
    found = {path.name: _facts(path / STAGE_FILE) for path in sorted(paths.root.glob("stages/*/")) if path.suffix != STAGING_SUFFIX}
    facts = {name: value for name, value in found.items() if isinstance(value, dict)}
    names = sorted({*rows.columns, *facts}, key=_stage_order)
    stages = [StageRecord(n, facts.get(n, {}), dict(rows.columns[n]), _seconds(rows.times[n])) for n in names]
    files = {path.stem: read_note(path) for path in sorted(paths.results.glob("*.json"))}
    answers, claims, explanation = (files.pop(name, None) for name in ("answers", "claims", "explanation"))
    results = [{**value, "name": str(value.get("name") or stem)} for stem, value in files.items() if isinstance(value, dict)]
    return RunRecord(
        name=paths.root.resolve().name,
        config=_config(paths.config),
        corpus=_corpus(paths.corpus),
        stages=stages,
        results=sorted(results, key=lambda r: _stage_order(r["name"])),
        answers=[a for a in answers if isinstance(a, dict)] if isinstance(answers, list) else [],
        claims=[c for c in claims if isinstance(c, str)] if isinstance(claims, list) else [],
        explanation=explanation if isinstance(explanation, dict) else None,
        alarms=rows.alarms,
        finished=max((t for times in rows.times.values() for t in times), default=None),
    )


def _facts(path: Path) -> Any:
    """Facts of a stage; None if damaged, with a warning."""
    try:
        check_sealed(path.parent, DAMAGED, path.name)
    except RealmError as error:
        logger.warning("%s: its stage is not shown: %s", path, error.problem)
        return None
    return read_json(path)


class _Rows:
    """Rows of metrics.jsonl by stage and column."""

    def __init__(self, rows: Iterable[dict[str, Any]]):
        self.columns: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
        self.times: dict[str, list[float]] = defaultdict(list)
        self.alarms: list[dict[str, Any]] = []
        for row in rows:
            step = number(row.get("step"))
            if step is None or "stage" not in row:
                continue
            stage = str(row["stage"])
            if (when := number(row.get("time"))) is not None:
                self.times[stage].append(when)
            if "alarm" in row:
                self.alarms.append(row)
            for name, value in row.items():
                if name not in ("stage", "step", "time") and (known := number(value)) is not None:
                    self.columns[stage][name].append((step, known))


def number(value: Any) -> float | None:
    """A finite number, or None for anything else (booleans, null, NaN, text)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _seconds(times: list[float]) -> float | None:
    """Time between the rows; a gap far longer than usual is a pause between two runs and does not count."""
    gaps = sorted(b - a for a, b in pairwise(times) if b >= a)
    return sum(g for g in gaps if g <= 20 * gaps[len(gaps) // 2] + 60) if gaps else None


def _stage_order(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _config(path: Path) -> dict[str, dict[str, Any]]:
    try:
        values = toml_values(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: section for name, section in values.items() if isinstance(section, dict)}


def _corpus(path: Path) -> CorpusManifest | None:
    try:
        return read_manifest(path)
    except RealmError:
        return None


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
