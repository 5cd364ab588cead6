"""The step that training runs beside the plain ways of ``bench_step.py``: the same loss and the same gradients."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture
def work(monkeypatch):
    """Three queries of two candidates with inputs of many lengths; the second query has one mask fewer, and a document repeats."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.training.step_work import full_workload

    found = full_workload(3, 2, query_length=12, block_length=24)
    queries = [replace(q, ids=q.ids[: 10 - i]) for i, q in enumerate(found.queries)]
    positions = [min(q.positions[0], 6) for q in queries]
    queries = [replace(q, positions=[p, p + 1], targets=q.targets) for q, p in zip(queries, positions, strict=True)]
    queries[1] = replace(queries[1], positions=queries[1].positions[:1], targets=queries[1].targets[:1])
    found.retrieved.block_ids[2, 1] = found.retrieved.block_ids[0, 0]
    words = type(found.inputs)._words
    monkeypatch.setattr(type(found.inputs), "_words", lambda self, row: words(self, row)[: 8 + 3 * row])
    return replace(found, queries=queries)


def test_every_way_gives_the_same_loss_and_gradients(work):
    from benchmarks.training.bench_step import new_model
    from benchmarks.training.step_work import OURS, PLAIN, WAYS, our_loss, prepare, way_loss

    start = new_model("tiny").double()
    losses = {}
    gradients = {}
    for name in (*WAYS, OURS):
        model, way = copy.deepcopy(start), WAYS.get(name)
        prepare(model, way)
        loss = our_loss(model, work) if way is None else way_loss(way, model, work)
        loss.backward()
        losses[name] = loss.detach()
        gradients[name] = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    largest = max(float(g.abs().max()) for g in gradients[PLAIN].values())
    for name, loss in losses.items():
        torch.testing.assert_close(loss, losses[PLAIN], rtol=1e-11, atol=0, msg=name)
        assert gradients[name].keys() == gradients[PLAIN].keys()
        assert max(float((gradients[name][n] - g).abs().max()) for n, g in gradients[PLAIN].items()) < 1e-10 * largest, name


def test_what_a_step_needs_is_counted_by_hand(monkeypatch):
    """One layer of width 4 with 8 inside: its products written out."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.training.step_work import body_flops
    from realm.models.spec import BodySpec

    spec = BodySpec({"hidden_size": 4, "num_hidden_layers": 1, "intermediate_size": 8})
    length, read = 5, 2
    keys_and_values = 2 * (2 * length * 4 * 4)
    queries_and_output = 2 * (2 * read * 4 * 4)
    attention = 2 * (2 * read * length * 4)
    feed_forward = 2 * (2 * read * 4 * 8)
    assert body_flops(spec, length, read) == keys_and_values + queries_and_output + attention + feed_forward
    two = BodySpec({**spec.config, "num_hidden_layers": 2})
    assert body_flops(two, length, read) - body_flops(spec, length, read) == body_flops(spec, length, length)


def test_a_batch_of_full_lengths_is_full(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.training.step_work import full_workload, histogram

    found = full_workload(2, 3, query_length=64, block_length=288)
    assert {len(s) for s in found.query_inputs()} == {64} and {len(s) for s in found.blocks()} == {288}
    assert {len(s) for s in found.joint()} == {64 + 288 - 1} and len(found.joint()) == len(found.different_blocks()[0]) == 6
    assert histogram([0, 31, 32, 70]) == {"0-31": 2, "32-63": 1, "64-95": 1}
