"""Whole runs: to the end, skipped when done, resumed to the same weights, never mixed with another recipe."""

import json
import os
import shutil
from contextlib import nullcontext
from unittest.mock import Mock

import pytest

from realm.answering.opening import open_run
from realm.cli import main
from realm.errors import ConfigError, CorpusError, RunError
from realm.progress import Progress
from realm.recipe import load_recipe
from realm.runs.plan import plan
from realm.runs.run import run_recipe
from realm.storage import files, locks as locking
from realm.storage.files import sha256_file
from realm.storage.manifests import read_note
from realm.storage.metrics import TIMES, MetricsLog

QUIET = Progress(quiet=True)


def tree(root):
    return {str(path.relative_to(root)): sha256_file(path) for path in sorted(root.rglob("*")) if path.is_file()}


def weights(run):
    return {name: sha for name, sha in tree(run / "stages").items() if name.endswith("model.safetensors")}


def rows(run):
    return [{key: value for key, value in row.items() if key not in TIMES} for row in MetricsLog(run / "metrics.jsonl").rows()]


def test_a_run_leaves_its_parts(tiny_run):
    assert sorted(weights(tiny_run)) == [f"{stage}/model.safetensors" for stage in ("finetune", "ict", "pretrain", "warm")]
    results = {path.stem: read_note(path) for path in (tiny_run / "results").glob("*.json")}
    shown = results.pop("answers")
    assert len(shown) == 6 and sum(answer["correct"] for answer in shown) / 6 == results["finetune"]["em"], "all six are kept to be shown"
    assert all(answer["evidence"] and answer["accepted"] and "timings_ms" not in answer for answer in shown)
    assert set(results) == {"ict", "pretrain", "finetune"}
    assert all(0 <= r["recall_gold"]["1"] <= r["recall_gold"]["5"] <= 1 and r["n"] == 6 for r in results.values())
    assert isinstance(results["pretrain"]["marginal_utility"], float) and 0 <= results["finetune"]["em"] <= 1
    assert (tiny_run / "report.html").is_file() and not (tiny_run / "scratch").exists()
    assert set(json.loads((tiny_run / "seconds.json").read_text())) == {"corpus", "warm", "ict", "pretrain", "finetune", "eval"}


def test_a_second_start_does_nothing(tiny_run, tmp_path, monkeypatch):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    before = tree(run)

    def never(*_, **__):
        raise AssertionError("trained or evaluated again")

    monkeypatch.setattr("realm.training.context.fit", never)
    monkeypatch.setattr("realm.runs.evaluation.evaluate_retrieval", never)
    done = run_recipe(tiny_run.parent / "recipe.toml", run, stages=None, progress=QUIET)
    changed = {name for name, sha in tree(run).items() if before.get(name) != sha}
    assert changed <= {"seconds.json", "report.html"} and set(tree(run)) == set(before)
    assert done["skipped"] == [] and done["stages"]["finetune"]["em"] == json.loads((run / "results/finetune.json").read_text())["em"]


def test_interrupted_in_every_stage_and_resumed(tiny_run, tmp_path, write_tiny, interrupt_each):
    recipe, pending = write_tiny(tmp_path), {"warm", "ict", "pretrain", "finetune"}
    interrupt_each(pending)
    for left in (3, 2, 1, 0):
        with pytest.raises(KeyboardInterrupt):
            run_recipe(recipe, tmp_path / "run", stages=None, progress=QUIET)
        assert len(pending) == left
    run_recipe(recipe, tmp_path / "run", stages=None, progress=QUIET)
    assert weights(tmp_path / "run") == weights(tiny_run)
    assert rows(tmp_path / "run") == rows(tiny_run)


