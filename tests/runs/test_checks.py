"""What the configuration says: parameters as published, memory of the largest step, and a plan that needs none of the files."""

import dataclasses
import json
from pathlib import Path

import pytest

from realm.cli import main
from realm.models.model import part_sizes
from realm.recipe import build_recipe, load_recipe
from realm.runs.checks import ACTIVATION_NUMBERS, STATE_BYTES, meta_model, step_bytes

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "paper-base.toml"


@pytest.fixture(scope="module")
def paper():
    return load_recipe(RECIPE)


def test_the_papers_configuration(paper):
    assert (paper.corpus.block_length, paper.model.query_length + paper.corpus.block_length - 1) == (288, 383)
    assert (paper.pretrain.candidates, paper.pretrain.batch, paper.pretrain.steps, paper.pretrain.lr) == (8, 512, 200_000, 3e-5)
    assert (paper.ict.batch, paper.ict.steps, paper.finetune.beam, paper.finetune.read, paper.run.optimizer) == (
        4096, 100_000, 5000, 5, "bert",
    )  # fmt: skip


def test_it_builds_without_memory(paper):
    """The counts of the released classes' networks, without heads and poolers that nothing reads."""
    model = meta_model(paper)
    assert all(parameter.device.type == "meta" for parameter in model.parameters())
    pooler = 768 * 768 + 768
    assert part_sizes(model) == {
        "embedder": 109_580_929, "document_embedder": 109_580_929, "encoder": 110_104_890 - pooler,
        "reader": 109_876_737 - pooler,
    }  # fmt: skip


def test_the_largest_step_decides():
    sizes = {"hidden": 64, "layers": 2, "heads": 2, "intermediate": 96, "query_length": 16}
    values = {"model": sizes, "corpus": {"block_length": 32}, "ict": {"steps": 7, "batch": 3}, "warm": {"steps": 0}}
    recipe = build_recipe({**values, "pretrain": {"steps": 0, "from_warm": False}, "finetune": {"steps": 0}})
    model = meta_model(recipe, 300)
    parts, per_token = part_sizes(model), 2 * 64 * ACTIVATION_NUMBERS * 4
    assert step_bytes(recipe, model) == parts["embedder"] * STATE_BYTES + 3 * (16 + 32) * per_token
    more = build_recipe({**values, "pretrain": {"batch": 2, "candidates": 4}, "finetune": {"steps": 0}})
    assert step_bytes(more, model) == (parts["embedder"] + parts["encoder"]) * STATE_BYTES + (2 * 16 + 8 * (32 + 47)) * per_token
    learning = build_recipe({**values, "pretrain": {"steps": 0}, "finetune": {"batch": 3, "read": 2}})
    held = (parts["embedder"] + parts["reader"]) * STATE_BYTES + (3 * 16 + 6 * 47) * per_token
    assert step_bytes(learning, model) == held
    half = dataclasses.replace(learning, run=dataclasses.replace(learning.run, bf16=True))
    nothing = build_recipe({stage: {"steps": 0} for stage in ("warm", "ict", "pretrain", "finetune")})
    assert step_bytes(half, model) < held and step_bytes(nothing, model) == 0


def test_plan_of_what_cannot_run_here(tmp_path, capsys):
    """None of the recipe's files is there, and no machine holds its step: what the configuration says is printed."""
    assert main(["run", str(RECIPE), "--out", str(tmp_path / "run"), "--plan", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "a step needs 880 GB" in found["not_measured"] and not (tmp_path / "run").exists() and "seconds" not in found
    assert sum(found["parameters"].values()) == 437_962_301 and 879e9 < found["step_bytes"] < 881e9
    assert main(["run", str(RECIPE), "--out", str(tmp_path / "run"), "--plan"]) == 0
    shown = capsys.readouterr().out
    assert main(["run", str(RECIPE), "--out", str(tmp_path / "run"), "--plan", "--set", f"model.body={tmp_path / 'none'}"]) == 2
    assert f"error: no model at '{tmp_path / 'none'}'" in capsys.readouterr().err
    assert "437,962,301 parameters" in shown and "Not read here" in shown
