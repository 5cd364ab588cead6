"""What a page shows of the run: versions, sizes, limits, and the curves of its training."""

from dataclasses import asdict
from typing import Any

from realm import __version__
from realm.report.chart import thinned
from realm.report.pictures import STAGES, pictures, row_name
from realm.report.read import StageRecord, read_run
from realm.serve.serving import Serving

POINTS = 300
"""Of one curve: more than a screen has room for is left out."""
PRIVATE = ("format", "fingerprint")


def run_page(serving: Serving) -> dict[str, Any]:
    """The ``/v1/run`` object (``shapes.RunResponse``)."""
    opened = serving.current
    manifest, store = opened.generation.snapshot.manifest, opened.inputs.store
    record = read_run(serving.paths)
    corpus = {"documents": store.manifest.documents, "blocks": store.manifest.blocks, "unsearchable": opened.unsearchable}
    index = {"generation": manifest.generation, "step": manifest.step, "blocks": manifest.count, "dim": manifest.dim}
    return {
        "run": record.name,
        "realm": __version__,
        "reader": opened.tuned.has("reader") if opened.tuned is not None else opened.reads,
        "versions": opened.versions,
        "corpus": corpus,
        "index": index,
        "limits": asdict(serving.limits),
        "stages": [_stage(stage) for stage in record.stages],
        "results": [{**result, "title": row_name(result["name"])} for result in record.results],
    }


def _stage(stage: StageRecord) -> dict[str, Any]:
    known = STAGES.get(stage.name, {"title": stage.name, "about": ""})
    return {
        "name": stage.name,
        "title": known["title"],
        "about": known["about"],
        "seconds": stage.seconds,
        "facts": {name: value for name, value in stage.facts.items() if name not in PRIVATE},
        "curves": {name: thinned(points, POINTS - 1) for name, points in stage.columns.items()},
        "charts": [asdict(picture) for picture in pictures(stage)],
    }
