"""Reading given paragraphs: the loss against enumeration, a stage that learns and resumes, what is refused."""

import math

import pytest
import torch
from small import jsonl
from toy_runs import PRETRAINING, context_of, copy_without, train

from realm.errors import DataError
from realm.models.model import state_sha256
from realm.models.reader import SpanScores
from realm.models.types import Question
from realm.recipe import build_recipe
from realm.training.context import load_stage
from realm.training.finetune.given import (
    GivenParagraphs,
    GivenTask,
    given_questions,
    given_scores,
    gold_spans,
    posterior_nll,
    read_given,
)
from realm.training.finetune.stage import run_finetune
from realm.training.starting import with_new_reader

from .conftest import TOWNS


def rows(count):
    """Questions on who built which bridge; every fourth is asked of a paragraph about another town."""
    found = []
    for n in range(count):
        town, name, year = TOWNS[n % 12], f"Karel Brandt{n % 7}", 1700 + n
        context = f"Many people walk there. The bridge of {town} was built by {name} in {year}. It is long."
        other = TOWNS[(n + 5) % 12]
        asked, answers = (
            (f"When was the bridge of {other} built?", []) if n % 4 == 3 else (f"When was the bridge of {town} built?", [str(year)])
        )
        found.append({"id": str(n), "question": asked, "answers": answers, "context": context, "title": town if n % 2 else ""})
    return found


def recipe_of(root, towns, questions, **finetune):
    jsonl(root / "train.jsonl", questions)
    recipe = towns(root, steps=0, fill="mlm", masking="salient", shown=0.0, questions=0.0, reader_first=0)
    values = {"sources": list(recipe.corpus.sources), "vocab_size": 400}
    return build_recipe( {
        "corpus": values, "run": {"threads": 1, "device": "cpu", "checkpoint_every": 2},
        "model": {"hidden": 32, "layers": 2, "heads": 2, "intermediate": 64, "projection": 16, "span_hidden": 32, "dropout": 0.0},
        "warm": {"steps": 1, "batch": 4}, "ict": {"steps": 1, "batch": 8}, "pretrain": {"steps": 0, "refresh": "inline"},
        "finetune": {"passages": "given", "train": str(root / "train.jsonl"), "batch": 8, "lr": 3e-3, "warmup": 5, **finetune},
    })  # fmt: skip


@pytest.fixture(scope="module")
def start(tmp_path_factory, towns):
    root = tmp_path_factory.mktemp("given")
    train(recipe_of(root, towns, rows(64), steps=12), root / "run", PRETRAINING)
    return root


def reading(root, towns, **finetune):
    return context_of(root / "run", recipe_of(root, towns, rows(64), **finetune))


def test_the_loss_is_the_mass_on_answers_or_on_not_here():
    """Two windows of three wordpieces with spans of one or two: enumerated by hand, the second without an answer."""
    generator = torch.Generator().manual_seed(0)
    logits, none = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64), torch.randn(2, generator=generator, dtype=torch.float64)
    valid = torch.tensor([[[True, True], [True, True], [True, False]], [[True, True], [True, False], [False, False]]])
    scores = SpanScores(logits.requires_grad_(), valid, none.requires_grad_())
    gold = torch.zeros_like(valid)
    gold[0, 0, 1] = gold[0, 2, 0] = True
    loss, learnt = posterior_nll(scores, gold)
    for window, right in enumerate(([(0, 1), (2, 0)], [])):
        masses = {
            place: math.exp(logits[window][place].item()) for place in ((t, w) for t in range(3) for w in range(2)) if valid[window][place]
        }
        everything = sum(masses.values()) + math.exp(none[window].item())
        mass = sum(masses[place] for place in right) if right else math.exp(none[window].item())
        assert loss[window].item() == pytest.approx(-math.log(mass / everything), abs=1e-12)
    assert learnt.tolist() == [True, True]
    loss.sum().backward()
    assert logits.grad is not None and none.grad is not None
    assert (logits.grad.flatten(1).sum(1) + none.grad).abs().max() < 1e-12, "shares of one: what one gains the others lose"
    assert logits.grad[0, 0, 1] < 0 < none.grad[0] and none.grad[1] < 0 and not logits.grad[1, 2].any()


