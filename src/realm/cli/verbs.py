"""The verbs that train, evaluate and ask. Each loads what it needs when it runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro

from realm.cli import show
from realm.cli.aligning import align
from realm.cli.arguments import Json, Names, Paths, Recipe, Run, Settings, Text, overrides
from realm.cli.asking import ask, serve
from realm.cli.comparing import ablate, compare
from realm.cli.models import models
from realm.cli.questions import eval
from realm.cli.refreshing import refresh
from realm.progress import Progress
from realm.ranks import place

Models = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR")]


def demo(*, dir: Path = Path("runs/demo"), long: bool = False, stages: str = "", json: Json = False) -> None:
    """Train on the bundled atlas from nothing, evaluate, answer, explain; started again, it goes on.

    Args:
        dir: the run directory.
        long: train for longer and better.
        stages: only these stages, separated by commas (corpus,warm,ict,pretrain,finetune,eval).
    """
    with Progress() as progress:
        progress.say(f"the demo trains in {dir} on the CPU; interrupt it when you like and start it again to go on")
        from realm.pipeline import run_demo

        result = run_demo(dir, long=long, progress=progress, stages=_stages(stages))
    show.result(result.summary, json, lambda summary: show.demo(summary, result.answers, result.explanation))


def run(
    recipe: Recipe, /, *, out: Path | None = None, stages: str = "", plan: bool = False, set: Settings = (), json: Json = False
) -> None:
    """Run a recipe on your own documents: corpus, warm, ict, pretrain, finetune, eval; started again, it goes on.

    Args:
        recipe: a recipe file (TOML).
        out: the run directory; runs/NAME by default, after the recipe's file.
        stages: only these stages, separated by commas.
        plan: only say what the run will take, after a short probe.
    """
    from realm.config import load_recipe

    loaded = load_recipe(recipe, overrides(set))
    directory = out or Path("runs") / recipe.stem
    with Progress(quiet=not place().first) as progress:
        from realm import pipeline

        if plan:
            result = pipeline.plan(loaded, directory, progress=progress)
        else:
            result = pipeline.run_recipe(loaded, directory, stages=_stages(stages), progress=progress)
    if place().first:
        show.result(result, json, show.plan if plan else show.results)


def _stage_verb(stage: str, about: str) -> Callable[..., None]:
    """The verb of one stage of training."""

    def verb(run: Run, /, *, json: Json = False) -> None:
        from realm.opening import read_run_recipe
        from realm.paths import RunPaths

        recipe = read_run_recipe(RunPaths(run))
        with Progress(quiet=not place().first) as progress:
            from realm.pipeline import run_recipe

            found = run_recipe(recipe, run, stages=(stage,), progress=progress)
        if place().first:
            show.result(found, json, show.results)

    verb.__name__, verb.__doc__ = stage, about
    return verb


warm = _stage_verb("warm", "The reading warm start of a run with a corpus: the encoder learns to fill a masked span from a block.")
ict = _stage_verb("ict", "The inverse cloze task of a run with a corpus: a first retriever.")
pretrain = _stage_verb("pretrain", "REALM pre-training of a run in which warm and ict have ended: retriever and encoder learn together.")
finetune = _stage_verb("finetune", "Fine-tuning of a pre-trained run on questions: its config.toml names them.")


def explain(
    run: Run, text: Text, /, *, target: Names = (), k: int = 8, exclude: Names = (), baseline: Path | None = None, json: Json = False
) -> None:
    """Which documents help to fill a masked sentence: p(z|x), p(y|z,x), r(z) of each.

    Args:
        text: a sentence; each [MASK] in it stands for a whole span.
        target: what a [MASK] hides; once for each [MASK], or not at all.
        k: documents, the null document counted.
        exclude: id of a document that must not be used; may be repeated.
        baseline: another run, which fills the same masks with the same words for comparison.
    """
    from realm.explain import explain as explain_sentence
    from realm.opening import open_run

    def explained(directory: Path, targets: tuple[str, ...]) -> dict[str, Any]:
        opened = open_run(directory)
        parts = opened.pretrained, opened.generation, opened.inputs
        found = explain_sentence(*parts, text, targets=targets, k=k, exclude_documents=exclude, hybrid=opened.hybrid)
        return found.to_dict()

    found = explained(run, target)
    if baseline is not None:
        other = explained(baseline, tuple(found["targets"]))
        found["baseline"] = {"run": str(baseline), "p_y": other["p_y"], "p_y_null": other["p_y_null"]}
    show.result(found, json, show.explanation)


def report(run: Run, /) -> None:
    """Write report.html of a run, finished or not."""
    from realm.opening import read_run_recipe
    from realm.paths import RunPaths
    from realm.report import write_report

    read_run_recipe(RunPaths(run))
    print(write_report(RunPaths(run)))


def import_(models: Models, /, *, out: Path, documents: Paths = (), json: Json = False) -> None:
    """Make a run of published models: google/realm-*, a BERT, sentence-transformers, TensorFlow originals.

    Args:
        models: directories that belong together, such as an open-QA model and the embedder of its pre-training.
        out: the run directory; must not exist.
        documents: a file or folder to index instead of the blocks that the model may bring; may be repeated.
    """
    from realm.pipeline.importing import import_published

    with Progress() as progress:
        found = import_published(models, out, documents=documents, progress=progress)
    show.result(found, json, show.imported)


def export(run: Run, /, *, out: Path, onnx: bool = False, json: Json = False) -> None:
    """Write the networks of a run in the published layout, which Hugging Face's REALM classes load.

    Args:
        out: the directory to make; each form gets a directory in it.
        onnx: also write embedder and reader for onnxruntime.
    """
    from realm.pipeline.exporting import export_run

    show.result(export_run(run, out, onnx=onnx), json, show.exported)


LISTED = (
    demo,
    run,
    warm,
    ict,
    pretrain,
    refresh,
    finetune,
    eval,
    ask,
    explain,
    align,
    ablate,
    compare,
    serve,
    report,
    import_,
    export,
    models,
)
VERBS: dict[str, Callable[..., None]] = {verb.__name__.rstrip("_"): verb for verb in LISTED}


def _stages(text: str) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",") if name.strip()) or None
