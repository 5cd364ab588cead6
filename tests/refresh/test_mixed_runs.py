"""Mixed generations of real networks: refreshes of a part of a corpus, a run that has them, and who refuses one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from realm.cli import main
from realm.config import load_recipe
from realm.data.blocks import BlockInputs, open_inputs
from realm.errors import ConfigError, RunError, SnapshotError
from realm.index.manifest import MixedGeneration
from realm.nn.model import RealmModel
from realm.opening import open_run
from realm.paths import RunPaths
from realm.pipeline import run_recipe
from realm.progress import Progress
from realm.refresh import EmbedOptions, embed_corpus, embed_difference, embedding, open_generation, refresh_index
from realm.refresh.mixing import Renewal
from realm.refresh.parameters import EMBED, Partial, parameters_path, read_partial, request_index, requested
from realm.refresh.refresher import Refresher
from realm.refresh.swapping import Beside, Inline, Schedule
from realm.refresh.verification import verify_generations
from realm.storage.files import sha256_file
from realm.storage.generations import current_generation
from realm.train.metrics import TIMES


class Killed(BaseException):
    """Stands for a process that dies here."""


def move(model: RealmModel) -> None:
    with torch.no_grad():
        for parameter in model.documents.parameters():
            parameter.mul_(1.1)


def test_a_refresh_of_a_part(run: RunPaths, inputs: BlockInputs, model: RealmModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen rows are those of the new parameters, the others the very bits of the base; one that was killed makes the same bytes."""
    base = refresh_index(model, inputs, run, step=1)
    move(model)
    ids = base.snapshot.block_ids
    partial = Partial(base.number, ids[[1, 4, 5, 6, 10]])
    monkeypatch.setattr(embedding, "PART_ROWS", 3)
    done: list[int] = []

    def killed(now: int, total: int) -> None:
        done.append(now)
        assert total == 5
        if now > 3:
            raise Killed

    with pytest.raises(Killed):
        refresh_index(model, inputs, run, step=2, progress=killed, partial=partial)
    taken_up = refresh_index(model, inputs, run, step=2, progress=lambda now, _: done.append(now), partial=partial)
    assert taken_up.number == base.number + 1
    again = refresh_index(model, inputs, run, step=2, partial=partial)
    now = np.isin(ids, partial.block_ids)
    for found in (taken_up, again):
        snapshot = found.snapshot
        np.testing.assert_array_equal(snapshot.vectors, taken_up.snapshot.vectors)
        np.testing.assert_array_equal(snapshot.vectors[~now], base.snapshot.vectors[~now])
        fresh = embed_corpus(model.documents, inputs, np.flatnonzero(now))
        np.testing.assert_allclose(snapshot.vectors[now], fresh, atol=1e-5)
        assert not np.allclose(base.snapshot.vectors[now], fresh, atol=1e-3)
        assert snapshot.made_by.tolist() == np.where(now, found.number, base.number).tolist() and snapshot.manifest.mixed
    assert read_partial(parameters_path(run, again.number)).block_ids.tolist() == partial.block_ids.tolist()  # type: ignore[union-attr]


def test_a_base_that_is_damaged_makes_it_whole(
    run: RunPaths, inputs: BlockInputs, model: RealmModel, caplog: pytest.LogCaptureFixture
) -> None:
    base = refresh_index(model, inputs, run, step=1)
    file = run.index / f"{base.number:06d}" / "vectors-00000.npy"
    file.write_bytes(file.read_bytes()[:-4] + b"abcd")
    found = refresh_index(model, inputs, run, step=2, partial=Partial(base.number, base.snapshot.block_ids[:2]))
    assert not found.snapshot.manifest.mixed and "embedded whole: it cannot go on from generation" in caplog.text
    np.testing.assert_allclose(found.snapshot.vectors, embed_corpus(model.documents, inputs, np.arange(12)), atol=1e-5)


