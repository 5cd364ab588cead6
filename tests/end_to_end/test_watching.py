"""What pre-training shows: each number against the slow obvious way, the rows of a real run, and nothing that changes training."""

import shutil

import numpy as np
import pytest
import torch

from realm.answering.opening import read_run_recipe
from realm.documents.store.blocks import NULL_BLOCK
from realm.search.retriever import Retrieved
from realm.storage.metrics import SPEED, MetricsLog
from realm.storage.paths import RunPaths
from realm.training.context import load_stage, open_context
from realm.training.pretrain import monitor
from realm.training.pretrain.monitor import MEASURE_EVERY, RECENT_QUERIES, excluded_share, utility_by_rank
from realm.training.pretrain.score import ScoredCandidates
from realm.training.pretrain.task import PretrainTask


def silent(*_):
    """A report that says nothing."""


@pytest.fixture
def task(tiny_run, tmp_path):
    paths = RunPaths(shutil.copytree(tiny_run, tmp_path / "run"))
    context = open_context(paths, read_run_recipe(paths), silent)
    task = PretrainTask(context, load_stage(context, "pretrain"))
    task.between(0)
    task.model.train()
    return task


def test_utility_by_rank_leaves_out_what_is_no_document():
    log_probs = torch.tensor([[[-4.0], [-1.0], [-2.0]], [[-3.0], [-6.0], [0.0]]])
    scored = ScoredCandidates(torch.zeros(2, 3), log_probs, torch.ones(2, 1, dtype=torch.bool), 0)
    valid = np.array([[True, True, True], [True, True, False]])
    retrieved = Retrieved(np.where(valid, [[NULL_BLOCK, 1, 2], [NULL_BLOCK, 3, 4]], NULL_BLOCK), valid, np.zeros((2, 3), np.float32))
    assert utility_by_rank(scored, retrieved) == {"utility_rank_1": (3 - 3) / 2, "utility_rank_2": 2.0}
    without_null = Retrieved(np.array([[5, 1, 2], [6, 3, 4]]), np.ones((2, 3), bool), np.zeros((2, 3), np.float32))
    assert utility_by_rank(scored, without_null) == {}


def test_excluded_hits_are_those_of_the_slow_way(task):
    queries = [task.queries.query(at, item) for at, item in task.queries.order.batch(0, 6)]
    inputs = task.context.inputs
    embedded = task.generation.queries.embed_questions([inputs.featurizer.query(q.ids) for q in queries])
    everything = task.generation.index.search(embedded, 3, None)
    forbidden = [block_id in query.excluded for ids, query in zip(everything.ids.tolist(), queries, strict=True) for block_id in ids]
    assert excluded_share(task.view, queries) == {"excluded_share": pytest.approx(np.mean(forbidden))}


def test_watching_changes_no_gradient(task, monkeypatch):
    def gradients():
        torch.manual_seed(5)
        task.model.zero_grad()
        task.step(MEASURE_EVERY).loss.backward()
        return {name: p.grad.clone() for name, p in task.model.named_parameters() if p.grad is not None}

    watched = gradients()
    monkeypatch.setattr(task.watcher, "step", lambda *_: {})
    for name, gradient in gradients().items():
        assert torch.equal(gradient, watched[name]), name


def test_distinct_documents_come_back_with_a_checkpoint(task, monkeypatch):
    monkeypatch.setattr(monitor, "RECENT_QUERIES", 10)
    watcher = monitor.Watcher()
    for _ in range(2):
        assert "distinct_per_1000" not in watcher.row(1, 5)
        watcher._recent.extend([[1, 2], [2, 3], [3, 1], [9, 9], [1, 9]])
    watcher._recent = type(watcher._recent)(watcher._recent, maxlen=10)
    again = monitor.Watcher()
    again.restore(watcher.state())
    assert watcher.row(2, 5)["distinct_per_1000"] == again.row(2, 5)["distinct_per_1000"] == 4
    assert RECENT_QUERIES == 1000


def test_rows_of_a_run_say_everything(tiny_run):
    rows = [row for row in MetricsLog(tiny_run / "metrics.jsonl").rows() if row["stage"] == "pretrain"]
    window = next(row for row in rows if "loss" in row)
    names = ("marginal_utility", "p_null", "entropy", "staleness_steps", "excluded_share")
    assert set(names) | {f"utility_rank_{rank}" for rank in (1, 2, 3)} | set(SPEED) <= set(window)
    assert window["tokens_per_second"] > 0 and window["seconds_left"] == 0
    assert any("held_out_recall" in row for row in rows)
