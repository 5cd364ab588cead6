"""Fine-tuning against its definition: ORQA's loss as loops, batches divided by questions, the best weights, answers that are patterns."""

import dataclasses
import json
import math
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from small import jsonl
from toy_runs import context_of, copy_without, reading_of

from realm.answering.opening import open_run
from realm.answering.pointing import read_candidates
from realm.errors import ConfigError, DataError
from realm.evaluation import places
from realm.evaluation.questions.loading import load_questions, shared
from realm.models.model import RealmModel, state_sha256
from realm.models.types import Question
from realm.progress import Progress
from realm.recipe import build_recipe, load_recipe
from realm.runs.checks import check_closed_book, check_questions, shared_questions
from realm.runs.run import run_recipe
from realm.storage.layout import stage_facts
from realm.training.baselines.closed_book import QuestionsTask, run_closed_book
from realm.training.beams import Beam, LiveSource
from realm.training.context import fingerprint, load_stage
from realm.training.finetune import task as finetune_task
from realm.training.finetune.located import locate_answers
from realm.training.finetune.stage import run_finetune
from realm.training.finetune.task import GeneratingTask, ReadingTask, training_questions


@pytest.fixture
def fresh(tiny_run, tmp_path):
    return copy_without(tiny_run, tmp_path / "run", "stages/finetune")


def task_of(run, **finetune):
    """The task on the tiny run's own networks; nothing random in its steps."""
    return reading_of(context_of(run, finetune={"rename_rate": 0.0, **finetune}), run)


def tuning(run, **finetune):
    return context_of(run, finetune=finetune)


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
    wide, correct = task_of(tiny_run, batch=2, beam=100_000).wide([0, 1], task.tokens[:2])
    assert wide.rows.shape == correct.shape == (2, int(task.context.store.live.sum())), "a beam wider than the corpus"


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
    context = tuning(fresh)
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
    run_finetune(tuning(fresh, retriever_rate=0.0))
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
    context = tuning(fresh, steps=12, eval_every=2, patience=2, publish="best")
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
    context = tuning(fresh, steps=4, publish="better", retriever_rate=1.0)
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
    context = tuning(fresh, steps=2, dev="", publish="better")
    run_finetune(context)
    facts = stage_facts(context.paths, "finetune")
    assert "gate" not in facts and facts["questions"] == len(load_questions(Path(context.recipe.finetune.train))), "none is held out"


def test_the_few_shot_preset():
    section = build_recipe({"finetune": {"preset": "few-shot", "train": "qa.jsonl"}}).finetune
    assert section.publish == "best" and section.patience > 0 and section.steps <= 300
    few = {"preset": "few-shot", "train": "qa.jsonl", "steps": 7}
    assert build_recipe({"finetune": few}).finetune.steps == 7, "what is written out wins"


def test_few_questions_become_a_reader(fresh):
    """Eight questions without a dev file: every fourth is watched, the stage ends early or at its end, the run answers."""
    context = tuning(fresh, preset="few-shot", dev="", steps=6, eval_every=2, patience=4, publish="best")
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


@pytest.fixture
def half(tiny_run, tmp_path):
    """Six dev questions: three of their own, then one of the evaluation's in other spelling, one under its id, one under a mere number."""
    own, asked = (
        [json.loads(line) for line in (tiny_run.parent / f"{name}.jsonl").read_text("utf-8").splitlines()] for name in ("qa_dev", "qa")
    )
    same_text = asked[3] | {"id": "another", "question": "what is the  CURRENCY of the Dulwen"}
    same_id = own[4] | {"id": asked[4]["id"]}
    return jsonl(tmp_path / "half.jsonl", [*own[:3], same_text, same_id, own[5] | {"id": "6"}])