def test_a_request_with_damaged_ids_is_refused(run: RunPaths, inputs: BlockInputs, model: RealmModel) -> None:
    base = current_generation(run.index) or 0
    number = request_index(model, run, 9, partial=Partial(base, np.asarray(inputs.store.block_ids)[:3]))
    np.save(parameters_path(run, number) / EMBED, np.array([7], np.int64))
    with pytest.raises(SnapshotError, match=r"embed\.npy: missing, or changed"):
        Refresher(run, inputs, EmbedOptions()).tick()
    assert current_generation(run.index) == base


def test_beside_asks_once_and_goes_on_from_what_it_searches(run: RunPaths, inputs: BlockInputs, model: RealmModel) -> None:
    renewal = Renewal(0.25)
    source = Beside(Inline(run, inputs, torch.device("cpu"), Schedule(1000, 5, 100), frozenset, renewal=renewal), None)
    base = source.resume(current_generation(run.index) or 0)
    embedded = []
    for step in range(base.step + 1, base.step + 24):
        move(model)
        asked = requested(run)
        if asked is not None and step % 4 == 0:  # a refresher that takes its time
            partial = read_partial(parameters_path(run, asked))
            assert partial is not None and source.generation is not None
            assert partial.base == source.generation.number, "not asked for before the last answer is searched"
            Refresher(run, inputs, EmbedOptions()).tick()
            embedded.append(partial.block_ids.tolist())
        found = source.between(step, model)
        if found is not None:
            renewal.searched(found.snapshot)
            assert found.number == asked and found.snapshot.manifest.mixed
    in_turn = sorted(block_id for part in embedded[:3] for block_id in part)
    assert len(embedded) >= 3 and in_turn == inputs.store.block_ids[:9].tolist()


def mixing(recipe: Path, **more: Any) -> Any:
    settings = {"pretrain": {"steps": 8, "refresh_every": 2}, "refresher": {"budget": 0.3, "first": "retrieved", **more}}
    return load_recipe(recipe, settings)


STAGES = ("corpus", "warm", "ict", "pretrain")
QUIET = Progress(quiet=True)


def lines(file: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows if row["stage"] == "pretrain"]


def assert_alike(run: Path, other: Path) -> None:
    """The same weights, metrics and swaps; generations may have other numbers."""
    weights, other_weights = (sha256_file(root / "stages" / "pretrain" / "model.safetensors") for root in (run, other))
    assert weights == other_weights and comparable(run / "metrics.jsonl") == comparable(other / "metrics.jsonl")
    keys = ("step", "params_step", "parameters", "vectors", "kind")
    swaps, others = ([[row[key] for key in keys] for row in lines(root / "swaps.jsonl")] for root in (run, other))
    assert swaps == others


def comparable(file: Path) -> list[dict[str, Any]]:
    """A replay waits for nobody: no alarm rings, and no refresher is started again."""
    return [{key: row[key] for key in row if key != "refresher_restarts"} for row in lines(file) if "alarm" not in row]


@pytest.mark.slow
def test_a_run_beside_a_refresher_of_a_part_can_be_replayed(tmp_path: Path, write_tiny: Callable[[Path], Path]) -> None:
    recipe = write_tiny(tmp_path)
    budget = {"budget": 0.3, "first": "retrieved"}
    settings = {"pretrain": {"steps": 40, "refresh_every": 5, "refresh": "process"}}
    beside = settings | {"refresher": {"nice": 0, "staleness_limit": 6, **budget}}
    run_recipe(load_recipe(recipe, beside), tmp_path / "run", stages=STAGES, progress=QUIET)
    swaps = lines(tmp_path / "run" / "swaps.jsonl")
    assert [row["kind"] for row in swaps].count("mixed") >= 3 and (swaps[0]["kind"], swaps[-1]["kind"]) == ("whole", "whole")
    replay = settings | {"refresher": {"replay": str(tmp_path / "run" / "swaps.jsonl"), **budget}}
    run_recipe(load_recipe(recipe, replay), tmp_path / "again", stages=STAGES, progress=QUIET)
    assert_alike(tmp_path / "run", tmp_path / "again")


