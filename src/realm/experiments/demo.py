"""``realm demo``: claims about REALM, each measured here and now on documents that the released model has never seen.

Answers before any training and after few questions; words that no template has; search by words alone; documents taken away, added and
changed; a prediction explained. An interrupted demo continues."""

import json
import random
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from realm.answering.answerer import Answerer
from realm.answering.levels import leveled
from realm.answering.opening import OpenRun, open_run
from realm.documents.change.updates import add_documents, update_documents
from realm.evaluation.evaluate import answer_all, evaluate_answers, evaluate_retrieval
from realm.evaluation.measures import Relevance, is_correct
from realm.evaluation.questions.loading import load_questions, write_questions
from realm.experiments.atlas import write_atlas
from realm.models.types import Question
from realm.progress import Progress
from realm.recipe import Recipe, build_recipe
from realm.report import write_report
from realm.runs.directory import claim_run
from realm.runs.run import run_recipe
from realm.search.candidates import Source
from realm.storage.files import write_json
from realm.storage.layout import RunPaths, list_files, stage_facts
from realm.storage.manifests import read_note, write_note

SENTENCE = "The [MASK] is the currency of the United Kingdom."
TARGET = "pound sterling"
QUESTIONS = 3
"""That are shown for a claim."""
FEW_QUESTIONS = 512
"""Questions that are learnt from."""
BEFORE = "before.json"
"""The first claim, which cannot be measured again once the run is fine-tuned."""
MIN_PROBABILITY = 1e-12
CHANGED = ("silver florin", "copper crown")
"""A currency that does not exist, and what it is replaced by."""


@dataclass(frozen=True)
class Claim:
    """A claim of the demo: its name and numbers in ``demo.json``, its sentence, and what was asked and explained for it, as JSON."""

    name: str
    says: str
    facts: dict[str, Any]
    answers: list[dict[str, Any]] = field(default_factory=list)
    explanation: dict[str, Any] | None = None


def demo_recipe(directory: Path, changes: dict[str, dict[str, Any]] | None = None) -> Recipe:
    """The recipe of the released model, its paths counted from the demo's directory."""
    values = tomllib.loads((files("realm.experiments") / "demo.toml").read_text("utf-8"))
    return build_recipe(values, path=Path(directory) / "demo.toml", overrides=changes)