def test_shared_questions_are_found_and_counted(tiny_run, half):
    asked = [*load_questions(tiny_run.parent / "qa.jsonl"), Question("6", "Who?", ("x",))]
    assert [question.id for question in shared(load_questions(half), asked)] == ["another", "Estrag"]
    assert shared(load_questions(tiny_run.parent / "qa_dev.jsonl"), asked) == []

    def said(dev):
        return shared_questions(load_recipe(tiny_run / "config.toml", {"finetune": {"dev": str(dev)}}))

    assert said(tiny_run.parent / "qa_dev.jsonl") == ""
    assert "2 of 6 questions of finetune.dev are also in eval.qa" in said(half) and "calibrated on the other 4" in said(half)
    assert "6 of 6" in said(tiny_run.parent / "qa.jsonl") and "on no question" in said(tiny_run.parent / "qa.jsonl")
    assert "\n" not in said(half)


def test_a_run_says_it_once(tiny_run, tmp_path, write_tiny, capsys):
    recipe = write_tiny(tmp_path)
    for dev, times in (("qa.jsonl", 1), ("qa_dev.jsonl", 0)):
        loaded = load_recipe(recipe, {"finetune": {"dev": str(tmp_path / dev)}, "ict": {"steps": 1}})
        run_recipe(loaded, tmp_path / f"run-{dev}", stages=("corpus", "ict"), progress=Progress())
        assert capsys.readouterr().err.count("are also in eval.qa") == times


@pytest.mark.parametrize(("dev", "fitted"), [("half", 4), ("qa_dev", 6), ("qa", 0)])
def test_nothing_is_fitted_to_what_is_measured(tiny_run, run_copy, half, dev, fitted, monkeypatch):
    """The calibration looks at no question of the evaluation."""
    path = half if dev == "half" else tiny_run.parent / f"{dev}.jsonl"
    task = reading_of(context_of(run_copy, finetune={"dev": str(path)}, retrieval={"kind": "hybrid"}), run_copy)
    looked = []

    def watched(work, place):
        def watching(*arguments):
            looked.append({question.text for question in arguments[place]})
            return work(*arguments)

        return watching

    monkeypatch.setattr(finetune_task, "calibrate", watched(finetune_task.calibrate, 1))
    facts = task.calibration()
    assert len(task.dev) == 6, "all of them are watched"
    assert all(texts and not texts & {q.text for q in load_questions(tiny_run.parent / "qa.jsonl")} for texts in looked)
    assert facts["calibration"]["n"] == fitted if fitted else facts == {}


HOSTILE = "([\\w ]|\\w)+\\d{9}"


def write(path, questions):
    rows = [{"id": q.id, "question": q.text, "answers": list(q.answers), "answer_type": q.answer_type} for q in questions]
    return str(jsonl(path, rows))


def as_patterns(questions):
    """The same questions, their answers written as patterns that match nothing else."""
    return [
        dataclasses.replace(q, answers=tuple(f"nowhere|{a[0]}[{a[1]}]{a[2:]}" for a in q.answers), answer_type="regex") for q in questions
    ]


@pytest.fixture
def asked(fresh, tiny_run):
    """The tiny run without its fine-tuning; beside it its questions also as patterns, and half of them as these."""
    strings = load_questions(tiny_run.parent / "qa.jsonl")
    write(fresh.parent / "strings.jsonl", strings)
    write(fresh.parent / "patterns.jsonl", as_patterns(strings))
    write(fresh.parent / "half-strings.jsonl", strings[:3])
    write(fresh.parent / "half-patterns.jsonl", as_patterns(strings[3:]))
    return fresh


def tuning_on(run, *names, said=None, **finetune):
    files = tuple(str(run.parent / f"{name}.jsonl") for name in names)
    context = tuning(run, **{"train": files, "dev": files, **finetune})
    return dataclasses.replace(context, say=(said if said is not None else []).append)


def test_the_loss_is_that_of_the_strings(asked, tiny_run):
    losses, found = [], []
    for names in (("strings",), ("patterns",), ("half-strings", "half-patterns")):
        task = reading_of(tuning_on(asked, *names, rename_rate=0.0, batch=6), tiny_run)
        with torch.no_grad():
            result = task.step(0)
        losses.append(float(result.loss))
        found.append((result.metrics["found"], [dict(spans) for spans in task.answers]))
    assert losses[0] == losses[1] == losses[2] > 0 and found[0] == found[1] == found[2] and found[0][0] == 1.0


