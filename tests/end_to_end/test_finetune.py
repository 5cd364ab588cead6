"""Fine-tuning against its definition: ORQA's loss written as loops, batches divided by questions, the best weights."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from realm.answering.opening import open_run
from realm.answering.pointing import read_candidates
from realm.errors import ConfigError, DataError
from realm.evaluation import places
from realm.evaluation.questions.loading import load_questions
from realm.models.model import RealmModel, state_sha256
from realm.models.types import Question
from realm.recipe import build_recipe, load_recipe
from realm.storage.paths import RunPaths
from realm.storage.stages import stage_facts
from realm.training.beams import LiveSource
from realm.training.context import load_stage, open_context
from realm.training.finetune.located import locate_answers
from realm.training.finetune.stage import run_finetune
from realm.training.finetune.task import ReadingTask, training_questions


def context_of(run, **finetune):
    return open_context(RunPaths(run), load_recipe(run / "config.toml", {"finetune": finetune}), lambda *_: None)


@pytest.fixture
def fresh(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    shutil.rmtree(run / "stages" / "finetune")
    return run


def task_of(run, **finetune):
    """The task on the tiny run's own networks; nothing random in its steps."""
    context, opened = context_of(run, rename_rate=0.0, **finetune), open_run(run)
    questions, dev = training_questions(context)
    source = LiveSource(opened.source, opened.networks.finetuned.embedder)
    task = ReadingTask("finetune", context, source, opened.networks.finetuned.reader, questions, dev)
    task.model.eval()
    return task


def brute_force(task, item):
    """ORQA's loss of one question: loops over blocks and spans, answers found by comparing wordpieces at every place."""
    store, question = task.context.store, task.questions[item]
    accepted, k = store.tokenizer.encode(list(question.answers)), task.section.read
    with torch.no_grad():
        found = task.source([question.text], [task.tokens[item]], task.section.beam)

    def spans_in(row):
        body = store.token_ids(row).tolist()
        return [(at, at + len(ids)) for ids in accepted for at in range(len(body)) if body[at : at + len(ids)] == ids]

    def unsure(row):
        named = task.section.evidence == "named" and any(len(store.rows_of_document(doc)) for doc in question.positive_ids)
        return named and bool(spans_in(row)) and store.block(row).doc_id not in question.positive_ids

    beam = [(int(row), float(score)) for row, score in zip(found.rows[0], found.scores[0], strict=True) if row >= 0]
    everything = sum(math.exp(score) for row, score in beam if not unsure(row))
    right = sum(math.exp(score) for row, score in beam if spans_in(row) and not unsure(row))
    loss = math.log(everything) - math.log(right) if right else 0.0
    places = list(range(k))
    if task.named[item] and not any(spans_in(row) and not unsure(row) for row, _ in beam[:k]):
        places[-1] = next(at for at, (row, _) in enumerate(beam) if spans_in(row) and not unsure(row))
    read = dataclasses.replace(found, rows=found.rows[:, places], scores=found.scores[:, places])
    with torch.no_grad():
        scores = read_candidates(task.reader, task.context.inputs, [task.tokens[item]], read.rows, read.scores)
    total, correct = 0.0, []
    for j, row in enumerate(read.rows[0].tolist()):
        length = len(store.token_ids(row)) if row >= 0 else 0
        for start in range(length):
            for end in range(start + 1, min(start + task.reader.max_span, length) + 1):
                mass = math.exp(float(scores.logits[0, j, start, end - start - 1]))
                if (start, end) in spans_in(row) and unsure(row):
                    continue
                total += mass
                correct += [mass] if (start, end) in spans_in(row) else []
    if correct:
        loss += math.log(total) - math.log(sum(correct))
    return loss


