"""The forecast: parameters as published, multiplications as torch counts them, and a plan that needs none of the files."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from realm.cli import main
from realm.config import Recipe, build_recipe, load_recipe
from realm.data.types import TokenInputs
from realm.pipeline.forecast import DEVICES, MASKS, SHARE, forecast, meta_model, pretraining_refreshes

RECIPE = Path(__file__).resolve().parents[1] / "recipes" / "paper-base.toml"


@pytest.fixture(scope="module")
def paper() -> Recipe:
    return load_recipe(RECIPE)


def test_the_papers_configuration(paper: Recipe) -> None:
    assert (paper.corpus.block_length, paper.model.query_length + paper.corpus.block_length - 1) == (288, 383)
    assert (paper.pretrain.candidates, paper.pretrain.batch, paper.pretrain.steps, paper.pretrain.lr) == (8, 512, 200_000, 3e-5)
    assert (paper.ict.batch, paper.ict.steps, paper.finetune.beam, paper.finetune.read, paper.run.optimizer) == (
        4096,
        100_000,
        5000,
        5,
        "bert",
    )


def test_it_builds_without_memory(paper: Recipe) -> None:
    """The counts of the released classes' networks, without heads and poolers that nothing reads."""
    model = meta_model(paper, 30_522)
    assert all(parameter.device.type == "meta" for parameter in model.parameters())
    found = forecast(paper)
    pooler = 768 * 768 + 768
    assert found["parameters"] == {
        "embedder": 109_580_929,
        "document_embedder": 109_580_929,
        "encoder": 110_104_890 - pooler,
        "reader": 109_876_737 - pooler,
    }
    assert found["index_bytes"] == 6_837_103_616


def test_the_work_is_counted_right() -> None:
    """Forward passes as torch's own counter sees them, the last layer where it is read; a stage is a sum of such passes."""
    sizes = {"hidden": 64, "layers": 2, "heads": 2, "intermediate": 96, "query_length": 16, "pooling": "cls"}
    ict, pretrain, finetune = {"steps": 7, "batch": 3}, {"batch": 2, "candidates": 4}, {"batch": 3, "read": 2}
    values = {"model": sizes, "corpus": {"block_length": 32}, "ict": ict, "warm": {"steps": 0}, "pretrain": pretrain}
    recipe = build_recipe({**values, "finetune": finetune})
    model = meta_model(recipe, 300)

    def inputs(length: int) -> TokenInputs:
        ids = torch.zeros(1, length, dtype=torch.long, device="meta")
        mask = torch.ones(1, length, dtype=torch.bool)  # where the mask lies decides nothing about the count
        return TokenInputs(ids, mask, ids, unpadded=True)

    def flops_of(run: Callable[[], object]) -> int:
        with FlopCounterMode(display=False) as counter:
            run()
        return counter.get_total_flops()

    def counted(length: int) -> int:
        return flops_of(lambda: model.documents.body.pooled(inputs(length)))

    joint, masks = 16 + 32 - 1, torch.zeros(1, MASKS, dtype=torch.long, device="meta")
    filling = flops_of(lambda: model.encoder.logits(model.encoder.body.states_at(inputs(joint), masks)))
    reading = flops_of(lambda: model.reader.body(inputs(joint)))
    assert counted(32) < flops_of(lambda: model.documents.body(inputs(32))), "less than all of the last layer"

    found = forecast(recipe, blocks=10, vocabulary=300)
    assert found["stages"]["ict"] | {"activation_bytes": 0} == {
        "steps": 7,
        "flops_per_step": 3 * 3 * (counted(16) + counted(32)),
        "activation_bytes": 0,
    }
    assert found["refresh_flops"] == 10 * counted(32) and "warm" not in found["stages"]
    assert found["stages"]["pretrain"]["flops_per_step"] == 3 * (2 * counted(16) + 8 * counted(32) + 8 * filling)
    assert found["stages"]["finetune"]["flops_per_step"] == 3 * (3 * counted(16) + 6 * reading)
    trained = forecast(build_recipe({**values, "finetune": {**finetune, "documents": "trained"}}), blocks=10, vocabulary=300)
    assert trained["stages"]["finetune"]["flops_per_step"] == 3 * (3 * counted(16) + 12 * counted(32) + 6 * reading)
    frozen, learning = (each["devices"][0]["seconds"]["refreshes"] for each in (found, trained))
    assert learning / frozen == pytest.approx((7 + 4) / 7), "pre-training embeds the corpus 7 times, fine-tuning 4 times"
    row = found["devices"][0]
    device = DEVICES[0]
    assert row["fits"] and row["devices"] == 1
    assert row["seconds"]["ict"] == pytest.approx(7 * found["stages"]["ict"]["flops_per_step"] / (device.tflops * 1e12 * SHARE))
    assert row["total_seconds"] == pytest.approx(sum(row["seconds"].values()))


def test_documents_that_stay_are_embedded_once() -> None:
    section = {"fill": "pointer", "masking": "recurring", "exclude": "document", "documents": "frozen", "steps": 1000, "refresh_every": 50}
    counts = [
        pretraining_refreshes(build_recipe({"pretrain": {**section, "reader_first": 700, "after_reader": "retriever", **changed}}))
        for changed in ({}, {"documents": "trained"})
    ]
    assert counts == [1, 1 + 300 // 50]


def test_devices_share_what_none_can_hold(paper: Recipe) -> None:
    rows = {row["device"]: row for row in forecast(paper)["devices"]}
    h100, a100 = rows["H100 80 GB"], rows["A100 80 GB"]
    assert not h100["fits"] and h100["devices"] == a100["devices"] > 1 and h100["total_seconds"] < a100["total_seconds"]
    assert rows["64 x TPU v3 core 16 GB"]["devices"] == 1
    giant = dataclasses.replace(paper, model=dataclasses.replace(paper.model, hidden=8192, intermediate=32768, layers=48, heads=64))
    small = next(row for row in forecast(giant)["devices"] if row["device"] == "T4 16 GB")
    assert small["devices"] is None and small["total_seconds"] is None


def test_plan_of_what_cannot_run_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """None of the recipe's files is there, and no machine holds its step: the forecast alone is printed."""
    assert main(["run", str(RECIPE), "--out", str(tmp_path / "run"), "--plan", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "a step needs 880 GB" in found["not_measured"] and found["forecast"]["devices"] and not (tmp_path / "run").exists()
    assert main(["run", str(RECIPE), "--out", str(tmp_path / "run"), "--plan"]) == 0
    shown = capsys.readouterr().out
    assert "437,962,301 parameters" in shown and "H200 141 GB" in shown and "Not measured here" in shown