def test_long_matches_count_for_the_retriever_alone(asked, tiny_run):
    long = Question("long", "Where?", ("People in Arvad.*",), answer_type="regex")
    write(asked.parent / "long.jsonl", [long])
    task = reading_of(tuning_on(asked, "long", batch=1, read=12, rename_rate=0.0), tiny_run)
    with torch.no_grad():
        metrics = task.step(0).metrics
    assert (metrics["found"], metrics["readable"]) == (1.0, 0.0)
    write(asked.parent / "short.jsonl", [dataclasses.replace(long, answers=("People in Arvad",))])
    with torch.no_grad():
        assert reading_of(tuning_on(asked, "short", batch=1, read=12, rename_rate=0.0), tiny_run).step(0).metrics["readable"] == 1.0


def test_what_cannot_be_looked_for_is_skipped_and_named_once(asked, tiny_run):
    questions = as_patterns(load_questions(Path(asked.parent / "strings.jsonl")))[:2]
    questions = [dataclasses.replace(questions[0], answers=(*questions[0].answers, HOSTILE, "(")), questions[1]]
    write(asked.parent / "bad.jsonl", [*questions, Question("none", "Who?", ("(", "[z"), answer_type="regex")])
    said = []
    context, began = tuning_on(asked, "bad", said=said), time.process_time()
    task = reading_of(context, tiny_run)
    assert time.process_time() - began < 20
    assert [q.id for q in task.questions] == [q.id for q in questions] and all(task.answers), "other patterns of a question are found"
    assert said == [
        "answers: 2 patterns do not compile, and are skipped: (   [z",
        f"answers: 1 patterns took too long and were given up, and are skipped: {HOSTILE}",
    ]
    again = reading_of(context, tiny_run)
    assert (
        again.answers == task.answers and again.skipped == task.skipped == {"invalid": ("(", "[z"), "slow": (HOSTILE,)} and len(said) == 2
    )
    run_finetune(context)
    facts = stage_facts(context.paths, "finetune")
    assert facts["skipped_patterns"] == {"invalid": 2, "slow": 1} and facts["questions"] == 2
    write(asked.parent / "none.jsonl", [Question("none", "Who?", ("(",), answer_type="regex")])
    with pytest.raises(DataError, match=r"none.jsonl: no valid pattern among the answers"):
        reading_of(tuning_on(asked, "none"), tiny_run)


def test_files_in_a_list(asked):
    one, same = tuning_on(asked, "half-strings"), tuning_on(asked, "half-strings")
    single = dataclasses.replace(same.recipe.finetune, train=same.recipe.train_files[0], dev=same.recipe.dev_files[0])
    same = dataclasses.replace(same, recipe=dataclasses.replace(same.recipe, finetune=single))
    both, turned = tuning_on(asked, "half-strings", "half-patterns"), tuning_on(asked, "half-patterns", "half-strings")
    marks = [fingerprint(context, "finetune", "pretrain") for context in (one, same, both, turned)]
    assert marks[0] == marks[1] and len(set(marks)) == 3
    questions, dev = training_questions(both)
    assert [q.answer_type for q in questions] == ["string"] * 3 + ["regex"] * 3
    assert [q.answer_type for q in dev] == ["string", "regex"] * 3, "the first few are of all files"
    assert {q.id for q in questions} == {q.id for q in dev}
    with pytest.raises(ConfigError, match="named twice"):
        check_questions(tuning_on(asked, "patterns", "patterns").recipe)


