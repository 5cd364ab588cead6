"""``realm demo --from-nothing``: from the bundled atlas to answered questions, an explained sentence, and a document added without
retraining, by networks with random weights."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from realm.answerer import Answerer
from realm.config import Recipe, build_recipe
from realm.corpus.change.updates import add_documents
from realm.corpus.store.blocks import BlockStore
from realm.data.questions import load_questions
from realm.data.types import Question
from realm.demo.atlas import write_atlas
from realm.errors import DataError
from realm.opening import OpenRun, open_run
from realm.paths import RunPaths
from realm.pipeline.directory import claim_run
from realm.pipeline.run import STAGES, check_stages, run_recipe
from realm.progress import Progress
from realm.recipes.evaluate import answer_all
from realm.recipes.scoring import Relevance
from realm.report import write_report
from realm.storage.files import write_json
from realm.storage.manifests import read_note, write_note

SENTENCE = "The [MASK] is the currency of the United Kingdom."
TARGET = "pound sterling"
QUESTIONS = 3
DEMO_DOMAINS = ("countries", "elements", "moons", "rivers", "us_states", "works")
"""The part of the atlas that the demo trains on: some 1,700 articles with 30 kinds of fact, what an hour on two cores allows."""
ASKED = ("countries", "us_states")
"""What the short demo asks about: 12 kinds of fact. With all 30, its fine-tuning ends before the reader heeds the question."""
SHOWN_DEPTHS = ("1", "5")


@dataclass(frozen=True)
class DemoResult:
    """What the demo shows besides its JSON object: answered questions with whether they are right, and the explained sentence."""

    summary: dict[str, Any]
    answers: list[dict[str, Any]]
    explanation: dict[str, Any] | None


def demo_recipe(directory: Path, *, long: bool = False, changes: dict[str, dict[str, Any]] | None = None) -> Recipe:
    """The recipe that starts from random weights, its paths counted from the demo's directory."""
    return bundled_recipe("recipe-long.toml" if long else "recipe.toml", directory, changes)


def bundled_recipe(name: str, directory: Path, changes: dict[str, dict[str, Any]] | None) -> Recipe:
    """A recipe that the package brings, with some of its values changed, its paths counted from the demo's directory."""
    values = tomllib.loads((files("realm.demo") / name).read_text("utf-8"))
    return build_recipe(values, path=Path(directory) / name, overrides=changes)


def run_demo_from_nothing(
    directory: Path,
    *,
    long: bool,
    progress: Progress,
    stages: tuple[str, ...] | None = None,
    changes: dict[str, dict[str, Any]] | None = None,
) -> DemoResult:
    """Train on the atlas, evaluate, answer, explain, add a document; a second call continues where the first one ended.

    Args:
        directory: the run directory; the atlas is written to ``atlas/`` in it.
        long: the recipe with more steps.
        progress: where to show how it goes.
        stages: only these stages, and no answers; None for everything.
        changes: values of the recipe, by section: {"run": {"seed": 1}}.

    Returns:
        The ``demo --json`` object as ``summary``, and what else there is to show.

    Raises:
        RealmError: what the user can cure.
    """
    directory = Path(directory)
    wanted = check_stages(stages)
    recipe, paths = demo_recipe(directory, long=long, changes=changes), RunPaths(directory)
    claim_run(paths, recipe)  # before the atlas is written: another run's directory is left as it is
    write_atlas(directory / "atlas", domains=DEMO_DOMAINS, asked=() if long else ASKED)
    done = run_recipe(recipe, directory, stages=stages, progress=progress)
    summary: dict[str, Any] = {"run": done["run"], "seconds": done["seconds"], **_results(paths)}
    if wanted != STAGES:
        return DemoResult(summary, [], None)
    return _show(paths, summary, progress)


def _show(paths: RunPaths, summary: dict[str, Any], progress: Progress) -> DemoResult:
    """Answers, the explained sentence, the added document, the report."""
    run = open_run(paths.root)
    questions = first_of_each(load_questions(paths.root / "atlas" / "qa_test.jsonl"))
    answers = asked(run, run.answerer, questions)
    write_note(paths.results / "answers.json", answers)
    explanation = explained(run)
    if explanation is not None:
        write_note(paths.results / "explanation.json", explanation)
    summary["added_document"] = _added(run, progress)
    write_json(paths.root / "demo.json", summary)
    write_report(paths)
    return DemoResult(summary, answers, explanation)


def asked(run: OpenRun, answerer: Answerer, questions: Sequence[Question]) -> list[dict[str, Any]]:
    """Answers, each with whether it is right; one below the run's threshold is marked as abstained."""
    readings = answer_all(answerer, Relevance(run.inputs.store), questions, run.recipe.read)
    return [replace(reading, answer=reading.answer.abstaining(run.abstain_below)).to_dict() for reading in readings]


def first_of_each(questions: Sequence[Question]) -> list[Question]:
    """The first test question of each of the first three subjects: fixed beforehand, right or wrong."""
    first: dict[str, Question] = {}
    for question in questions:
        first.setdefault(question.id.partition("/")[0], question)
    return list(first.values())[:QUESTIONS]


def explained(run: OpenRun) -> dict[str, Any] | None:
    """What fills the demo's masked sentence, document by document; None where the vocabulary cannot spell its target."""
    try:
        found = run.explain(SENTENCE, targets=[TARGET])
    except DataError:  # a vocabulary that cannot spell the target; the demo's own can
        return None
    return found.to_dict()


def _added(run: OpenRun, progress: Progress) -> dict[str, Any]:
    """Add the invented country's document, embed it with the run's own document embedder, and ask about it: nothing is trained."""
    atlas = run.paths.root / "atlas"
    document = json.loads((atlas / "invented.jsonl").read_text("utf-8").splitlines()[0])["id"]
    if document not in BlockStore.open(run.paths.corpus).documents():
        add_documents(run.paths.corpus, [atlas / "invented.jsonl"])
        progress.say(f"added {document} to the corpus; embedding it with the run's own document embedder, without training")
    run, _ = run.with_added()
    questions = load_questions(atlas / "invented_qa.jsonl")
    rows = [{name: answer[name] for name in ("question", "answer", "correct")} for answer in asked(run, run.answerer, questions)]
    return {**rows[0], "all": rows}


def _results(paths: RunPaths) -> dict[str, Any]:
    """Stages and baselines of the contract; recall is gold recall."""
    rows = {name: read_note(paths.results / f"{name}.json") for name in ("ict", "pretrain", "finetune", "closed_book", "bm25")}

    def pick(name: str, *keys: str) -> dict[str, Any]:
        row = rows[name] or {}
        gold = row.get("recall_gold") or {}
        recall = {depth: gold[depth] for depth in SHOWN_DEPTHS if depth in gold}
        return {key: recall if key == "recall" else row.get(key) for key in keys}

    stages = {"ict": ("recall",), "pretrain": ("recall", "marginal_utility"), "finetune": ("em", "recall")}
    result: dict[str, Any] = {"stages": {name: pick(name, *keys) for name, keys in stages.items() if rows[name]}}
    if rows["closed_book"]:
        result["closed_book"] = pick("closed_book", "em", "train_em")
    if rows["bm25"]:
        result["bm25"] = pick("bm25", "em", "recall")
    return result
