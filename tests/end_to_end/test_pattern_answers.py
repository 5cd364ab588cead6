"""Fine-tuning on answers that are patterns: the loss of the strings they match, learning, same weights again, what is skipped and said."""

import dataclasses
import json
import shutil
import time
from pathlib import Path

import pytest
import torch

from realm.answering.opening import open_run
from realm.errors import ConfigError, DataError
from realm.evaluation.questions.loading import load_questions
from realm.models.model import RealmModel
from realm.models.types import Question
from realm.recipe import load_recipe
from realm.runs.checks import check_closed_book, check_questions
from realm.storage.paths import RunPaths
from realm.storage.stages import stage_facts
from realm.training.baselines.closed_book import QuestionsTask, run_closed_book
from realm.training.beams import Beam, LiveSource
from realm.training.context import fingerprint, load_stage, open_context
from realm.training.finetune import task as finetune_task
from realm.training.finetune.stage import run_finetune
from realm.training.finetune.task import GeneratingTask, ReadingTask, training_questions

HOSTILE = "([\\w ]|\\w)+\\d{9}"


def write(path, questions):
    rows = [{"id": q.id, "question": q.text, "answers": list(q.answers), "answer_type": q.answer_type} for q in questions]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def as_patterns(questions):
    """The same questions, their answers written as patterns that match nothing else."""
    return [
        dataclasses.replace(q, answers=tuple(f"nowhere|{a[0]}[{a[1]}]{a[2:]}" for a in q.answers), answer_type="regex") for q in questions
    ]


