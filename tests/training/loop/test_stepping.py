"""A batch in parts: the same step, whatever the parts weigh; what is recomputed; the best weights; batches written down."""

import json
import math

import pytest
import torch
from torch import nn

from realm.errors import ConfigError, TrainingError
from realm.models.bodies.body import build_body
from realm.models.model import state_sha256
from realm.models.spec import bert_spec
from realm.storage.metrics import MetricsLog
from realm.training.loop.checkpoint import BestWeights, CheckpointDirectory, shared_best
from realm.training.loop.loop import LoopOptions, StepResult, Task, fit, recompute_layers
from realm.training.order import EpochOrder, Share

BATCH = 12
OPTIONS = LoopOptions(steps=6, lr=0.05, warmup=2, log_every=2, checkpoint_every=2)


class Weighed(Task):
    """Regression in which every example has a weight of its own, and some have none: their part of a batch has nothing to learn."""

    name = "weighed"
    best_by = "score"

    def __init__(self, scores=(), broken=frozenset(), killed_at=-1):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 1)).double()
            self.x = torch.randn(40, 3, dtype=torch.float64)
        self.weights = torch.arange(40, dtype=torch.float64) % 5
        self.order = EpochOrder(40, "weighed")
        self.scores, self.broken, self.killed_at = scores, broken, killed_at

    def step(self, step, share=Share()):  # noqa: B008
        if step == self.killed_at:
            raise KeyboardInterrupt
        items = torch.tensor([item for _, item in self.order.batch(step, BATCH, share)])
        x, weight = self.x[items], self.weights[items]
        if share.count > 1 and share.index == 0:
            weight = torch.zeros_like(weight)  # nothing valid here
        loss = ((self.model(x).squeeze(-1) - x.sum(-1)).pow(2) * weight).sum()
        if step in self.broken:
            loss = loss * math.inf
        mean_x = float((x.mean(-1) * weight).sum() / weight.sum()) if weight.any() else 0.0
        return StepResult(loss, int((weight > 0).sum()), {"mean_x": mean_x}, float(weight.sum()))

    def between(self, step):
        return {"score": self.scores[step]} if self.scores else None

    def examples(self, step):
        return [{"item": item} for _, item in self.order.batch(step, BATCH)]


def train(task, run, **changes):
    options = LoopOptions(**{**vars(OPTIONS), **changes})
    checkpoints = CheckpointDirectory(run / "checkpoints", fingerprint="f")
    return fit(task, options, log=MetricsLog(run / "metrics.jsonl"), checkpoints=checkpoints, report=lambda *row: None)


def test_shares_are_the_batch_in_order():
    order = EpochOrder(7, "x")
    whole = order.batch(3, 6)
    assert [pair for part in range(3) for pair in order.batch(3, 6, Share(part, 3))] == whole
    assert [position for position, _ in whole] == list(range(18, 24))
    with pytest.raises(ConfigError, match=r"a batch of 6 cannot be divided into 4 parts \(ranks x accumulate\).*multiple of 4"):
        order.batch(3, 6, Share(0, 4))


