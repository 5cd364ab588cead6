"""Whole runs: to the end, resumed or made again to the same weights, never mixed with another recipe; what is removed stays so."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from small import jsonl, tree
from toy_runs import copy_without, rows_of, train, weights_of

from realm import Realm
from realm.answering.opening import open_run
from realm.cli import main
from realm.documents.change.compaction import compact_corpus
from realm.documents.change.updates import add_documents, remove_documents, update_documents
from realm.documents.store.blocks import BlockStore
from realm.errors import ConfigError, CorpusError, RunError
from realm.recipe import load_recipe
from realm.search.index.choice import LiveIndex
from realm.search.index.exact import ExactIndex
from realm.search.retriever import Retriever
from realm.storage import files, locks as locking
from realm.storage.manifests import read_note
from realm.training.baselines.retrievers import Bm25Candidates


def test_a_run_leaves_its_parts(tiny_run):
    assert sorted(weights_of(tiny_run)) == [f"{stage}/model.safetensors" for stage in ("finetune", "ict", "pretrain", "warm")]
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
    monkeypatch.setattr("realm.evaluation.evaluate.evaluate_retrieval", never)
    done = train(tiny_run.parent / "recipe.toml", run)
    changed = {name for name, data in tree(run).items() if before.get(name) != data}
    assert changed <= {"seconds.json", "report.html"} and set(tree(run)) == set(before)
    assert done["skipped"] == [] and done["stages"]["finetune"]["em"] == json.loads((run / "results/finetune.json").read_text())["em"]


def test_interrupted_in_every_stage_and_resumed(tiny_run, tmp_path, write_tiny, interrupt_each):
    recipe, pending = write_tiny(tmp_path), {"warm", "ict", "pretrain", "finetune"}
    interrupt_each(pending)
    for left in (3, 2, 1, 0):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, tmp_path / "run")
        assert len(pending) == left
    train(recipe, tmp_path / "run")
    assert weights_of(tmp_path / "run") == weights_of(tiny_run)
    assert rows_of(tmp_path / "run") == rows_of(tiny_run)


def test_two_processes_do_not_train_in_one_run(tiny_run, tmp_path, monkeypatch, capsys):
    """The second waits, is refused by name, and changes nothing; when the first has ended it goes on."""
    run = copy_without(tiny_run, tmp_path / "run", "stages/finetune")
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
            train(load_recipe(recipe, {section: {key: value}}), tiny_run)
    assert tree(tiny_run) == before
    with pytest.raises(ConfigError, match="no stage 'pretain'"):
        train(recipe, tiny_run, ("pretain",))


def test_fine_tuning_alone_may_be_made_anew(tiny_run, tmp_path, capsys):
    """Other values are refused with what is in their way; with that gone all else stays as it was."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    shutil.rmtree(run / "stages" / "bm25", ignore_errors=True)
    other = ["run", str(run / "config.toml"), "--out", str(run), "--set", "finetune.retriever_rate=0.5"]
    assert main(other) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    there = [name for name in ("finetune", "closed_book") if (run / "stages" / name).exists()]
    assert f"or remove {', '.join(f'stages/{name}' for name in there)} here to train only that again" in said
    assert "finetune.retriever_rate = 1.0" in said
    for name in there:
        shutil.rmtree(run / "stages" / name)
    before, answered = weights_of(run), json.loads((run / "results" / "finetune.json").read_text())
    assert main([*other, "--stages", "finetune,eval"]) == 0
    after = weights_of(run)
    assert before.items() <= after.items() and after["finetune/model.safetensors"] != weights_of(tiny_run)["finetune/model.safetensors"]
    assert json.loads((run / "results" / "finetune.json").read_text())["fingerprint"] != answered["fingerprint"]


def test_a_run_may_move_with_its_files(tiny_run, tmp_path, monkeypatch):
    shutil.copytree(tiny_run.parent, tmp_path / "moved")
    before = weights_of(tiny_run)
    monkeypatch.setattr("realm.training.context.fit", Mock(side_effect=AssertionError("trained again")))
    train(tmp_path / "moved" / "recipe.toml", tmp_path / "moved" / "run")
    assert weights_of(tmp_path / "moved" / "run") == before
    assert str(tmp_path / "moved") in (tmp_path / "moved" / "run" / "config.toml").read_text()
    # Under another name it is another file.
    shutil.copy(tmp_path / "moved" / "qa.jsonl", tmp_path / "moved" / "other.jsonl")
    other = load_recipe(tmp_path / "moved" / "recipe.toml", {"finetune": {"train": str(tmp_path / "moved" / "other.jsonl")}})
    with pytest.raises(RunError, match=r"finetune\.train"):
        train(other, tmp_path / "moved" / "run")


