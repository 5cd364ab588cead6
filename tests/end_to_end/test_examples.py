"""Sentences followed through training: read as in a step but without dropout, written at each refresh, taken back on resume."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from realm.answering.cloze import hidden_runs, masked_text
from realm.answering.explain import document_effects, explain
from realm.answering.opening import open_run, read_run_recipe
from realm.documents.store.blocks import BlockStore
from realm.models.types import MaskedQuery
from realm.progress import Progress
from realm.runs.run import run_recipe
from realm.storage.metrics import TIMES, MetricsLog
from realm.storage.paths import RunPaths
from realm.training.context import load_stage, open_context
from realm.training.pretrain.monitor import EXCERPT_CHARS, FOLLOWED_SENTENCES
from realm.training.pretrain.task import PretrainTask


def rows(run):
    """The rows but for times, and for numbers of generations, which a resumed run goes on counting."""
    return [{k: v for k, v in row.items() if k not in (*TIMES, "generation")} for row in MetricsLog(run / "examples.jsonl").rows()]


def test_a_run_follows_its_sentences(tiny_run):
    found = rows(tiny_run)
    steps = [row["step"] for row in MetricsLog(tiny_run / "metrics.jsonl").rows() if "probe_recall" in row]
    assert [(row["step"], row["sentence"]) for row in found] == [(step, i) for step in steps for i in range(FOLLOWED_SENTENCES)]
    for number in range(FOLLOWED_SENTENCES):
        assert len({(row["text"], tuple(row["targets"])) for row in found if row["sentence"] == number}) == 1
    for row in found:
        assert "[MASK]" in row["text"] and len(row["targets"]) == row["text"].count("[MASK]")
        null, *documents = row["candidates"]
        assert null["null"] and null["utility"] == 0 and sum(c["p_z"] for c in row["candidates"]) == pytest.approx(1, abs=1e-5)
        assert documents and all(c["title"] and 0 < len(c["text"]) <= EXCERPT_CHARS for c in documents)
        assert row["p_y"] == pytest.approx(sum(c["p_z"] * c["p_y_given_z"] for c in row["candidates"]), abs=1e-5)


def test_the_last_row_is_what_explain_says(tiny_run):
    """Another path through the networks: one sentence at a time, over the whole vocabulary."""
    run = open_run(tiny_run)
    for row in rows(tiny_run)[-FOLLOWED_SENTENCES:]:
        found = explain(run.pretrained, run.generation, run.inputs, row["text"], targets=row["targets"], k=len(row["candidates"]))
        assert [c.block_id for c in found.candidates] == [c["block_id"] for c in row["candidates"]]
        for name in ("p_z", "p_y_given_z", "r", "utility"):
            assert [getattr(c, name) for c in found.candidates] == pytest.approx([c[name] for c in row["candidates"]], abs=1e-4), name


def test_an_interrupted_run_writes_each_row_once(tiny_run, tmp_path, write_tiny, interrupt_each):
    recipe, stages = write_tiny(tmp_path), ("corpus", "warm", "ict", "pretrain")
    interrupt_each({"pretrain"})
    with pytest.raises(KeyboardInterrupt):
        run_recipe(recipe, tmp_path / "run", stages=stages, progress=Progress(quiet=True))
    run_recipe(recipe, tmp_path / "run", stages=stages, progress=Progress(quiet=True))
    assert rows(tmp_path / "run") == rows(tiny_run)


def test_text_is_the_documents_own(tiny_run, tmp_path):
    paths = RunPaths(Path(shutil.copytree(tiny_run, tmp_path / "run")))
    context = open_context(paths, read_run_recipe(paths), lambda *_: None)
    task = PretrainTask(context, load_stage(context, "pretrain"))
    sentences = {s["text"] for d in (tiny_run.parent / "docs.jsonl").read_text().splitlines() for s in [json.loads(d)]}
    for item in range(len(task.queries.sentences)):
        text, targets = masked_text(context.store, task.queries.query(item, item))
        assert any(text.replace("[MASK]", targets[0]) in document for document in sentences)  # letter case and all


def test_text_of_several_spans_and_of_a_sentence_that_changed(tiny_run):
    store = BlockStore.open(tiny_run / "corpus")
    start, end = store.sentences(0).tokens[0]
    ids = store.token_ids(0)[start:end].tolist()
    query = MaskedQuery(ids, [0, 1, 3], [ids[0], ids[1], ids[3]], int(store.block_ids[0]), 0)
    assert hidden_runs(query.positions) == [(0, 2), (3, 4)]
    text, targets = masked_text(store, query)
    written = store.block(0).text
    assert text.count("[MASK]") == 2 and len(targets) == 2
    assert written.startswith(text.replace("[MASK]", targets[0], 1).replace("[MASK]", targets[1], 1))
    for other in (MaskedQuery(ids[::-1], [0], [ids[-1]], int(store.block_ids[0]), 0), MaskedQuery(ids, [1], [ids[1]], 10**9, 0)):
        text, targets = masked_text(store, other)
        assert text.count("[MASK]") == 1 and targets[0]
    assert masked_text(store, MaskedQuery(ids, [1], [ids[1]], int(store.block_ids[0]), 99))[0].count("[MASK]") == 1


def test_without_a_null_document_there_is_no_utility(tiny_run):
    store, log_p_z = BlockStore.open(tiny_run / "corpus"), torch.tensor([0.25, 0.75]).log()
    found = document_effects(store, np.asarray(store.block_ids)[:2], log_p_z, torch.tensor([[-1.0, -1.0], [-2.0, -0.5]]))
    assert [c.utility for c in found] == [None, None] and not any(c.null for c in found)
    assert [c.p_y_given_z for c in found] == pytest.approx(np.exp([-2.0, -2.5]).tolist())