def test_gold_spans_are_those_of_each_window(start, towns):
    task = task_of(reading(start, towns, steps=1))
    drawn = task.windows[:6]
    valid = torch.ones(6, max(map(len, drawn)), task.reader.max_span, dtype=torch.bool)
    for window, marks in zip(drawn, gold_spans(drawn, SpanScores(valid.float(), valid, valid[:, 0, 0].float())), strict=True):
        assert [[t, t + w + 1] for t, w in marks.nonzero().tolist()] == window.gold.tolist()


def task_of(context):
    model = with_new_reader(context, load_stage(context, "pretrain").fork_document_embedder(), pointer=True, titles=True)
    return GivenTask(context, model.reader, *given_questions(context))


def test_the_stage_learns_to_point_and_to_abstain(start, towns):
    """On paragraphs it has learnt from: hardly any is right before, most are after, and "not here" is told from the others."""
    task = task_of(reading(start, towns, steps=150))
    questions = task.given.questions
    before = given_scores(task.read(list(questions)), questions)["em"]
    answers = learn(task, 150).read(list(questions))
    after = given_scores(answers, questions)["em"]
    assert before < 0.4 and after > before + 0.4 and after > 0.75
    none = {
        bool(q.answers): [a.not_here for a, one in zip(answers, questions, strict=True) if bool(one.answers) == bool(q.answers)]
        for q in questions
    }
    assert sum(none[False]) / len(none[False]) > sum(none[True]) / len(none[True]) + 0.2
    assert all(0 <= answer.p + answer.not_here <= 1 + 1e-6 for answer in answers)


def test_a_killed_stage_resumes_to_the_same_weights(start, towns, tmp_path, interrupt_each):
    recipe, found = recipe_of(start, towns, rows(64), steps=25), []
    for name in ("whole", "cut"):
        context = context_of(copy_without(start / "run", tmp_path / name), recipe)
        if name == "cut":
            interrupt_each({"finetune"})
            with pytest.raises(KeyboardInterrupt):
                run_finetune(context)
        run_finetune(context)
        found.append(load_stage(context, "finetune"))
    assert state_sha256(found[0]) == state_sha256(found[1])
    assert found[0].reader.spec.titles and found[0].reader.spec.pointer and found[0].reader.spec.taught


def test_long_paragraphs_share_their_probability(start, towns):
    """A paragraph of many windows: equal strings of several windows are one answer, and p stays below what "not here" leaves."""
    context = reading(start, towns, steps=1)
    task, text = task_of(context), " ".join(row["context"] for row in rows(40))
    long = Question("1", "When was the bridge of Oslo built?", ("1700",), context=text)
    given = GivenParagraphs([long], context.store.tokenizer, context.inputs.featurizer, task.reader.max_span)
    assert len(given.windows_of(0)) > 2
    (answer,) = read_given(task.reader, given)
    assert answer.text in text and 0 < answer.p <= 1 - answer.not_here + 1e-6


def learn(task, steps):
    optimizer = torch.optim.Adam(task.model.parameters(), lr=3e-3)
    task.model.train()
    for step in range(steps):
        optimizer.zero_grad()
        task.step(step).mean.backward()
        optimizer.step()
    return task


def test_questions_without_paragraphs_are_refused(start, towns):
    bare = [{key: value for key, value in row.items() if key != "context"} for row in rows(8) if row["answers"]]
    context = context_of(start / "run", recipe_of(start, towns, bare, steps=1))
    with pytest.raises(DataError, match="no question has a paragraph that holds its answer") as caught:
        task_of(context)
    assert caught.value.path is not None and "context" in str(caught.value)