def test_parts_of_unequal_weight_give_the_step_of_the_whole(tmp_path):
    """Four parts, of which the first has nothing valid, against one batch without those examples."""

    class Whole(Weighed):
        def step(self, step, share=Share()):  # noqa: B008
            parts = [super(Whole, self).step(step, Share(part, 4)) for part in range(4)]
            weight = sum(part.weight for part in parts)
            mean_x = sum(part.metrics["mean_x"] * part.weight for part in parts) / weight
            return StepResult(sum((p.loss for p in parts), torch.zeros(())), sum(p.valid for p in parts), {"mean_x": mean_x}, weight)

    parts, whole = Weighed(), Whole()
    train(parts, tmp_path / "parts", accumulate=4)
    train(whole, tmp_path / "whole")
    for one, other in zip(parts.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    rows = [list(MetricsLog(tmp_path / name / "metrics.jsonl").rows()) for name in ("parts", "whole")]
    for one, other in zip(*rows, strict=True):
        assert one["step"] == other["step"] and one["valid"] == other["valid"]
        for name in ("loss", "mean_x", "grad_norm"):
            assert one[name] == pytest.approx(other[name], abs=2e-6)


def test_recomputed_layers_give_the_same_gradients_dropout_included():
    spec = bert_spec(vocab_size=50, hidden=16, layers=3, heads=2, intermediate=32, max_length=32, dropout=0.3, attention_dropout=0.0)
    torch.manual_seed(0)
    body = build_body(spec, pooler=False).train()
    ids = torch.randint(5, 50, (2, 9))
    calls = []
    body.model.encoder.layer[1].intermediate.register_forward_hook(lambda *_: calls.append(1))

    def gradients():
        body.zero_grad()
        torch.manual_seed(1)
        body.model(input_ids=ids).last_hidden_state.pow(2).sum().backward()
        return [p.grad.clone() for p in body.parameters() if p.grad is not None]

    plain = gradients()
    assert len(calls) == 1
    recompute_layers(body)
    again = gradients()
    assert len(calls) == 3  # once forwards, once again in the backward pass
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


def test_the_best_weights_are_kept(tmp_path):
    train(Weighed(scores=(0.1, 0.3, 0.2, 0.9, 0.9, 0.4, 0.5)), tmp_path)
    found = shared_best(tmp_path / "checkpoints")
    assert found is not None and found[:2] == (3, 0.9)
    train(Weighed(), tmp_path / "short", steps=3)  # weights after three steps, but for the schedule
    assert [path.name for path in (tmp_path / "checkpoints").glob("best-*")] == ["best-0000003"]
    assert shared_best(tmp_path / "short/checkpoints") is None


@pytest.mark.parametrize("killed_at", range(6))
def test_a_resumed_run_has_the_same_best(tmp_path, killed_at):
    scores = (0.1, 0.3, 0.2, 0.25, 0.9, 0.4, 0.5)
    whole = Weighed(scores)
    train(whole, tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        train(Weighed(scores, killed_at=killed_at), tmp_path / "b")
    task = Weighed(scores)
    train(task, tmp_path / "b")
    assert state_sha256(task.model) == state_sha256(whole.model)
    best = [shared_best(tmp_path / name / "checkpoints") for name in ("a", "b")]
    assert best[0] is not None and best[1] is not None and best[0][:2] == best[1][:2] == (4, 0.9)
    assert best[0][2].read_bytes() == best[1][2].read_bytes()


def test_a_best_that_a_checkpoint_knows_outlives_a_better_one(tmp_path):
    """Killed after a better one, the run goes on from a checkpoint that knows the old one; this time the better one may not come."""
    with pytest.raises(KeyboardInterrupt):
        train(Weighed((0.1, 0.3, 0.2, 0.9, 0.0, 0.0, 0.0), killed_at=3), tmp_path)
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("best-*")) == ["best-0000001", "best-0000003"]
    train(Weighed((0.1, 0.3, 0.2, 0.1, 0.0, 0.0, 0.0)), tmp_path)
    found = shared_best(tmp_path / "checkpoints")
    assert found is not None and found[:2] == (1, 0.3)


def test_a_score_that_is_no_number_is_no_best(tmp_path):
    best = BestWeights(tmp_path)
    best.offer(1, math.nan, nn.Linear(1, 1))
    assert best.state is None and shared_best(tmp_path) is None


def test_batches_of_steps_that_were_not_finite_are_written_down(tmp_path):
    task = Weighed(broken=frozenset({1, 3, 4, 5}))
    with pytest.raises(TrainingError) as caught:
        train(task, tmp_path, log_every=10)
    path = tmp_path / "not_finite" / "weighed.json"
    assert str(caught.value).startswith(f"{path}: weighed: 3 steps in a row") and "\n" not in str(caught.value)
    written = json.loads(path.read_text())
    assert written == {"stage": "weighed", "steps": [{"step": step, "examples": task.examples(step)} for step in (3, 4, 5)]}
    assert all(torch.isfinite(p).all() for p in task.model.parameters())
