"""A reader that pre-training taught is worth some questions: what few of them teach is added to it in proportion."""

import dataclasses
import json

import pytest
import torch

from realm.progress import Progress
from realm.runs.run import run_recipe
from realm.storage.paths import RunPaths
from realm.storage.stages import stage_facts
from realm.training.context import load_stage, open_context
from realm.training.finetune.training import start_share


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, towns):
    root = tmp_path_factory.mktemp("few")
    asked = [("Oslo", "Karel Brandt"), ("Lima", "Ilse Kolm"), ("Cairo", "Omar Vesse")]
    rows = [{"id": town, "question": f"Who built the old stone bridge of {town}?", "answers": [name]} for town, name in asked]
    (root / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = towns(root)
    section = dataclasses.replace(recipe.finetune, train=str(root / "qa.jsonl"), steps=4, batch=3, warmup=1, read=3, rename_rate=0.0)
    return dataclasses.replace(recipe, finetune=section)


def readers(recipe, run, worth):
    recipe = dataclasses.replace(recipe, finetune=dataclasses.replace(recipe.finetune, start_questions=worth))
    run_recipe(recipe, run, stages=("corpus", "warm", "ict", "pretrain", "finetune"), progress=Progress(quiet=True))
    context = open_context(RunPaths(run), recipe, lambda *_: None)
    start, end = (load_stage(context, stage).reader.state_dict() for stage in ("pretrain", "finetune"))
    return start, end, stage_facts(context.paths, "finetune")


def test_the_published_reader_is_between_the_start_and_the_trained_one(recipe, tmp_path):
    start, trained, facts = readers(recipe, tmp_path / "trained", 0)
    assert "start_share" not in facts and any(not torch.equal(start[name], trained[name]) for name in start)
    again, blended, facts = readers(recipe, tmp_path / "blended", 9)
    assert facts["start_share"] == pytest.approx(9 / 12)
    for name, value in blended.items():
        assert torch.equal(start[name], again[name])
        torch.testing.assert_close(value, 0.75 * start[name] + 0.25 * trained[name], rtol=1e-5, atol=1e-6)


def test_a_new_reader_keeps_nothing_of_its_beginning(recipe, tmp_path):
    pointed = dataclasses.replace(recipe, finetune=dataclasses.replace(recipe.finetune, start_questions=16))
    run_recipe(pointed, tmp_path / "run", stages=("corpus",), progress=Progress(quiet=True))
    context = open_context(RunPaths(tmp_path / "run"), pointed, lambda *_: None)
    assert [start_share(context, n) for n in (16, 48)] == [0.5, 0.25]
    for changes in ({"fill": "mlm"}, {"steps": 0}):
        other = dataclasses.replace(pointed, pretrain=dataclasses.replace(pointed.pretrain, **changes))
        assert start_share(dataclasses.replace(context, recipe=other), 16) == 0