def run_demo(
    directory: Path, *, progress: Progress, show: Callable[[Claim], None], changes: dict[str, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Show every claim, as soon as it is measured, in the order in which a person would ask for them.

    ``changes``: values of the recipe, {"run": {"seed": 1}}. Returns the ``demo --json`` object: {"run", "seconds", "claims": {name:
    facts}}. Raises ConfigError: the released model's base is not installed; RealmError: the user can cure it."""
    started, directory = time.perf_counter(), Path(directory)
    recipe, paths = demo_recipe(directory, changes), RunPaths(directory)
    claim_run(paths, recipe)  # before the atlas is written: another run's directory is left as it is
    atlas = directory / "atlas"
    write_atlas(atlas)
    questions = load_questions(atlas / "qa_train.jsonl")
    write_questions(atlas / "qa_few.jsonl", random.Random(recipe.run.seed).sample(questions, min(FEW_QUESTIONS, len(questions))))
    shown: list[Claim] = []

    def claim(found: Claim) -> None:
        shown.append(found)
        progress.close()
        show(found)

    claim(_before(recipe, paths, progress, started))
    run_recipe(recipe, directory, stages=("finetune", "eval"), progress=progress)
    run = open_run(directory)
    claim(_after_questions(run, shown[0]))
    own = _own_words(atlas)
    for measure in (_in_own_words, _by_words_alone, _without_documents):
        claim(measure(run, own))
    claim(_filled(run))
    claim(_changed(run, atlas, progress))
    summary = {"run": str(directory), "seconds": time.perf_counter() - started, "claims": {found.name: found.facts for found in shown}}
    write_json(directory / "demo.json", summary)
    answers = [answer for found in shown[1:] for answer in found.answers]  # the trained model's
    write_note(paths.results / "answers.json", answers)
    write_note(paths.results / "claims.json", [found.says for found in shown])
    if explanation := next((found.explanation for found in shown if found.explanation), None):
        write_note(paths.results / "explanation.json", explanation)
    list_files(paths)
    write_report(paths)
    return summary


def _own_words(atlas: Path) -> list[Question]:
    """Test questions in words that no template has, written by hand, with the answers that the atlas has for them."""
    known = {question.id.rpartition("/")[0]: question for question in load_questions(atlas / "qa_test.jsonl")}
    written = tomllib.loads((files("realm.experiments") / "own_words.toml").read_text("utf-8"))
    rows = [(f"{domain}/{name}", text) for domain, asked in written.items() for name, text in asked.items()]
    return [replace(known[name], text=text) for name, text in rows if name in known]


def _before(recipe: Recipe, paths: RunPaths, progress: Progress, started: float) -> Claim:
    """Answers of the released model as it is."""
    if (known := read_note(paths.root / BEFORE)) is not None:
        return Claim(**known)
    plain = replace(recipe, finetune=replace(recipe.finetune, train=""), eval=replace(recipe.eval, qa=""))
    run_recipe(plain, paths.root, stages=("corpus", "pretrain"), progress=progress)
    run = open_run(paths.root)
    questions = load_questions(paths.root / "atlas" / "qa_test.jsonl")
    first: dict[str, Question] = {}
    for question in questions:
        first.setdefault(question.id.partition("/")[0], question)
    answers = _asked(run, run.answerer, list(first.values())[:QUESTIONS])
    seconds = time.perf_counter() - started
    facts = _scored(run, run.source, run.answerer, questions) | {"first_answers_after": round(seconds, 1)}
    says = (
        f"Before any training, on {len(run.documents):,} articles that the model never saw: {facts['em']:.0%} of {facts['n']} questions "
        f"answered exactly, the article found at once for {facts['recall']['1']:.0%}. First answers after {seconds:.0f} s."
    )
    claim = Claim("before", says, facts, answers)
    write_note(paths.root / BEFORE, vars(claim))
    return claim


def _after_questions(run: OpenRun, before: Claim) -> Claim:
    """A few questions; the first ones are asked once more."""
    facts = _told(dict(read_note(run.paths.results / "finetune.json")))
    first = {answer["question"] for answer in before.answers}
    again = [question for question in load_questions(run.paths.root / "atlas" / "qa_test.jsonl") if question.text in first]
    taught = stage_facts(run.paths, "finetune")["questions"]
    says = f"After {taught:,} questions about other things: {facts['em']:.0%} answered, found at once {facts['recall']['1']:.0%}."
    return Claim("questions", says, facts, _asked(run, run.answerer, again))


def _in_own_words(run: OpenRun, own: Sequence[Question]) -> Claim:
    facts = _scored(run, run.source, run.answerer, own)
    says = f"{facts['n']} questions written by hand, in words that no training question has: {facts['em']:.0%} answered."
    return Claim("own_words", says, facts, _asked(run, run.answerer, own[:: len(own) // QUESTIONS][:QUESTIONS]))


def _by_words_alone(run: OpenRun, own: Sequence[Question]) -> Claim:
    source = run.source_by("sparse")
    facts = _scored(run, source, run.networks.reader.over(run.inputs, source, versions=run.versions), own)
    says = f"The same reader over BM25, which compares words alone: {facts['em']:.0%} of them, found at once {facts['recall']['1']:.0%}."
    return Claim("bm25", says, facts)


def _without_documents(run: OpenRun, own: Sequence[Question]) -> Claim:
    """Claim that knowledge is in the documents: without those that state the answers, the model has none."""
    there = set(run.documents)
    left_out = [[document for document in question.positive_ids if document in there] for question in own]
    answers = [(run.answerer_without(ids).answer([q.text], k=run.recipe.read)[0], q) for q, ids in zip(own, left_out, strict=True)]
    right = sum(is_correct(answer.answer, question) for answer, question in answers) / len(answers)
    kept_back = sum(answer.sureness < run.abstain_below for answer, _ in answers) / len(answers)
    facts = {"n": len(answers), "em": right, "kept_back": kept_back if run.abstain_below else None}
    said = f"; it abstains on {kept_back:.0%}" if run.abstain_below else ""
    return Claim("without_documents", f"With the documents that state them left out: {right:.0%} answered{said}.", facts)


def _filled(run: OpenRun) -> Claim:
    found = run.explain(SENTENCE, targets=[TARGET]).to_dict()
    times = found["p_y"] / max(found["p_y_null"], MIN_PROBABILITY)
    first = (found["predictions"] or [{"text": ""}])[0]["text"]
    says = f"Which documents help? It fills in “{first}”; with these “{TARGET}” is {times:,.0f} times as likely as with none:"
    facts = {"p": found["p_y"], "p_null": found["p_y_null"], "prediction": first}
    return Claim("explained", says, facts, explanation=found)


def _changed(run: OpenRun, atlas: Path, progress: Progress) -> Claim:
    """A document about a country that does not exist is added, then changed: the answers follow, and nothing is trained."""
    first = json.loads((atlas / "invented.jsonl").read_text("utf-8").splitlines()[0])
    second = {**first, "text": first["text"].replace(*CHANGED)}
    (atlas / "changed.jsonl").write_text(json.dumps(second, ensure_ascii=False) + "\n", "utf-8")
    questions = load_questions(atlas / "invented_qa.jsonl")
    money = [replace(q, answers=(CHANGED[1],)) for q in questions if CHANGED[0] in q.answers]
    if first["id"] in run.documents:
        update_documents(run.paths.corpus, [atlas / "invented.jsonl"])
    else:
        add_documents(run.paths.corpus, [atlas / "invented.jsonl"])
    added, _ = run.with_added()
    answers = _asked(added, added.answerer, questions)
    update_documents(run.paths.corpus, [atlas / "changed.jsonl"])
    changed, _ = added.with_added()
    answers += _asked(changed, changed.answerer, money)
    right = [answer["correct"] for answer in answers]
    facts = {"added": right[: len(questions)], "changed": right[len(questions) :]}
    says = (
        f"A document about an invented country was added: {sum(facts['added'])} of {len(questions)} questions about it answered right. "
        f"Then its currency was changed: the answer {'followed' if all(facts['changed']) else 'did not follow'}. Nothing was trained."
    )
    return Claim("changed", says, facts, answers)


def _asked(run: OpenRun, answerer: Answerer, questions: Sequence[Question]) -> list[dict[str, Any]]:
    """Answers, each with whether it is right; one below the run's threshold is marked as abstained."""
    readings = answer_all(answerer, Relevance(run.inputs.store), questions, run.recipe.read)
    return [replace(reading, answer=leveled(reading.answer, run.abstain_below)).to_dict() for reading in readings]


def _scored(run: OpenRun, source: Source, answerer: Answerer, questions: Sequence[Question]) -> dict[str, Any]:
    relevance = Relevance(run.inputs.store)
    found = evaluate_retrieval(source, relevance, questions, run.recipe.eval.k)
    return _told(found | evaluate_answers(answerer, relevance, questions, run.recipe.read))


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """The numbers of an evaluation that the demo tells; recall is that of the right article."""
    return {"n": row["n"], "em": row["em"], "em_interval": row["em_interval"], "recall": row["recall_gold"] or row["recall"]}