@pytest.fixture
def fresh(tiny_run, tmp_path):
    """The tiny run without its fine-tuning, its questions also as patterns, and half of them as these."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    shutil.rmtree(run / "stages" / "finetune")
    strings = load_questions(tiny_run.parent / "qa.jsonl")
    write(tmp_path / "strings.jsonl", strings)
    write(tmp_path / "patterns.jsonl", as_patterns(strings))
    write(tmp_path / "half-strings.jsonl", strings[:3])
    write(tmp_path / "half-patterns.jsonl", as_patterns(strings[3:]))
    return run


def context_of(run, *names, said=None, **finetune):
    files = tuple(str(run.parent / f"{name}.jsonl") for name in names)
    recipe = load_recipe(run / "config.toml", {"finetune": {"train": files, "dev": files, **finetune}})
    return open_context(RunPaths(run), recipe, lambda *_: None, (said if said is not None else []).append)


def task_of(context, tiny_run):
    opened = open_run(tiny_run)
    tuned = opened.networks.finetuned
    source = LiveSource(opened.source, tuned.embedder)
    task = ReadingTask("finetune", context, source, tuned.reader, *training_questions(context))
    task.model.eval()
    return task


def weights(run):
    return RealmModel.from_pretrained(run / "stages" / "finetune").state_dict()


def test_the_loss_is_that_of_the_strings(fresh, tiny_run):
    losses, found = [], []
    for names in (("strings",), ("patterns",), ("half-strings", "half-patterns")):
        task = task_of(context_of(fresh, *names, rename_rate=0.0, batch=6), tiny_run)
        with torch.no_grad():
            result = task.step(0)
        losses.append(float(result.loss))
        found.append((result.metrics["found"], [dict(spans) for spans in task.answers]))
    assert losses[0] == losses[1] == losses[2] > 0 and found[0] == found[1] == found[2] and found[0][0] == 1.0


def test_long_matches_count_for_the_retriever_alone(fresh, tiny_run):
    long = Question("long", "Where?", ("People in Arvad.*",), answer_type="regex")
    write(fresh.parent / "long.jsonl", [long])
    task = task_of(context_of(fresh, "long", batch=1, read=12, rename_rate=0.0), tiny_run)
    with torch.no_grad():
        metrics = task.step(0).metrics
    assert (metrics["found"], metrics["readable"]) == (1.0, 0.0)
    write(fresh.parent / "short.jsonl", [dataclasses.replace(long, answers=("People in Arvad",))])
    with torch.no_grad():
        assert task_of(context_of(fresh, "short", batch=1, read=12, rename_rate=0.0), tiny_run).step(0).metrics["readable"] == 1.0


def test_what_cannot_be_looked_for_is_skipped_and_named_once(fresh, tiny_run):
    questions = as_patterns(load_questions(Path(fresh.parent / "strings.jsonl")))[:2]
    questions = [dataclasses.replace(questions[0], answers=(*questions[0].answers, HOSTILE, "(")), questions[1]]
    write(fresh.parent / "bad.jsonl", [*questions, Question("none", "Who?", ("(", "[z"), answer_type="regex")])
    said = []
    context, began = context_of(fresh, "bad", said=said), time.process_time()
    task = task_of(context, tiny_run)
    assert time.process_time() - began < 20
    assert [q.id for q in task.questions] == [q.id for q in questions] and all(task.answers), "other patterns of a question are found"
    assert said == [
        "answers: 2 patterns do not compile, and are skipped: (   [z",
        f"answers: 1 patterns took too long and were given up, and are skipped: {HOSTILE}",
    ]
    again = task_of(context, tiny_run)
    assert (
        again.answers == task.answers and again.skipped == task.skipped == {"invalid": ("(", "[z"), "slow": (HOSTILE,)} and len(said) == 2
    )
    run_finetune(context)
    facts = stage_facts(context.paths, "finetune")
    assert facts["skipped_patterns"] == {"invalid": 2, "slow": 1} and facts["questions"] == 2
    write(fresh.parent / "none.jsonl", [Question("none", "Who?", ("(",), answer_type="regex")])
    with pytest.raises(DataError, match=r"none.jsonl: no valid pattern among the answers"):
        task_of(context_of(fresh, "none"), tiny_run)


def test_files_in_a_list(fresh):
    one, same = context_of(fresh, "half-strings"), context_of(fresh, "half-strings")
    single = dataclasses.replace(same.recipe.finetune, train=same.recipe.train_files[0], dev=same.recipe.dev_files[0])
    same = dataclasses.replace(same, recipe=dataclasses.replace(same.recipe, finetune=single))
    both, turned = context_of(fresh, "half-strings", "half-patterns"), context_of(fresh, "half-patterns", "half-strings")
    marks = [fingerprint(context, "finetune", "pretrain") for context in (one, same, both, turned)]
    assert marks[0] == marks[1] and len(set(marks)) == 3
    questions, dev = training_questions(both)
    assert [q.answer_type for q in questions] == ["string"] * 3 + ["regex"] * 3
    assert [q.answer_type for q in dev] == ["string", "regex"] * 3, "the first few are of all files"
    assert {q.id for q in questions} == {q.id for q in dev}
    with pytest.raises(ConfigError, match="named twice"):
        check_questions(context_of(fresh, "patterns", "patterns").recipe)


def test_the_closed_book_skips_patterns_and_says_so(fresh, tiny_run):
    said = []
    context = context_of(fresh, "half-strings", "half-patterns", said=said)
    run_closed_book(context)
    assert stage_facts(context.paths, "closed_book")["skipped"] == {"patterns": 3, "too_long": 0}
    (line,) = said
    assert line.startswith("closed book: learns from 3 questions; skipped are 3 with patterns, which cannot be written, and 0 with ")
    alone = context_of(fresh, "patterns")
    with pytest.raises(DataError, match="at most six wordpieces"):
        QuestionsTask(alone, load_stage(context, "closed_book"), training_questions(alone)[0])
    with pytest.raises(DataError, match=r"patterns.jsonl: the closed-book baseline .* cannot learn from patterns alone. Leave it out"):
        check_closed_book(alone.recipe)
    check_closed_book(context.recipe)


def test_a_question_whose_blocks_hold_no_answer_is_not_read(fresh, tiny_run, monkeypatch):
    """Left out, it costs nothing and changes nothing: the same loss and the same gradient as where all are read."""
    strings = load_questions(tiny_run.parent / "qa.jsonl")[:3]
    write(fresh.parent / "some.jsonl", [Question("nowhere", "Who knows?", ("nobody",)), *strings, Question("no", "Why?", ("no reason",))])
    task, calls = task_of(context_of(fresh, "some", read=3), tiny_run), []
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


def test_a_generative_reader_learns_to_write_what_patterns_match(fresh, tiny_run):
    nowhere = Question("nowhere", "Who knows?", ("at nobody",), answer_type="regex")
    several = Question("several", "When?", ("in 1950|has one", "y{0}"), answer_type="regex")
    long = Question("long", "Where?", ("The Tirel.*",), answer_type="regex")
    write(fresh.parent / "mixed.jsonl", [nowhere, several, long, Question("string", "What?", ("anything",))])
    context, opened, reader = context_of(fresh, "mixed", read=13), open_run(tiny_run), _Written()
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
