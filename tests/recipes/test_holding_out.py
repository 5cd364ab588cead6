"""Held-out sentences: never trained on, evaluated as an obvious slow way evaluates them; which weights are published."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from realm.config import load_recipe
from realm.errors import ConfigError
from realm.nn.model import RealmModel, state_sha256
from realm.paths import RunPaths
from realm.pipeline import run_recipe
from realm.progress import Progress
from realm.recipes.context import StageContext, load_stage, open_context, stage_facts
from realm.recipes.pretrain.held_out import evaluate_held_out, hold_out
from realm.recipes.pretrain.task import PretrainTask
from realm.refresh import open_generation
from realm.train.metrics import MetricsLog


def opened(run: Path) -> StageContext:
    recipe = load_recipe(run / "config.toml")
    recipe = dataclasses.replace(recipe, pretrain=dataclasses.replace(recipe.pretrain, held_out=5))
    return open_context(RunPaths(run), recipe, lambda *_: None)


@pytest.mark.parametrize(("number", "held", "expected"), [(100, 7, 7), (100, 50, 10), (100, 0, 0), (5, 3, 1), (1, 3, 1)])
def test_how_many_are_held_out(number: int, held: int, expected: int) -> None:
    out, training = hold_out(number, held)
    assert len(out) == expected
    assert sorted(out + training) == list(range(number)) or (number == 1 and out == training == [0])
    assert hold_out(number, held) == (out, training)


def test_fewer_are_the_first_of_more() -> None:
    """So that what pre-training holds out, the warm stage has not seen either."""
    assert hold_out(900, 30)[0] == hold_out(900, 60)[0][:30]


def test_training_never_sees_them(tiny_run: Path) -> None:
    context = opened(tiny_run)
    task = PretrainTask(context, load_stage(context, "pretrain"))
    assert len(task.held_out) == 3  # a tenth of the sentences
    seen = {example["item"] for step in range(60) for example in task.examples(step)}
    assert seen == set(task.training) and not seen & set(task.held_out)
    row = task.examples(3)[1]
    position, item = task.order.batch(3, task.section.batch)[1]
    query = task.query(position, task.training[item])
    assert row == {"item": task.training[item], "block": query.origin, "sentence": query.sentence}


def test_evaluation_equals_one_sentence_after_the_other(tiny_run: Path) -> None:
    context = opened(tiny_run)
    task = PretrainTask(context, load_stage(context, "pretrain"))
    task.generation = open_generation(context.paths, context.inputs, stage_facts(context.paths, "pretrain")["generation"])
    fast = evaluate_held_out(task, task.held_out, 3)
    assert fast == evaluate_held_out(task, task.held_out, 1) or all(
        fast[name] == pytest.approx(value, abs=1e-5) for name, value in evaluate_held_out(task, task.held_out, 1).items()
    )
    model, inputs = task.model.eval(), context.inputs
    sums, tokens = dict.fromkeys(fast, 0.0), 0
    for item in task.held_out:
        query = task.query(-1 - item, item)
        found = task.retrieve([query])
        rows = [int(row) for row, valid in zip(inputs.rows(found.block_ids)[0], found.valid[0], strict=True) if valid]
        with torch.no_grad():
            query_emb = model.embedder([inputs.featurizer.query(query.ids)])[0]
            scores = torch.stack([model.documents(inputs.blocks([row]))[0] @ query_emb for row in rows])
            where = torch.tensor([[position + 1 for position in query.positions]])
            p_y = torch.stack([model.encoder.log_probs([inputs.joint(query.ids, row)], where)[0].exp() for row in rows])
        p_z = torch.softmax(scores, 0)
        mixed = (p_z[:, None, None] * p_y).sum(0)
        for slot, target in enumerate(query.targets):
            sums["held_out_loss"] -= float(mixed[slot, target].log())
            sums["held_out_utility"] += float((mixed[slot, target] / p_y[0, slot, target]).log())
            sums["held_out_accuracy"] += float(mixed[slot].argmax() == target)
            sums["held_out_accuracy_null"] += float(p_y[0, slot].argmax() == target)
            tokens += 1
    assert fast == {name: pytest.approx(value / tokens, abs=1e-4) for name, value in sums.items()}


@pytest.mark.parametrize("publish", ["last", "best"])
def test_which_weights_are_published(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publish: str) -> None:
    run = shutil.copytree(tiny_run, tmp_path / "run")
    for name in ("stages/pretrain", "stages/finetune", "index", "params"):
        shutil.rmtree(run / name)
    (run / "swaps.jsonl").unlink()
    weights: dict[int, str] = {}
    utilities = iter([0.1, 0.7, 0.2])

    def evaluate(task: PretrainTask, items: list[int], size: int) -> dict[str, float]:
        weights[len(weights) * 2] = state_sha256(task.model)
        return {"held_out_utility": next(utilities)}

    monkeypatch.setattr("realm.recipes.pretrain.task.evaluate_held_out", evaluate)
    settings = {"pretrain": {"steps": 4, "held_out": 2, "eval_every": 2, "publish": publish}, "eval": {"qa": ""}}
    run_recipe(load_recipe(run / "config.toml", settings), run, stages=("pretrain",), progress=Progress(quiet=True))
    facts = json.loads((run / "stages/pretrain/stage.json").read_text())
    step = 2 if publish == "best" else 4
    assert (facts["published"], facts["published_step"], facts["steps"]) == (publish, step, 4)
    assert (facts["best_step"], facts["best_utility"]) == (2, 0.7)
    published = RealmModel.from_pretrained(run / "stages/pretrain")
    assert state_sha256(published) == weights[step] and len(set(weights.values())) == 3
    # The index that fine-tuning goes on with is that of the published weights.
    context = opened(run)
    generation = open_generation(context.paths, context.inputs, facts["generation"])
    assert generation.step == step and state_sha256(generation.embedder) == state_sha256(published.documents)
    last = list(MetricsLog(run / "swaps.jsonl").rows())[-1]
    assert (last["params_step"], last["generation"]) == (step, facts["generation"])


def test_the_best_needs_held_out_sentences(write_tiny: Callable[[Path], Path], tmp_path: Path) -> None:
    recipe = write_tiny(tmp_path)
    with pytest.raises(ConfigError, match=r"recipe.toml: 'pretrain.publish' is 'best' and 'pretrain.held_out' is 0"):
        load_recipe(recipe, {"pretrain": {"publish": "best", "held_out": 0}})
    with pytest.raises(ConfigError, match=r"'ict.batch' is 4, no multiple of ict.accumulate = 3"):
        load_recipe(recipe, {"ict": {"accumulate": 3}})
    with pytest.raises(ConfigError, match=r"'run.schedule' cannot be 'step'. It is one of: linear, cosine"):
        load_recipe(recipe, {"run": {"schedule": "step"}})
