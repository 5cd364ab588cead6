"""A case's weights through the importer into our networks, its inputs through our code, beside what the published side gave."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from cases import BLOCKS, QUESTIONS
from safetensors import safe_open
from small_corpus import SmallCorpus, best_span
from torch import Tensor

from realm.models import losses
from realm.models.model import RealmModel
from realm.models.published.names import import_tensors, plan_import, read_published_config
from realm.models.types import Sequence

Tensors = dict[str, Tensor]
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True)
class Pair:
    """One quantity on both sides. ``group`` is "outputs" or "gradients"; ``exact`` is the published side's in float64."""

    group: str
    name: str
    ours: Tensor
    theirs: Tensor
    exact: Tensor


class Case:
    """A file of the published side."""

    def __init__(self, path: Path):
        with safe_open(path, "pt") as file:
            self.kind = file.metadata()["kind"]
            self.config: dict[str, Any] = json.loads(file.metadata()["config"])
            self.tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (a file, not a dictionary)

    def below(self, prefix: str) -> Tensors:
        return {name.removeprefix(prefix): tensor for name, tensor in self.tensors.items() if name.startswith(prefix)}


def compare_case(path: Path, precision: str) -> Iterator[Pair]:
    """Run a case through our networks in one precision and pair every published output and gradient with ours."""
    case = Case(path)
    weights, inputs = case.below("weights/"), case.below("inputs/")
    spec = read_published_config(case.config, case.kind)
    plan = plan_import(case.kind, spec, {name: tuple(tensor.shape) for name, tensor in weights.items()})
    model = RealmModel(spec)
    model.load_state_dict(import_tensors(plan, weights.__getitem__))
    model = model.to(DTYPES[precision]).eval().requires_grad_(True)  # a scorer's document side learns there too
    ours, leaves = RUNNERS[case.kind](model, inputs, DTYPES[precision], weights)
    theirs = case.below(f"{precision}/outputs/")
    assert ours.keys() == theirs.keys(), sorted(ours.keys() ^ theirs.keys())
    exact = case.below("float64/outputs/")
    yield from (Pair("outputs", name, ours[name].detach(), theirs[name], exact[name]) for name in theirs)
    parameters = dict(model.named_parameters())
    gradients = {plan.taken[name]: parameter.grad for name, parameter in parameters.items() if parameter.grad is not None}
    gradients |= {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    expected, shared = case.below(f"{precision}/gradients/"), {*plan.taken.values(), *leaves}
    # What has no gradient there must be outside the loss here too, and the other way round.
    assert gradients.keys() == expected.keys() & shared, sorted(gradients.keys() ^ (expected.keys() & shared))
    assert expected.keys() <= shared, sorted(expected.keys() - shared)
    exact = case.below("float64/gradients/")
    yield from (Pair("gradients", name, gradients[name], expected[name], exact[name]) for name in expected)


def sequences(ids: Tensor, mask: Tensor, segments: Tensor) -> list[Sequence]:
    """The rows of a padded batch without their padding."""
    return [Sequence(i[m].tolist(), s[m].tolist()) for i, m, s in zip(ids, mask.bool(), segments, strict=True)]


def run_embedder(model: RealmModel, inputs: Tensors, dtype: torch.dtype, weights: Tensors) -> tuple[Tensors, Tensors]:
    projected = model.embedder(sequences(inputs["ids"], inputs["mask"], inputs["segments"]))
    (projected * inputs["weight"].to(dtype)).sum().backward()
    return {"projected": projected}, {}


def run_scorer(model: RealmModel, inputs: Tensors, dtype: torch.dtype, weights: Tensors) -> tuple[Tensors, Tensors]:
    query_emb = model.embedder(sequences(inputs["query_ids"], inputs["query_mask"], inputs["query_segments"]))
    flat = model.documents(sequences(inputs["block_ids"], inputs["block_mask"], inputs["block_segments"]))
    block_emb = flat.view(*inputs["weight"].shape, -1)
    relevance = losses.relevance_scores(query_emb, block_emb)
    (relevance * inputs["weight"].to(dtype)).sum().backward()
    return {"relevance": relevance, "query_emb": query_emb, "block_emb": block_emb}, {}


def run_encoder(model: RealmModel, inputs: Tensors, dtype: torch.dtype, weights: Tensors) -> tuple[Tensors, Tensors]:
    """Logits at every real position, then the loss at the masked ones through the training path."""
    encoder = model.encoder
    assert encoder is not None
    b, k = inputs["relevance"].shape
    relevance = inputs["relevance"].to(dtype).requires_grad_()
    joint = sequences(inputs["ids"], inputs["mask"], inputs["segments"])
    everywhere = torch.arange(inputs["ids"].shape[1]).expand(b * k, -1).minimum(inputs["mask"].sum(1, keepdim=True) - 1)
    with torch.no_grad():
        logits = encoder.logits(encoder.mask_states(joint, everywhere)) * inputs["mask"].unsqueeze(-1)
    slots, positions = inputs["mlm_mask"].sort(dim=1, descending=True, stable=True)
    slots = slots[:, : int(slots.sum(1).max())].bool()
    positions = positions[:, : slots.shape[1]].masked_fill(~slots, 0)
    targets = inputs["labels"].gather(1, positions)
    filled = encoder(joint, positions.repeat_interleave(k, 0), targets.repeat_interleave(k, 0)).view(b, k, -1)
    nll, _ = losses.marginal_nll_per_token(filled, losses.candidate_log_probs(relevance, torch.ones(b, k, dtype=torch.bool)), slots)
    loss = nll.sum() / slots.sum()
    loss.backward()
    return {"loss": loss, "logits": logits}, {"relevance": relevance}


def run_reader(model: RealmModel, inputs: Tensors, dtype: torch.dtype, weights: Tensors) -> tuple[Tensors, Tensors]:
    """Span scores in our frame [k, t, w], looked up in the published order of spans."""
    read, body = int(inputs["read"]), inputs["body"].bool()
    relevance = inputs["relevance"].to(dtype).requires_grad_()
    joint = sequences(inputs["ids"], inputs["mask"], inputs["segments"])[:read]
    starts = [int(segments.argmax()) for segments in inputs["segments"][:read]]
    scores = model.reader(joint, starts)
    logits, gold = scores.logits + relevance[:read].view(-1, 1, 1), torch.zeros_like(scores.valid)
    for block in range(read):
        for first, last in zip(inputs["starts"][block].tolist(), inputs["ends"][block].tolist(), strict=True):
            if first >= 0:
                gold[block, first - starts[block], last - first] = True
    has = inputs["has_answers"].bool().unsqueeze(0)
    retriever_loss, _ = losses.retriever_marginal(relevance.unsqueeze(0), has, torch.ones_like(has))
    reader_loss, _ = losses.span_marginal(logits.view(1, -1), gold.view(1, -1), scores.valid.view(1, -1))
    loss = (retriever_loss + reader_loss)[0]
    loss.backward()
    block, first, width = best_span(replace(scores, logits=logits))
    best = {"block": block, "start": [starts[block] + first], "end": [starts[block] + first + width]}
    values = {name: torch.tensor(value) for name, value in best.items()}
    values |= in_published_order(logits, scores.valid, gold, body[:read], starts, model.reader.max_span)
    return values | {"loss": loss, "retriever_loss": retriever_loss[0], "reader_loss": reader_loss[0]}, {"relevance": relevance}


def in_published_order(logits: Tensor, valid: Tensor, gold: Tensor, body: Tensor, starts: list[int], widest: int) -> Tensors:
    """Our [k, t, w] as the published [k, s]: all spans of the whole joint input by width, then by start."""
    length = body.shape[1]
    spans = [(first, first + width) for width in range(widest) for first in range(length - width)]
    found = {name: torch.zeros(len(body), len(spans), dtype=t.dtype) for name, t in (("logits", logits), ("valid", valid), ("gold", gold))}
    for block, begin in enumerate(starts):
        for place, (first, last) in enumerate(spans):
            if first >= begin and first - begin < logits.shape[1] and valid[block, first - begin, last - first]:
                at = (block, first - begin, last - first)
                for name, tensor in (("logits", logits.detach()), ("valid", valid), ("gold", gold)):
                    found[name][block, place] = tensor[at]
    first, last = (torch.tensor(side) for side in zip(*spans, strict=True))
    order = {"span_starts": first, "span_ends": last, "span_valid": found["valid"].long(), "correct": found["gold"].long()}
    return {**order, "span_logits": found["logits"]}


def run_openqa(model: RealmModel, inputs: Tensors, dtype: torch.dtype, weights: Tensors) -> tuple[Tensors, Tensors]:
    """All questions in one batch through the fine-tuning task and the answerer's reading; there each was a batch of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        corpus = SmallCorpus(Path(scratch), BLOCKS, weights["block_emb"])
        values: Tensors = {"block_emb": corpus.embed(model)}
        total = torch.zeros((), dtype=dtype)
        for i, result in enumerate(corpus.losses(model, QUESTIONS)):
            values |= {f"question{i}.{name}": tensor for name, tensor in result.items()}
            total = total + result["loss"]
        values["total"] = corpus.task_loss(model, QUESTIONS) * len(QUESTIONS)
        torch.testing.assert_close(values["total"], total)
        values["total"].backward()
        for i, result in enumerate(corpus.best(model, QUESTIONS)):
            values |= {f"question{i}.{name}": tensor for name, tensor in result.items()}
    return values, {}


RUNNERS = {"embedder": run_embedder, "scorer": run_scorer, "encoder": run_encoder, "reader": run_reader, "openqa": run_openqa}