def test_two_processes_do_not_train_in_one_run(tiny_run, tmp_path, monkeypatch, capsys):
    """The second waits, is refused by name, and changes nothing; when the first has ended it goes on."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    shutil.rmtree(run / "stages" / "finetune")
    monkeypatch.setattr(locking, "WAIT_SECONDS", 0.0)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file() and path.name != "LOCK"}
    with locking.held(run, lambda named: RunError(named)):
        assert main(["run", str(run), "--stages", "finetune"]) == 2
        # Nor is the recipe changed under the first, where a free section differs.
        assert main(["run", str(run / "config.toml"), "--out", str(run), "--set", "eval.k=[1]"]) == 2
        assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file() and path.name != "LOCK"} == before
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"another process (process {os.getpid()}) trains here. Wait until it has ended" in said
    assert main(["run", str(run), "--stages", "finetune"]) == 0 and (run / "stages" / "finetune").is_dir()


def test_another_recipe_is_refused(tiny_run):
    recipe, before = tiny_run.parent / "recipe.toml", tree(tiny_run)
    for section, key, value in (("ict", "steps", 6), ("run", "seed", 1), ("corpus", "vocab_size", 301), ("model", "hidden", 64)):
        with pytest.raises(RunError, match=rf"config.toml: .*{section}\.{key} = .*{value}.*--out"):
            run_recipe(load_recipe(recipe, {section: {key: value}}), tiny_run, stages=None, progress=QUIET)
    assert tree(tiny_run) == before
    with pytest.raises(ConfigError, match="no stage 'pretain'"):
        run_recipe(recipe, tiny_run, stages=("pretain",), progress=QUIET)


def test_fine_tuning_alone_may_be_made_anew(tiny_run, tmp_path, capsys):
    """Other values are refused with what is in their way; with that gone all else stays as it was."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    shutil.rmtree(run / "stages" / "bm25", ignore_errors=True)
    other = ["run", str(run / "config.toml"), "--out", str(run), "--set", "finetune.retriever_rate=0.5"]
    assert main(other) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    there = [name for name in ("finetune", "closed_book") if (run / "stages" / name).exists()]
    assert (
        f"or remove {', '.join(f'stages/{name}' for name in there)} here to train only that again" in said
        and "finetune.retriever_rate = 1.0" in said
    )
    for name in there:
        shutil.rmtree(run / "stages" / name)
    before, answered = weights(run), json.loads((run / "results" / "finetune.json").read_text())
    assert main([*other, "--stages", "finetune,eval"]) == 0
    after = weights(run)
    assert before.items() <= after.items() and after["finetune/model.safetensors"] != weights(tiny_run)["finetune/model.safetensors"]
    assert json.loads((run / "results" / "finetune.json").read_text())["fingerprint"] != answered["fingerprint"]


def test_a_run_may_move_with_its_files(tiny_run, tmp_path, monkeypatch):
    shutil.copytree(tiny_run.parent, tmp_path / "moved")
    before = weights(tiny_run)
    monkeypatch.setattr("realm.training.context.fit", Mock(side_effect=AssertionError("trained again")))
    run_recipe(tmp_path / "moved" / "recipe.toml", tmp_path / "moved" / "run", stages=None, progress=QUIET)
    assert weights(tmp_path / "moved" / "run") == before
    assert str(tmp_path / "moved") in (tmp_path / "moved" / "run" / "config.toml").read_text()
    # Under another name it is another file.
    shutil.copy(tmp_path / "moved" / "qa.jsonl", tmp_path / "moved" / "other.jsonl")
    other = load_recipe(tmp_path / "moved" / "recipe.toml", {"finetune": {"train": str(tmp_path / "moved" / "other.jsonl")}})
    with pytest.raises(RunError, match=r"finetune\.train"):
        run_recipe(other, tmp_path / "moved" / "run", stages=None, progress=QUIET)


def test_changed_sources_are_refused(tiny_run, tmp_path, write_tiny):
    recipe = write_tiny(tmp_path)
    run_recipe(recipe, tmp_path / "run", stages=("corpus",), progress=QUIET)
    before = tree(tmp_path / "run")
    (tmp_path / "docs.jsonl").touch()  # another time, the same words
    run_recipe(recipe, tmp_path / "run", stages=("corpus",), progress=QUIET)
    shutil.copy(tmp_path / "more.jsonl", tmp_path / "docs.jsonl")
    with pytest.raises(CorpusError, match="have changed"):
        run_recipe(recipe, tmp_path / "run", stages=("corpus",), progress=QUIET)
    corpus = {name: sha for name, sha in before.items() if name.startswith("corpus/")}
    assert {name: sha for name, sha in tree(tmp_path / "run").items() if name.startswith("corpus/")} == corpus