def test_changed_sources_are_refused(tiny_run, tmp_path, write_tiny):
    recipe = write_tiny(tmp_path)
    train(recipe, tmp_path / "run", ("corpus",))
    before = tree(tmp_path / "run")
    (tmp_path / "docs.jsonl").touch()  # another time, the same words
    train(recipe, tmp_path / "run", ("corpus",))
    shutil.copy(tmp_path / "more.jsonl", tmp_path / "docs.jsonl")
    with pytest.raises(CorpusError, match="have changed"):
        train(recipe, tmp_path / "run", ("corpus",))
    corpus = {name: sha for name, sha in before.items() if name.startswith("corpus/")}
    assert {name: data for name, data in tree(tmp_path / "run").items() if name.startswith("corpus/")} == corpus


@pytest.mark.parametrize("point", ["directory: renamed", "file: staged"])
def test_sources_that_change_after_a_kill_are_noticed(tmp_path, write_tiny, monkeypatch, point):
    """Killed once the corpus is there, or while the mark of its sources is written, which the next start clears away."""
    recipe, copy = load_recipe(write_tiny(tmp_path)), tmp_path / "copy"

    def taken(reached, path):
        if reached == point and path.name in ("corpus", "sources.json") and not copy.exists():
            shutil.copytree(tmp_path / "run", copy)

    monkeypatch.setattr(files, "listener", taken)
    train(recipe, tmp_path / "run", ("corpus",))
    shutil.copy(tmp_path / "more.jsonl", tmp_path / "docs.jsonl")
    with pytest.raises(CorpusError, match="the sources have changed") if point == "directory: renamed" else nullcontext():
        train(recipe, copy, ("corpus",))
    assert not list(copy.glob("*.staging")) and (copy / "sources.json").exists()


def test_edited_questions_are_refused(tiny_run, tmp_path):
    moved = shutil.copytree(tiny_run.parent, tmp_path / "moved")
    before = weights_of(moved / "run")
    (moved / "qa_train.jsonl").write_text('{"question": "Who pays with the Tirel?", "answers": ["People"]}\n')
    with pytest.raises(RunError, match="'finetune' was trained with another recipe or corpus"):
        train(moved / "recipe.toml", moved / "run")
    assert weights_of(moved / "run") == before


def test_without_questions_the_run_ends_after_pretraining(tmp_path, write_tiny):
    recipe, none = write_tiny(tmp_path), {"finetune": {"train": "", "dev": ""}, "eval": {"qa": ""}}
    done = train(load_recipe(recipe, none), tmp_path / "run")
    assert len(done["skipped"]) == 1 and "index search" in done["skipped"][0] and "finetune" not in done["stages"]
    run = open_run(tmp_path / "run")
    assert len(run.search("the currency of Arvad", 3)) == 3
    with pytest.raises(RunError, match=r"not been fine-tuned.*\[finetune\] train"):
        _ = run.answerer
    # Questions come later: the same run goes on.
    kept = weights_of(tmp_path / "run")
    done = train(recipe, tmp_path / "run")
    assert done["skipped"] == [] and done["stages"]["finetune"]["n"] == 6 and kept.items() <= weights_of(tmp_path / "run").items()


QUESTION = "What is the currency of Arvad?"


def without_arvad(corpus):
    assert main(["corpus", "remove", str(corpus), "Arvad/0", "Arvad/1"]) == 0


def purged(corpus):
    without_arvad(corpus)
    compact_corpus(corpus, purge=True)


@pytest.mark.parametrize("remove", [without_arvad, purged])
def test_open_objects_notice(run_copy, remove):
    realm, opened = Realm.open(run_copy), open_run(run_copy)
    answerer, explained = opened.answerer, Retriever(opened.generation.embedder.embed_questions, opened.generation.index)
    assert explained.retrieve(opened.inputs.blocks([0]), 13, null=True).valid.sum() == 13
    assert {e.doc_id for e in answerer.answer([QUESTION], k=12)[0].evidence} >= {"Arvad/0", "Arvad/1"}
    remove(run_copy / "corpus")
    for evidence in (answerer.answer([QUESTION], k=12)[0].evidence, realm.ask(QUESTION, k=10).evidence):
        assert len(evidence) == 10 and not {e.doc_id for e in evidence} & {"Arvad/0", "Arvad/1"}
    assert not {hit.doc_id for hit in (*opened.search(QUESTION, 12), *realm.search(QUESTION, 10))} & {"Arvad/0", "Arvad/1"}
    assert explained.retrieve(opened.inputs.blocks([0]), 13, null=True).valid.sum() == 11
    assert Realm.open(run_copy).unsearchable == 0


