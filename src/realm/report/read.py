"""Contents of a run directory for its report. Anything may be missing or odd: the page then shows less, it never fails."""

import logging
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

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
