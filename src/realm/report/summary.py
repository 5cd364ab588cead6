"""A run's examples, curves and results as records, for the page of the server."""

from dataclasses import asdict
from typing import Any

from realm.answering.records import RunExample, RunStage
from realm.report.chart import thinned
from realm.report.pictures import STAGE_TEXTS, pictures, row_name
from realm.report.read import StageRecord, read_run
from realm.storage.paths import RunPaths

POINTS = 300
"""Of one curve: more than a screen has room for is left out."""
PRIVATE = ("format", "fingerprint")


def run_summary(paths: RunPaths) -> dict[str, Any]:
    """Return "run", "examples", "stages" and "results" of ``records.RunResponse``."""
    record = read_run(paths)
    return {
        "run": record.name,
        "examples": [_example(answer) for answer in record.answers if isinstance(answer.get("question"), str)],
        "stages": [_stage(stage) for stage in record.stages],
        "results": [{**result, "title": row_name(result["name"])} for result in record.results],
    }


def _example(answer: dict[str, Any]) -> RunExample:
    """A question that this run has answered, as the page offers it."""
    said = "" if answer.get("abstained") else str(answer.get("answer", ""))
    correct = answer.get("correct")
    return RunExample(answer["question"], said, correct if said and isinstance(correct, bool) else None)


def _stage(stage: StageRecord) -> RunStage:
    known = STAGE_TEXTS.get(stage.name, {"title": stage.name, "about": ""})
    return RunStage(
        stage.name,
        known["title"],
        known["about"],
        stage.seconds,
        facts={name: value for name, value in stage.facts.items() if name not in PRIVATE},
        curves={name: thinned(points, POINTS - 1) for name, points in stage.columns.items()},
        charts=[asdict(picture) for picture in pictures(stage)],
    )