@pytest.mark.parametrize("point", ["directory: renamed", "file: staged"])
def test_sources_that_change_after_a_kill_are_noticed(tmp_path, write_tiny, monkeypatch, point):
    """Killed once the corpus is there, or while the mark of its sources is written, which the next start clears away."""
    recipe, copy = load_recipe(write_tiny(tmp_path)), tmp_path / "copy"

    def taken(reached, path):
        if reached == point and path.name in ("corpus", "sources.json") and not copy.exists():
            shutil.copytree(tmp_path / "run", copy)

    monkeypatch.setattr(files, "listener", taken)
    run_recipe(recipe, tmp_path / "run", stages=("corpus",), progress=QUIET)
    shutil.copy(tmp_path / "more.jsonl", tmp_path / "docs.jsonl")
    with pytest.raises(CorpusError, match="the sources have changed") if point == "directory: renamed" else nullcontext():
        run_recipe(recipe, copy, stages=("corpus",), progress=QUIET)
    assert not list(copy.glob("*.staging")) and (copy / "sources.json").exists()


def test_edited_questions_are_refused(tiny_run, tmp_path):
    moved = shutil.copytree(tiny_run.parent, tmp_path / "moved")
    before = weights(moved / "run")
    (moved / "qa_train.jsonl").write_text('{"question": "Who pays with the Tirel?", "answers": ["People"]}\n')
    with pytest.raises(RunError, match="'finetune' was trained with another recipe or corpus"):
        run_recipe(moved / "recipe.toml", moved / "run", stages=None, progress=QUIET)
    assert weights(moved / "run") == before


def test_without_questions_the_run_ends_after_pretraining(tmp_path, write_tiny):
    recipe, none = write_tiny(tmp_path), {"finetune": {"train": "", "dev": ""}, "eval": {"qa": ""}}
    done = run_recipe(load_recipe(recipe, none), tmp_path / "run", stages=None, progress=QUIET)
    assert len(done["skipped"]) == 1 and "index search" in done["skipped"][0] and "finetune" not in done["stages"]
    run = open_run(tmp_path / "run")
    assert len(run.search("the currency of Arvad", 3)) == 3
    with pytest.raises(RunError, match=r"not been fine-tuned.*\[finetune\] train"):
        _ = run.answerer
    # Questions come later: the same run goes on.
    kept = weights(tmp_path / "run")
    done = run_recipe(recipe, tmp_path / "run", stages=None, progress=QUIET)
    assert done["skipped"] == [] and done["stages"]["finetune"]["n"] == 6 and kept.items() <= weights(tmp_path / "run").items()


def test_plan_changes_nothing(tiny_run, tmp_path):
    recipe, before = load_recipe(tiny_run.parent / "recipe.toml"), tree(tiny_run)
    found, other = plan(recipe, tiny_run), plan(recipe, tmp_path / "new")
    assert found["teaches"] and found["advice"] is None and found["corpus"]["blocks"] == other["corpus"]["blocks"] == 12
    assert tree(tiny_run) == before and not (tmp_path / "new").exists()


@pytest.mark.slow
def test_the_recipe_from_nothing_runs(tmp_path, small_atlas, from_nothing):
    small_atlas(tmp_path / "runs" / "atlas")
    few = {"steps": 2, "batch": 4}
    model = {"hidden": 16, "layers": 1, "heads": 2, "intermediate": 32, "projection": 16, "span_hidden": 16}
    stages = {"warm": few | {"least_steps": 0}, "ict": few, "pretrain": few | {"force": True}, "finetune": few}
    recipe = from_nothing(tmp_path, {"run": {"threads": 1}, "corpus": {"vocab_size": 800}, "model": model, **stages})
    done = run_recipe(recipe, tmp_path / "run", stages=None, progress=QUIET)
    assert list(done["stages"]) == ["corpus", "warm", "ict", "pretrain", "finetune", "eval"] and not done["skipped"]
    row = json.loads((tmp_path / "run" / "results" / "finetune.json").read_text())
    assert 0 <= row["em"] <= 1 and "1" in row["recall"]
    trained = weights(tmp_path / "run")
    run_recipe(recipe, tmp_path / "run", stages=None, progress=QUIET)
    assert weights(tmp_path / "run") == trained