def test_an_updated_document_is_not_found_in_its_old_form(run_copy, tmp_path):
    opened = open_run(run_copy)
    (tmp_path / "new.jsonl").write_text('{"id": "Arvad/0", "title": "Arvad", "text": "The currency of Arvad is the Osten now."}\n')
    update_documents(run_copy / "corpus", [tmp_path / "new.jsonl"])
    assert "Arvad/0" not in {hit.doc_id for hit in opened.search(QUESTION, 12)}
    assert Realm.open(run_copy).unsearchable == 1
    again, count = opened.with_added()
    assert count == 1
    assert "Osten now" in next(hit.text for hit in again.search(QUESTION, 12) if hit.doc_id == "Arvad/0")


def test_bm25_notices(run_copy):
    pytest.importorskip("bm25s")
    inputs = open_run(run_copy).inputs
    bm25 = Bm25Candidates(inputs, np.arange(len(inputs.store)))
    ids = inputs.store.tokenizer.encode([QUESTION])
    before = bm25([QUESTION], ids, 12)
    remove_documents(run_copy / "corpus", ["Arvad/1"])
    after, gone = bm25([QUESTION], ids, 12), inputs.store.rows_of_document("Arvad/1")
    assert np.isin(before.rows, gone).any() and not np.isin(after.rows, gone).any()
    assert (after.scores[torch.from_numpy(after.rows < 0)] == 0).all()


def test_live_index_against_a_new_one(run_copy):
    """After every kind of change it returns what an index made anew of the live blocks returns."""
    corpus = run_copy / "corpus"
    store = BlockStore.open(corpus)
    vectors = np.random.default_rng(0).normal(size=(len(store), 8)).astype(np.float32)
    index, queries = LiveIndex(vectors, store.block_ids, store), torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    changes = [
        lambda: remove_documents(corpus, ["Arvad/0", "Belmor/1"]),
        lambda: add_documents(corpus, [run_copy.parent / "more.jsonl"]),
        lambda: compact_corpus(corpus, purge=True),
        lambda: remove_documents(corpus, ["Novaria/0", "Carsin/0"]),
        lambda: remove_documents(corpus, [doc_id for doc_id in BlockStore.open(corpus).documents() if doc_id != "Dulwen/0"]),
        lambda: remove_documents(corpus, ["Dulwen/0"]),
    ]
    jsonl(run_copy.parent / "more.jsonl", [{"id": "Novaria/0", "title": "Novaria", "text": "The currency of Novaria is the crown."}])
    for change in changes:
        change()
        live = BlockStore.open_even_empty(corpus).is_live(store.block_ids)
        found, expected = index.search(queries, 12), ExactIndex(vectors, store.block_ids, live).search(queries, 12)
        assert (found.ids == expected.ids).all() and (found.valid == expected.valid).all()
        assert found.valid.sum() == 5 * live.sum()
    assert len(index) == len(store) and index.dim == 8


STAGES = ("corpus", "warm", "ict", "pretrain", "finetune")
# As the demo: the structured start (three layers, heads of 32), bfloat16, partners and more hidden wordpieces.
OVERRIDES = {
    "run": {"bf16": True}, "model": {"hidden": 64, "layers": 3},
    "warm": {"steps": 8, "check_every": 4, "least_steps": 8}, "ict": {"steps": 8},
    "pretrain": {"steps": 8, "refresh_every": 3}, "finetune": {"steps": 8},
}  # fmt: skip


def run_elsewhere(recipe, out, threads, hash_seed):
    """In a process of its own, whose sets of strings are ordered by ``hash_seed``."""
    overrides = OVERRIDES | {"run": {**OVERRIDES["run"], "threads": threads}}
    settings = [f"--set={section}.{key}={str(v).lower()}" for section, values in overrides.items() for key, v in values.items()]
    command = [sys.executable, "-m", "realm", "run", str(recipe), "--out", str(out), "--stages", ",".join(STAGES), *settings]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_same_seed_twice(tmp_path, write_tiny, threads):
    recipe = write_tiny(tmp_path)
    for name, hash_seed in (("here", 1), ("there", 12345)):
        run_elsewhere(recipe, tmp_path / name, threads, hash_seed)
    here, there = (rows_of(tmp_path / name) for name in ("here", "there"))
    assert {row["stage"] for row in here} == set(STAGES[1:]) and here == there
    assert weights_of(tmp_path / "here") == weights_of(tmp_path / "there")