def test_a_run_with_mixed_indexes(
    tmp_path: Path, write_tiny: Callable[[Path], Path], interrupt_each: Callable[[set[str]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """The index is mixed between steps and whole in the end; a run that was interrupted, and a replay, give the same weights."""
    recipe = write_tiny(tmp_path)
    run_recipe(mixing(recipe), tmp_path / "run", stages=STAGES, progress=QUIET)
    for name in ("cut", "again"):
        shutil.copytree(tmp_path / "run", tmp_path / name)
        for path in ("stages/pretrain", "index", "params"):
            shutil.rmtree(tmp_path / name / path)
        (tmp_path / name / "swaps.jsonl").unlink()
    interrupt_each({"pretrain"})
    with pytest.raises(KeyboardInterrupt):
        run_recipe(mixing(recipe), tmp_path / "cut", stages=("pretrain",), progress=QUIET)
    run_recipe(mixing(recipe), tmp_path / "cut", stages=("pretrain",), progress=QUIET)
    replay = mixing(recipe, replay=str(tmp_path / "run" / "swaps.jsonl"))
    run_recipe(replay, tmp_path / "again", stages=("pretrain",), progress=QUIET)
    assert [row["kind"] for row in lines(tmp_path / "run" / "swaps.jsonl")] == ["whole", "mixed", "mixed", "mixed", "whole"]
    assert_alike(tmp_path / "run", tmp_path / "cut")
    assert_alike(tmp_path / "run", tmp_path / "again")
    said = lines(tmp_path / "run" / "metrics.jsonl")
    assert [row["embedded_share"] for row in said if "embedded_share" in row] == [pytest.approx(4 / 12)] * 3
    aged = [row for row in said if "staleness_rows" in row]
    assert aged and all(row["staleness_rows"] > row["staleness_steps"] for row in aged)
    refused(RunPaths(tmp_path / "run"), capsys)


def refused(paths: RunPaths, capsys: pytest.CaptureFixture[str]) -> None:
    """Where documents are frozen, a mixed generation is refused, whoever names it; and every generation says what it is."""
    inputs = open_inputs(paths.corpus, 32)
    verified, _ = verify_generations(paths, inputs)
    assert [(row.kind, row.problem) for row in verified][-2:] == [("mixed", None), ("whole", None)]
    assert verified[-2].params is not None and verified[-2].params["oldest"] < verified[-2].params["newest"]
    capsys.readouterr()
    assert main(["index", "verify", str(paths.root)]) == 0
    assert "valid, mixed, 12 blocks of parameters" in " ".join(capsys.readouterr().out.split())
    assert main(["index", "info", str(paths.root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["generation_kind"] == "whole" and found["params"]["oldest"] == found["params"]["newest"]
    mixed = verified[-2].generation
    with pytest.raises(MixedGeneration):
        embed_difference(paths, inputs, number=mixed)
    assert open_generation(paths, inputs, mixed).snapshot.manifest.mixed
    facts = paths.stage("pretrain") / "stage.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "generation": mixed}))
    with pytest.raises(MixedGeneration):
        open_run(paths.root)
    with pytest.raises((MixedGeneration, RunError), match="a mixed index"):
        run_recipe(load_recipe(paths.config), paths.root, stages=("finetune",), progress=QUIET)


def test_what_a_recipe_cannot_say(tmp_path: Path, write_tiny: Callable[[Path], Path]) -> None:
    recipe = write_tiny(tmp_path)
    for value in (0.0, -0.5, 1.5):
        with pytest.raises(ConfigError, match=r"'refresher\.budget' is .*\. It is above 0 and at most 1"):
            load_recipe(recipe, {"refresher": {"budget": value}})
    with pytest.raises(ConfigError, match="A frozen index is never mixed"):
        load_recipe(recipe, {"refresher": {"budget": 0.5}, "pretrain": {"refresh": "frozen"}})
    with pytest.raises(ConfigError, match=r"'refresher\.first' cannot be 'moved'"):
        load_recipe(recipe, {"refresher": {"first": "moved"}})
