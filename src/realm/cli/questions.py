"""The verbs about questions, eval, and about many runs, compare and ablate."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from realm.cli import show
from realm.cli.arguments import Columns, Json, Place, Recipe, Run, Settings, Word, columns, overrides
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
        rows: only these rows, separated by commas: tfidf, bm25, published, orqa, realm, closed_book; all if not given.
        seeds: how many, counted up from the recipe's own."""
    from realm.recipe import load_recipe

    loaded, root = load_recipe(recipe, overrides(set)), out or Path("runs") / f"{recipe.stem}-compare"
    names = [name.strip() for name in rows.split(",") if name.strip()]
    with Progress() as progress:
        from realm.experiments.compare import compare as compare_rows

        found = compare_rows(loaded, root, rows=names, seeds=seeds, progress=progress)
    from realm.report.tables import as_text

    files = f"\nalso in {root}: compare.txt, compare.json"
    show.result(found, json, lambda table: print(as_text(table) + files))


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

    files = f"\nalso in {root}: ablation.txt, ablation.json"
    show.result(found, json, lambda summary: print(ablation_text(summary) + files))
