"""Baselines on a run of seconds, trained, scored and resumed like the run; and over a published body: only the retriever differs."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from small import jsonl
from toy_runs import context_of

from realm.errors import ConfigError, DataError
from realm.evaluation.measures import is_correct
from realm.evaluation.places import Spans
from realm.evaluation.questions.loading import load_datasets, load_questions, pooled
from realm.experiments.compare import chosen_rows, compare
from realm.models.model import state_sha256
from realm.models.types import Question
from realm.progress import Progress
from realm.recipe import build_recipe, dump_recipe, load_recipe
from realm.storage.files import sha256_file
from realm.storage.layout import stage_facts
from realm.storage.manifests import read_note
from realm.storage.metrics import MetricsLog
from realm.training.baselines import closed_book
from realm.training.baselines.closed_book import (
    LONGEST_ANSWER,
    QuestionsTask,
    SentencesTask,
    answer_closed_book,
    as_spelled,
    empty_joint,
    reachable,
    remembered,
    share_correct,
)
from realm.training.baselines.orqa import CLOZE, ClozeTask, finetune_with, published_retriever, retrieving_wordpieces
from realm.training.baselines.retrievers import LOSS_TOLERANCE, SCALE_QUESTIONS, SCALES, Bm25Candidates, starting_scale
from realm.training.baselines.rows import CONTENDERS, run_contender
from realm.training.context import load_stage
from realm.training.finetune.task import ReadingTask
from realm.training.starting import with_new_reader
from realm.training.warm import IctTask, WarmTask

KNOWN = {contender.name: contender for contender in CONTENDERS}
STAGES = {"closed_book": 6, "bm25": 5}
"""Steps: 8 epochs of 6 questions in batches of 8, [finetune] steps."""


@pytest.fixture(scope="module")
def small_batches():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closed_book, "BATCH", 8)
        yield


@pytest.fixture(scope="module")
def recipe(tiny_run):
    return load_recipe(tiny_run.parent / "recipe.toml", {"eval": {"closed_book_epochs": 8}})


@pytest.fixture(scope="module")
def trained(tiny_run, recipe, small_batches, tmp_path_factory):
    context = context_of(shutil.copytree(tiny_run, tmp_path_factory.mktemp("baselines") / "run"), recipe)
    for name in STAGES:
        run_contender(context, KNOWN[name])
    return context


def result(context, name):
    return read_note(context.paths.root / "compare" / f"{name}.json")


def questions_of(context):
    return pooled(load_datasets(context.recipe.eval_files))


def test_steps_are_what_the_run_saw_without_questions_of_patterns(trained):
    rows = list(MetricsLog(trained.paths.metrics).rows())
    for stage, steps in STAGES.items():
        mine = [row for row in rows if row["stage"] == stage and "loss" in row]
        assert mine[-1]["step"] == steps and np.isfinite(mine[-1]["loss"])
    assert stage_facts(trained.paths, "closed_book")["steps"] == 6 and stage_facts(trained.paths, "bm25")["steps"] == 5
    regex = dataclasses.replace(questions_of(trained)[0], answer_type="regex")
    with pytest.raises(DataError, match="at most six wordpieces"):
        QuestionsTask(trained, load_stage(trained, "closed_book"), [regex])


def test_closed_book_results(trained):
    row, test = result(trained, "closed_book"), questions_of(trained)
    model = load_stage(trained, "closed_book")
    assert not model.has("embedder") and not model.has("reader")
    predictions = answer_closed_book(trained, model, test)
    share = sum(is_correct(p, q) for p, q in zip(predictions, as_spelled(trained.store.tokenizer, test), strict=True)) / len(test)
    assert row["name"] == "closed_book" and row["n"] == 6 and row["em"] == share
    assert 0 <= row["em_interval"][0] <= row["em"] <= row["em_interval"][1] <= 1
    learnt = load_questions(Path(trained.recipe.finetune.train))
    assert row["train_em"] == sum(share_correct(trained, model, learnt)) / 6 and reachable(trained, learnt) == 1


def test_a_closed_book_that_has_not_learnt_says_so(trained, monkeypatch):
    said = []
    context, model = dataclasses.replace(trained, say=said.append), load_stage(trained, "closed_book")
    for right, told in ((True, 0), (False, 1)):
        monkeypatch.setattr(closed_book, "share_correct", lambda context, model, asked, right=right: [right] * len(asked))
        assert remembered(context, model) == right and len(said) == told
    assert "remembers 0% of its training questions, and could write 100%" in said[0] and "eval.closed_book_epochs" in said[0]


def test_answers_count_in_the_spelling_of_the_tokenizer(trained):
    """What the wordpieces of an answer are read back as is right; it was not, though nothing else can be written."""
    tokenizer = trained.store.tokenizer
    questions = [
        Question("us", "?", ("U.S. (1950)",)),
        Question("plain", "?", ("Tirel",)),
        Question("p", "?", ("U.S",), answer_type="regex"),
    ]
    written = [tokenizer.decode(tokenizer.encode([question.answers[0]])[0]) for question in questions]
    spelled = as_spelled(tokenizer, questions)
    assert [is_correct(text, question) for text, question in zip(written, questions, strict=True)][:2] == [False, True]
    assert [is_correct(text, question) for text, question in zip(written, spelled, strict=True)][:2] == [True, True]
    assert spelled[2] == questions[2] and all(set(q.answers) <= set(s.answers) for q, s in zip(questions, spelled, strict=True))
    assert reachable(trained, [*questions, Question("long", "?", ("the winters are long in Arvad and Belmor",))]) < 1


def test_it_reads_as_many_wordpieces_as_realm(trained, tiny_run):
    """Counted in the steps that it took, not by the estimate that chose them."""
    pretrained, facts = stage_facts(trained.paths, "pretrain"), stage_facts(trained.paths, "closed_book")
    task = SentencesTask(trained, load_stage(trained, "closed_book"))
    steps = max(row["step"] for row in MetricsLog(trained.paths.metrics).rows() if row["stage"] == "closed_book_pretrain")
    read = [task.example(position, item)[0] for step in range(steps) for position, item in task.order.batch(step, closed_book.BATCH)]
    warm = WarmTask(trained, load_stage(trained, "warm"))
    pairs = [warm.pairs.example(item, at) for step in range(5) for at, item in warm.order.batch(step, trained.recipe.warm.batch)]
    joint = trained.inputs.featurizer.joint
    of_realm = pretrained["encoded"] + sum(len(joint(query.ids, body)) for query, body in pairs)
    of_closed_book = sum(len(empty_joint(trained, ids)) for ids in read)
    assert of_closed_book == pytest.approx(of_realm, rel=0.15) and facts["encoded"] == pytest.approx(of_closed_book, rel=0.1)


def test_bm25_results(trained):
    row, test = result(trained, "bm25"), questions_of(trained)
    assert row["name"] == "bm25" and row["n"] == 6 and set(row["recall"]) == set(row["recall_gold"]) == {"1", "5"}
    # Two blocks name the country of a question, both are gold, and one of them holds all its words.
    assert row["recall_gold"] == {"1": 1.0, "5": 1.0} and row["recall"]["5"] == 1.0
    assert 0 <= row["em_interval"][0] <= row["em"] <= row["em_interval"][1] <= 1 and row["em"] <= row["f1"] <= 1
    facts, model = stage_facts(trained.paths, "bm25"), load_stage(trained, "bm25")
    assert facts["scale"] != 1.0 and np.isfinite(facts["scale"]), "the scale is learnt"
    assert not model.has("embedder") and not model.has("encoder")
    found = Bm25Candidates(trained.inputs)([test[0].text], [[]], 5)
    assert {trained.store.block(int(r)).title for r in found.rows[0, :2]} == {"Arvad"}


def test_interrupted_and_resumed_to_the_same_weights(trained, tiny_run, recipe, tmp_path, interrupt_each):
    context, pending = context_of(shutil.copytree(tiny_run, tmp_path / "run"), recipe), {"closed_book_pretrain", *STAGES}
    interrupt_each(pending)
    for left in (2, 1, 0):
        with pytest.raises(KeyboardInterrupt):
            for name in STAGES:
                KNOWN[name].prepare(context)
        assert len(pending) == left
    for name in STAGES:
        KNOWN[name].prepare(context)
        weights = "model.safetensors"
        assert sha256_file(context.paths.stage(name) / weights) == sha256_file(trained.paths.stage(name) / weights)
    assert not any(context.paths.checkpoints(name).exists() for name in ("closed_book_pretrain", *STAGES))


def test_the_best_filling_is_the_best_of_one_by_one(trained):
    model, tokenizer, mask = load_stage(trained, "closed_book"), trained.store.tokenizer, trained.inputs.featurizer.mask
    model.encoder.eval()
    questions, expected = questions_of(trained), []
    for question in questions:
        ids = tokenizer.encode([question.text])[0]
        where = torch.tensor([[len(ids) + 1 + i for i in range(LONGEST_ANSWER)]])
        with torch.no_grad():
            slots = model.encoder.log_probs([empty_joint(trained, [*ids, *[mask] * LONGEST_ANSWER])], where)[0]
        expected.append(tokenizer.decode(best_of_all_lengths(slots, trained.inputs.featurizer.pad)))
    assert answer_closed_book(trained, model, questions) == expected
    assert answer_closed_book(trained, model, questions[:1]) == expected[:1]


def best_of_all_lengths(slots, pad):
    best = (-np.inf, [])
    for length in range(1, len(slots) + 1):
        total, ids = 0.0, []
        for slot, row in enumerate(slots.tolist()):
            if slot < length:
                wordpiece = max((w for w in range(len(row)) if w != pad), key=row.__getitem__)
                ids.append(wordpiece)
                total += row[wordpiece]
            else:
                total += row[pad]
        best = max(best, (total, ids), key=lambda pair: pair[0])
    return best[1]


def questions_task(context, model, *answers):
    rows = [Question(str(n), f"What is the currency of Arvad number {n}?", a) for n, a in enumerate(answers)]
    return QuestionsTask(context, model, rows)


def test_the_answer_stands_in_masks_behind_the_question(trained):
    encode, mask = trained.store.tokenizer.encode, trained.inputs.featurizer.mask
    long = "Arvad Belmor Carsin Dulwen Estrag Faldor Arvad Belmor"
    task = questions_task(trained, load_stage(trained, "closed_book"), ("Tirel",), (long, "Osten"), (long,))
    assert len(encode([long])[0]) > LONGEST_ANSWER and len(task.items) == 2, "an answer that is too long is left out, another is taken"
    for item, answer in enumerate(("Tirel", "Osten")):
        question, target = encode([f"What is the currency of Arvad number {item}?"])[0], encode([answer])[0]
        ids, positions, targets = task.example(0, item)
        assert ids == question + [mask] * LONGEST_ANSWER
        assert targets == target + [trained.inputs.featurizer.pad] * (LONGEST_ANSWER - len(target)), "nothing gives its length away"
        assert positions == list(range(len(question), len(question) + LONGEST_ANSWER))
    with pytest.raises(DataError, match="at most six wordpieces"):
        questions_task(trained, load_stage(trained, "closed_book"), (long,))


def test_the_scale_starts_where_the_loss_is_smallest(trained):
    source = Bm25Candidates(trained.inputs)
    model = with_new_reader(trained, load_stage(trained, "pretrain"), seed=0)
    task = ReadingTask("bm25", trained, source, model.reader, questions_of(trained), [])

    def loss_at(scale):
        torch.nn.init.constant_(source.scale, scale)
        wide, correct = task.wide(list(range(len(task.questions))), task.tokens)
        masses = [scores.detach().double().softmax(0)[right].sum() for scores, right in zip(wide.scores, correct, strict=True)]
        return -float(torch.stack(masses).log().mean())

    best = starting_scale(task)
    assert len(task.questions) <= SCALE_QUESTIONS and best in SCALES
    around = np.array([loss_at(scale) for scale in SCALES])
    assert np.ptp(around) > LOSS_TOLERANCE, "the scale matters"
    assert best == min(scale for scale, loss in zip(SCALES, around, strict=True) if loss <= around.min() + LOSS_TOLERANCE)
    task.answers = [Spans.union([]) for _ in task.questions]
    assert starting_scale(task) == 1.0, "nothing is found: nothing is known"


ROWS = ["bm25", "published", "orqa", "realm"]
BESIDE = ("published", "orqa", "finetune")


def asked(root, recipe):
    """Questions on the bridges, to learn from and to be asked; each its file."""
    rows = [json.loads(line) for line in Path(recipe.corpus.sources[0]).read_text().splitlines()][::2]
    files = []
    for name, words in (("train", "By whom was the stone bridge of {} built?"), ("test", "Who built the old bridge of {}?")):
        questions = [
            {"id": row["id"], "question": words.format(row["id"]), "answers": [row["text"].split("built by ")[1].split(".")[0]]}
            for row in rows
        ]
        files.append(str(jsonl(root / f"{name}.jsonl", questions)))
    return files


def over_body(root, towns, make_body, **pretrain):
    """A recipe of seconds over a body in small, whose reader learns first and queries alone after it."""
    corpus = towns(root)
    texts = [json.loads(line)["text"] for line in Path(corpus.corpus.sources[0]).read_text().splitlines()]
    (root / "body").mkdir()
    body = make_body(root / "body", texts)
    train, test = asked(root, corpus)
    return build_recipe( {
        "model": {"body": str(body), "span_hidden": 32}, "corpus": {"sources": list(corpus.corpus.sources)},
        "run": {"threads": 1, "device": "cpu", "bf16": False},
        "pretrain": {"fill": "pointer", "steps": 6, "reader_first": 4, "batch": 4, "held_out": 2, "eval_every": 6, **pretrain},
        "warm": {"steps": 2, "batch": 4}, "ict": {"steps": 2, "batch": 4},
        "finetune": {"train": train, "steps": 2, "batch": 2, "read": 2, "start_questions": 0},
        "eval": {"qa": test, "k": [1, 5]},
    })  # fmt: skip


@pytest.fixture(scope="module")
def compared(tmp_path_factory, towns, make_body):
    root = tmp_path_factory.mktemp("beside")
    recipe = over_body(root, towns, make_body)
    return recipe, root / "out", compare(recipe, root / "out", rows=ROWS, progress=Progress(quiet=True))


def test_every_row_beside_a_published_body_is_measured(compared):
    _, _, found = compared
    assert [row["name"] for row in found["rows"]] == ["bm25", "published", "orqa", "finetune"] and found["n"] == 12
    assert [(gap["of"], gap["minus"]) for gap in found["differences"]] == [("finetune", "published"), ("finetune", "orqa")]
    read = {row["name"]: row["encoded"] for row in found["rows"]}
    assert read["published"] < read["orqa"] and read["orqa"] == pytest.approx(read["finetune"], rel=0.25)


@pytest.mark.parametrize("steps", [0, 2])
def test_a_reader_that_points_starts_the_closed_book(compared, small_batches, tmp_path, steps):
    recipe, out, _ = compared
    run, learns = out / "seed-0", {"steps": steps, "reader_first": 0, "own_block": 0.0}
    values = {"model": {"body": str(run / "stages" / "pretrain")}, "pretrain": learns, "corpus": {"tokenizer": str(run / "corpus")}}
    again = build_recipe(dataclasses.asdict(recipe), overrides=values | {"eval": {"closed_book_epochs": 1}})
    assert compare(again, tmp_path / "out", rows=["closed_book"], progress=Progress(quiet=True))["rows"][0]["name"] == "closed_book"


def test_only_the_retriever_differs(compared, monkeypatch):
    """Before a question: one reader, one index, documents as published, three embedders of queries."""
    recipe, out, _ = compared
    context, starts = context_of(out / "seed-0", recipe), {}
    monkeypatch.setattr("realm.training.baselines.orqa.train_reader", lambda *_: {})
    monkeypatch.setattr("realm.training.context.publish_stage", lambda _, stage, model, *rest: starts.update({stage: model}))
    finetune_with(context, "published", published_retriever(context), "")
    finetune_with(context, "orqa", load_stage(context, CLOZE), "")
    starts["finetune"] = load_stage(context, "pretrain")
    for part, many in (("reader", 1), ("documents", 1), ("embedder", 3)):
        assert len({state_sha256(getattr(starts[stage], part)) for stage in BESIDE}) == many, part
    assert state_sha256(starts["published"].embedder) == state_sha256(starts["published"].documents)
    assert {stage_facts(context.paths, stage)["generation"] for stage in BESIDE} == {1}


def test_another_seed_searches_the_first_ones_index_and_learns_what_it_would_alone(compared, tmp_path):
    recipe, out, _ = compared
    shutil.copytree(out, tmp_path / "out")
    compare(recipe, tmp_path / "out", rows=["published"], seeds=2, progress=Progress(quiet=True))
    alone = dataclasses.replace(recipe.run, seed=1)
    compare(dataclasses.replace(recipe, run=alone), tmp_path / "alone", rows=["published"], progress=Progress(quiet=True))
    runs = [tmp_path / run for run in ("out/seed-0", "out/seed-1", "alone/seed-1")]
    vectors = [run / "index" / "000001" / "vectors-00000.npy" for run in runs]
    assert vectors[0].stat().st_mtime_ns == vectors[1].stat().st_mtime_ns and vectors[1].read_bytes() == vectors[2].read_bytes()
    for stage in ("pretrain", "published"):
        weights = [sha256_file(run / "stages" / stage / "model.safetensors") for run in runs]
        assert weights[0] != weights[1] == weights[2]


def test_the_twin_reads_as_much_as_the_retriever_learnt_from(compared):
    recipe, out, _ = compared
    context = context_of(out / "seed-0", recipe)
    assert retrieving_wordpieces(context) == pytest.approx(stage_facts(context.paths, "pretrain")["encoded"] / 3), "two steps of six"
    task = ClozeTask(context, published_retriever(context))
    assert task.encoded == pytest.approx(task.section.steps * task.wordpieces_a_step(), abs=1)
    assert abs(task.encoded - retrieving_wordpieces(context)) <= task.wordpieces_a_step() / 2
    assert [stage_facts(context.paths, CLOZE)[fact] for fact in ("steps", "encoded")] == [task.section.steps, task.encoded]
    assert task.section.lr == pytest.approx(recipe.pretrain.lr * recipe.pretrain.retriever_rate)


def test_queries_alone_learn_the_cloze(compared):
    """The gradient reaches the queries' side; blocks are embedded by the documents' own."""
    recipe, out, _ = compared
    context = context_of(out / "seed-0", recipe)
    model = published_retriever(context)
    task = IctTask(context, model)
    before = task.step(0).loss.detach()
    with torch.no_grad():
        for parameter in model.document_embedder.parameters():
            parameter.mul_(0.5)
    loss = task.step(0).loss
    assert float(loss.detach()) != pytest.approx(float(before)), "blocks are the documents' side's"
    loss.backward()
    assert any(p.grad is not None and float(p.grad.abs().sum()) for p in model.embedder.parameters())
    assert all(p.grad is None for p in model.document_embedder.parameters())


def test_where_documents_learn_each_row_has_an_index_of_its_own(tmp_path, towns, make_body):
    """Over the paper's filling of masks, both sides learn: the published embedder's index is not REALM's, and neither is the twin's."""
    values = {"fill": "mlm", "reader_first": 0, "documents": "trained", "own_block": 0.0, "questions": 0.0}
    recipe = over_body(tmp_path, towns, make_body, **values, steps=3, force=True, refresh="inline")
    found = compare(recipe, tmp_path / "out", rows=["published", "orqa", "realm"], progress=Progress(quiet=True))
    assert [row["name"] for row in found["rows"]] == ["published", "orqa", "finetune"]
    context = context_of(tmp_path / "out" / "seed-0", recipe)
    assert len({state_sha256(load_stage(context, stage).documents) for stage in BESIDE}) == 3
    beside = tmp_path / "out" / "seed-0" / "compare"
    assert len({sha256_file(next((beside / row / "index").rglob("vectors-*.npy"))) for row in ("published", "orqa")}) == 2


def test_rows_that_a_recipe_has_nothing_for(compared):
    recipe, _, _ = compared
    untrained = dataclasses.replace(recipe, pretrain=dataclasses.replace(recipe.pretrain, steps=0))
    assert [row.name for row in chosen_rows((), untrained)] == ["tfidf", "bm25", "hardem", "finetune", "closed_book"]
    with pytest.raises(ConfigError, match=r"the row orqa has nothing to start from in this recipe.*over published weights.*--rows"):
        chosen_rows(["orqa"], untrained)
    assert dump_recipe(recipe)