def test_the_closed_book_skips_patterns_and_says_so(asked, tiny_run):
    said = []
    context = tuning_on(asked, "half-strings", "half-patterns", said=said)
    run_closed_book(context)
    assert stage_facts(context.paths, "closed_book")["skipped"] == {"patterns": 3, "too_long": 0}
    (line,) = said
    assert line.startswith("closed book: learns from 3 questions; skipped are 3 with patterns, which cannot be written, and 0 with ")
    alone = tuning_on(asked, "patterns")
    with pytest.raises(DataError, match="at most six wordpieces"):
        QuestionsTask(alone, load_stage(context, "closed_book"), training_questions(alone)[0])
    with pytest.raises(DataError, match=r"patterns.jsonl: the closed-book baseline .* cannot learn from patterns alone. Leave it out"):
        check_closed_book(alone.recipe)
    check_closed_book(context.recipe)


def test_a_question_whose_blocks_hold_no_answer_is_not_read(asked, tiny_run, monkeypatch):
    """Left out, it costs nothing and changes nothing: the same loss and the same gradient as where all are read."""
    strings = load_questions(tiny_run.parent / "qa.jsonl")[:3]
    write(asked.parent / "some.jsonl", [Question("nowhere", "Who knows?", ("nobody",)), *strings, Question("no", "Why?", ("no reason",))])
    task, calls = reading_of(tuning_on(asked, "some", read=3), tiny_run), []
    plain = finetune_task.read_candidates
    monkeypatch.setattr(finetune_task, "read_candidates", lambda *args, **named: (calls.append(len(args[2])), plain(*args, **named))[1])

    def of(items):
        wide, _ = task.wide(items, [task.tokens[i] for i in items])
        loss, found = task.reading([0] * len(items), items, [task.tokens[i] for i in items], Beam(wide.rows[:, :3], wide.scores[:, :3]))
        task.reader.zero_grad()
        loss.sum().backward()
        return loss.tolist(), found.tolist(), [p.grad.clone() for p in task.reader.parameters() if p.grad is not None]

    few, read = of([0, 1, 2, 3, 4]), calls.pop()
    with monkeypatch.context() as patch:
        patch.setattr(finetune_task, "_held", lambda places, items, rows: torch.ones(rows.shape, dtype=torch.bool))
        everyone = of([0, 1, 2, 3, 4])
    assert read < calls.pop() == 5 and few[1] == everyone[1] and sum(few[1]) > 0 and not few[1][0] and not few[1][4]
    assert few[0] == pytest.approx(everyone[0], abs=1e-5)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(few[2], everyone[2], strict=True))
    nothing = of([0, 4])
    assert calls.pop() == 1 and nothing[:2] == ([0.0, 0.0], [False, False])
    assert all(not gradient.any() for gradient in nothing[2])


class _Written:
    """In place of a reader that writes: a loss of 1, and what was to be written."""

    def __init__(self):
        self.asked = []

    def loss(self, questions, passages, answers):
        assert len(questions) == len(passages) == len(answers)
        self.asked += zip(questions, answers, strict=True)
        return torch.ones(len(answers))


def test_a_generative_reader_learns_to_write_what_patterns_match(asked, tiny_run):
    nowhere = Question("nowhere", "Who knows?", ("at nobody",), answer_type="regex")
    several = Question("several", "When?", ("in 1950|has one", "y{0}"), answer_type="regex")
    long = Question("long", "Where?", ("The Tirel.*",), answer_type="regex")
    write(asked.parent / "mixed.jsonl", [nowhere, several, long, Question("string", "What?", ("anything",))])
    context, opened, reader = tuning_on(asked, "mixed", read=13), open_run(tiny_run), _Written()
    source = LiveSource(opened.source, opened.networks.finetuned.embedder)
    task = GeneratingTask(context, source, torch.nn.Identity(), *training_questions(context))
    task.fusion = reader
    with torch.no_grad():
        wide, _ = task.wide([0, 1, 2, 3], task.tokens)
        for position in range(8):
            loss, learnt = task.reading([position] * 4, [0, 1, 2, 3], task.tokens, wide)
            assert learnt.tolist() == [False, True, False, True] and loss.tolist() == [0, 1, 0, 1]
    written = {question: {answer for asked, answer in reader.asked if asked == question} for question in ("When?", "What?")}
    assert written == {"When?": {"in 1950", "has one"}, "What?": {"anything"}}
