"""Dev questions that the evaluation asks, too: a run says so, and fits nothing to them."""

import json
import shutil

import pytest

from realm.answering.opening import open_run
from realm.evaluation.questions.loading import load_questions, shared
from realm.models.types import Question
from realm.progress import Progress
from realm.recipe import load_recipe
from realm.runs.checks import shared_questions
from realm.runs.run import run_recipe
from realm.storage.paths import RunPaths
from realm.training.beams import LiveSource
from realm.training.context import open_context
from realm.training.finetune.task import ReadingTask, training_questions


def rows(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def half(tiny_run, tmp_path):
    """Six dev questions: three of their own, then one of the evaluation's in other spelling, one under its id, one under a mere number."""
    own, asked = rows(tiny_run.parent / "qa_dev.jsonl"), rows(tiny_run.parent / "qa.jsonl")
    same_text = asked[3] | {"id": "another", "question": "what is the  CURRENCY of the Dulwen"}
    same_id, path = own[4] | {"id": asked[4]["id"]}, tmp_path / "half.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*own[:3], same_text, same_id, own[5] | {"id": "6"}]), "utf-8")
    return path


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
def test_nothing_is_fitted_to_what_is_measured(tiny_run, half, tmp_path, dev, fitted, monkeypatch):
    """The calibration looks at no question of the evaluation."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    path = half if dev == "half" else tiny_run.parent / f"{dev}.jsonl"
    recipe = load_recipe(run / "config.toml", {"finetune": {"dev": str(path)}, "retrieval": {"kind": "hybrid"}})
    context, opened = open_context(RunPaths(run), recipe, lambda *_: None), open_run(run)
    tuned = opened.networks.finetuned
    source = LiveSource(opened.source, tuned.embedder)
    task = ReadingTask("finetune", context, source, tuned.reader, *training_questions(context))
    looked = []

    def watched(work, place):
        def watching(*arguments):
            looked.append({question.text for question in arguments[place]})
            return work(*arguments)

        return watching

    import realm.training.finetune.task as module

    monkeypatch.setattr(module, "calibrate", watched(module.calibrate, 1))
    facts = task.calibration()
    assert len(task.dev) == 6, "all of them are watched"
    assert all(texts and not texts & {q.text for q in load_questions(tiny_run.parent / "qa.jsonl")} for texts in looked)
    assert facts["calibration"]["n"] == fitted if fitted else facts == {}
