"""``realm run --plan``: parameters and memory of a recipe, and whether its corpus can teach; nothing is trained."""

import tempfile
from pathlib import Path
from typing import Any

from realm.documents.store.info import corpus_info
from realm.models.model import part_sizes
from realm.progress import Progress
from realm.recipe import Recipe, load_recipe
from realm.runs.checks import check_corpus, check_questions, machine_memory, meta_model, step_bytes
from realm.runs.directory import build_run_corpus, claim_run
from realm.runs.run import tell_corpus
from realm.storage.paths import RunPaths


def plan(recipe: Recipe | Path, out: Path, *, progress: Progress | None = None) -> dict[str, Any]:
    """The ``run --plan --json`` object; ``out`` stays as it is.

    The run's corpus is used, or one is built and thrown away. If a step does not fit into this machine no file is read.

    Returns {"not_measured": None or why, "retrieval", "parameters", "step_bytes"} and, if it fits, {"corpus", "teaches", "advice"}."""
    loaded = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    quiet = progress or Progress(quiet=True)
    model, memory = meta_model(loaded), machine_memory()
    needed = step_bytes(loaded, model)
    told = {"retrieval": loaded.retrieval_kind, "parameters": part_sizes(model), "step_bytes": needed}
    if needed > memory:
        return {"not_measured": f"a step needs {needed / 1e9:,.0f} GB, and this machine has {memory / 1e9:,.0f}", **told}
    check_questions(loaded)
    with tempfile.TemporaryDirectory(prefix="realm-plan-") as scratch:
        paths = RunPaths(Path(out))
        if not paths.corpus.is_dir():
            paths = RunPaths(Path(scratch))
            claim_run(paths, loaded)
            build_run_corpus(paths, loaded, quiet)
        facts = corpus_info(paths.corpus)
        tell_corpus(facts, quiet)
        check_corpus(paths, loaded)
    return {"not_measured": None, **told, "corpus": facts, "teaches": facts["teaches"], "advice": facts["advice"]}