def test_one_question_is_orqas_loss(tiny_run):
    task = task_of(tiny_run, batch=1)
    for step in range(4):
        ((_, item),) = task.order.batch(step, 1)
        with torch.no_grad():
            result = task.step(step)
        assert result.weight == 1
        assert float(result.loss) == pytest.approx(brute_force(task, item), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("read", [1, 4])
def test_named_documents_alone_are_evidence(tiny_run, tmp_path, read):
    """What equals an answer in another document is neither right nor wrong, and the best named block is read however few are.

    Of a question that names no document of the corpus an answer counts anywhere, but no block is read for it alone."""
    everyone = [json.loads(line) for line in Path(load_recipe(tiny_run / "config.toml").finetune.train).read_text("utf-8").splitlines()]
    named = [row | {"positive_ids": row["positive_ids"][-1:]} for row in everyone[:-1]] + [
        everyone[-1] | {"positive_ids": ["no such document"]}
    ]
    (tmp_path / "named.jsonl").write_text("".join(json.dumps(row) + "\n" for row in named), "utf-8")
    task = task_of(tiny_run, batch=1, evidence="named", train=str(tmp_path / "named.jsonl"), read=read)
    forced = 0
    for step in range(len(named)):
        ((_, item),) = task.order.batch(step, 1)
        with torch.no_grad():
            result = task.step(step)
            wide, correct = task.wide([item], [task.tokens[item]])
        forced += task.named[item] and not bool(correct[0, :read].any())
        known = {doc for doc in task.questions[item].positive_ids if len(task.context.store.rows_of_document(doc))}
        holding = {task.context.store.block(row).doc_id for row, right in zip(wide.rows[0], correct[0], strict=True) if right}
        assert holding == known or (not known and len(holding) > 1)
        assert bool(known) == task.named[item]
        assert result.metrics["readable"] == (1 if known else float(correct[0, :read].any()))
        assert float(result.loss) == pytest.approx(brute_force(task, item), rel=1e-4, abs=1e-5)
    assert forced or read > 1


def test_a_reader_that_points_learns_what_a_block_holds(tiny_run):
    """Beside the objective, the mean of -log p(here|z,x) or -log p(none|z,x) over the blocks read, of questions without any answer too."""
    seen = set()
    for step in range(6):
        losses_of = []
        for presence in (0.0, 0.5):
            task = task_of(tiny_run, batch=1, read=2, presence=presence)
            task.reader.spec = dataclasses.replace(task.reader.spec, pointer=True)
            ((_, item),) = task.order.batch(step, 1)
            with torch.no_grad():
                losses_of.append(float(task.step(step).loss))
                wide, correct = task.wide([item], [task.tokens[item]])
                spans = read_candidates(task.reader, task.context.inputs, [task.tokens[item]], wide.rows[:, :2], wide.scores[:, :2])
        none = [math.exp(float(spans.not_here[0, j])) for j in range(2)]
        expected = sum(-math.log(1 - none[j] if correct[0, j] else none[j]) for j in range(2)) / 2
        assert losses_of[1] - losses_of[0] == pytest.approx(0.5 * expected, rel=1e-3, abs=1e-4)
        seen.add(int(correct[0, :2].sum()))
    assert {0, 1} <= seen, "questions with an answer among the blocks, and without"


def test_a_batch_is_divided_by_its_questions(tiny_run):
    """Loss and gradient of a batch are the means of those of its questions alone."""
    whole, alone = task_of(tiny_run, batch=4), task_of(tiny_run, batch=1)
    result = whole.step(0)
    result.mean.backward()
    gradient, losses_alone = whole.reader.dense.weight.grad, []
    for position in range(4):
        one = alone.step(position)
        losses_alone.append(float(one.mean.detach()))
        one.mean.backward()
    assert result.weight == 4 and float(result.mean.detach()) == pytest.approx(np.mean(losses_alone), rel=1e-5)
    assert alone.reader.dense.weight.grad is not None and gradient is not None
    torch.testing.assert_close(gradient, alone.reader.dense.weight.grad / 4, rtol=1e-3, atol=1e-6)


def test_answers_are_located_once(fresh, monkeypatch):
    shutil.rmtree(fresh / "answers")
    context = context_of(fresh)
    questions = load_questions(Path(context.recipe.finetune.train))
    first = locate_answers(context, questions).spans
    assert first == places.locate_answers(context.store, questions) and any(first)
    (file,) = (fresh / "answers").glob("*.npy")
    with monkeypatch.context() as patch:
        patch.setattr("realm.evaluation.places.locate_words", None)
        assert locate_answers(context, questions).spans == first, "read, not located"
    file.write_bytes(b"\x93NUMPY damaged")
    assert locate_answers(context, questions).spans == first, "damaged: located anew"
    assert locate_answers(context, [Question("x", "Who?", ("nobody at all",))]).spans == [{}]
    assert len(list((fresh / "answers").glob("*.npy"))) == 2, "other questions, another file"


def test_the_retriever_may_stay_as_pretraining_made_it(fresh):
    """At a rate of 0 neither of its sides changes by a bit, while the reader learns."""
    before = RealmModel.from_pretrained(fresh / "stages" / "pretrain")
    untrained = before.with_reader(0, span_hidden=16, max_span=10).reader
    run_finetune(context_of(fresh, retriever_rate=0.0))
    after = RealmModel.from_pretrained(fresh / "stages" / "finetune")
    for side in (after.embedder, after.documents):
        assert state_sha256(side) == state_sha256(before.documents)
    assert state_sha256(after.reader) != state_sha256(untrained)


def test_recall_on_dev_is_what_an_exhaustive_search_finds(tiny_run, monkeypatch):
    monkeypatch.setattr("realm.training.finetune.task.DEV_DEPTH", 2)
    task = task_of(tiny_run, eval_every=2, steps=6)
    task.dev = task.questions
    store = task.context.store

    def share():
        tokens = store.tokenizer.encode([question.text for question in task.dev])
        everything = task.source.find([question.text for question in task.dev], tokens, len(store))
        right = 0
        for question, rows in zip(task.dev, everything.rows, strict=True):
            bodies = [f" {' '.join(map(str, store.token_ids(int(row)).tolist()))} " for row in rows[:2]]
            wanted = [f" {' '.join(map(str, ids))} " for ids in store.tokenizer.encode(list(question.answers))]
            right += any(ids in body for body in bodies for ids in wanted)
        return right / len(task.dev)

    before = share()
    assert 0 < before < 1 and task.between(0) == {"dev_recall": before} and task.between(1) is None
    found = task.between(2)
    assert found is not None and set(found) == {"dev_em", "dev_recall"}, "so few questions tell of no change"
    torch.manual_seed(0)
    for _ in range(50):  # some embedder that finds answers to more or fewer of these few questions
        with torch.no_grad():
            for parameter in task.source.parameters():
                parameter.normal_(std=0.1)
        if share() != before:
            break
    monkeypatch.setattr("realm.training.finetune.task.MIN_DEV_FOR_GAIN", len(task.dev))
    other = task_of(tiny_run, eval_every=2, steps=6)
    other.dev = task.dev
    other.restore(task.state())
    other.source.load_state_dict(task.source.state_dict())
    found = other.between(4)
    assert found is not None and found["dev_recall"] == share() != before and found["dev_recall_gain"] == found["dev_recall"] - before


def test_the_best_weights_are_published_and_patience_ends_the_stage(fresh, monkeypatch):
    scores = iter([0.2, 0.6, 0.6, 0.4, 0.9])
    monkeypatch.setattr("realm.training.finetune.task.exact_match_share", lambda *_: next(scores))
    kept, between = {}, ReadingTask.between

    def noting(task, step):
        kept[step] = state_sha256(task.reader)
        return between(task, step)

    monkeypatch.setattr(ReadingTask, "between", noting)
    context = context_of(fresh, steps=12, eval_every=2, patience=2, publish="best")
    run_finetune(context)
    facts = stage_facts(context.paths, "finetune")
    assert (facts["steps"], facts["published_step"], facts["best_dev_em"]) == (8, 4, 0.6)
    assert state_sha256(RealmModel.from_pretrained(fresh / "stages" / "finetune").reader) == kept[4] != kept[8]


@pytest.mark.parametrize(("after", "kept"), [(0.1, "before"), (0.9, "after")])
def test_what_fine_tuning_made_worse_goes_back(fresh, monkeypatch, after, kept):
    """Question side and reader, each by its own measure, which is .5 of what the stage began with."""
    recalls, readers = iter([0.5, after]), list[str]()

    def exact_match(task):
        readers.append(state_sha256(task.reader))
        return after if len(readers) == 1 else 0.5

    monkeypatch.setattr(ReadingTask, "dev_recall", lambda task: next(recalls))
    monkeypatch.setattr(ReadingTask, "dev_em", exact_match)
    between = ReadingTask.between
    monkeypatch.setattr(ReadingTask, "between", lambda task, step: between(task, step) if step == 0 else None)
    context = context_of(fresh, steps=4, publish="better", retriever_rate=1.0)
    run_finetune(context)
    gate = stage_facts(context.paths, "finetune")["gate"]
    assert {(name, found["before"], found["after"], found["kept"]) for name, found in gate.items()} == {
        ("retriever", 0.5, after, kept),
        ("reader", 0.5, after, kept),
    }
    model, began = RealmModel.from_pretrained(fresh / "stages" / "finetune"), load_stage(context, "pretrain")
    assert (state_sha256(model.embedder) == state_sha256(began.embedder)) == (kept == "before")
    assert readers[0] != readers[1] and state_sha256(model.reader) == readers[kept == "before"]


def test_without_dev_nothing_says_what_got_worse(fresh):
    context = context_of(fresh, steps=2, dev="", publish="better")
    run_finetune(context)
    facts = stage_facts(context.paths, "finetune")
    assert "gate" not in facts and facts["questions"] == len(load_questions(Path(context.recipe.finetune.train))), "none is held out"


def recipe_with(**finetune):
    return build_recipe({"finetune": finetune})


def test_the_few_shot_preset():
    section = recipe_with(preset="few-shot", train="qa.jsonl").finetune
    assert section.publish == "best" and section.patience > 0 and section.steps <= 300
    assert recipe_with(preset="few-shot", train="qa.jsonl", steps=7).finetune.steps == 7, "what is written out wins"
    with pytest.raises(ConfigError, match=r"'finetune.preset' cannot be 'none'.*few-shot"):
        recipe_with(preset="none")
    with pytest.raises(ConfigError, match="there is no dev to watch"):
        recipe_with(train="qa.jsonl", patience=2)
    for key, value in (("passages", "soft"), ("evidence", "none"), ("publish", "first")):
        with pytest.raises(ConfigError, match=f"'finetune.{key}' cannot be '{value}'"):
            recipe_with(**{key: value})


def test_few_questions_become_a_reader(fresh):
    """Eight questions without a dev file: every fourth is watched, the stage ends early or at its end, the run answers."""
    context = context_of(fresh, preset="few-shot", dev="", steps=6, eval_every=2, patience=4, publish="best")
    questions, dev = training_questions(context)
    everyone = load_questions(Path(context.recipe.finetune.train))
    assert [q.id for q in dev] == [q.id for q in everyone[3::4]] and {q.id for q in questions} == {q.id for q in everyone} - {dev[0].id}
    run_finetune(context)
    facts = stage_facts(context.paths, "finetune")
    assert facts["published_step"] in (2, 4, 6) and facts["questions"] == len(questions) and facts["slope"] > 0
    few = dataclasses.replace(context.recipe.finetune, train=str(fresh / "few.jsonl"))
    (fresh / "few.jsonl").write_text(json.dumps({"id": "a", "question": "Who?", "answers": ["Tirel"]}) + "\n")
    with pytest.raises(DataError, match=r"few.jsonl: 1 questions are too few.*finetune.dev"):
        training_questions(dataclasses.replace(context, recipe=dataclasses.replace(context.recipe, finetune=few)))


def test_a_beam_wider_than_the_corpus(tiny_run):
    task = task_of(tiny_run, batch=2, beam=100_000)
    wide, correct = task.wide([0, 1], [task.tokens[0], task.tokens[1]])
    assert wide.rows.shape == correct.shape == (2, int(task.context.store.live.sum()))
