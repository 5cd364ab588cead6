"""Steps of pre-training to measure: batches, ways to compute one from the plain way to ours, its operations, the peak of products."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from realm.documents.store.blocks import NULL_BLOCK
from realm.models import losses
from realm.models.bodies.body import Body, TokenInputs, in_buckets, pad_batch
from realm.models.encoder import mask_slots
from realm.models.featurize import Featurizer
from realm.models.model import RealmModel
from realm.models.spec import BodySpec
from realm.models.types import MaskedQuery, Sequence
from realm.recipe import Recipe
from realm.recipe.seeds import generator
from realm.search.blocks import BlockInputs
from realm.search.retriever import Retrieved
from realm.training.loop.optim import adamw, parameter_groups
from realm.training.masking.sentences import MaskedSentences
from realm.training.pretrain.score import score_candidates

VOCABULARY = 30522
"""BERT's and the published REALM's."""
FIRST_WORD = 1000
MASKS = 2
PLAIN, PADDED, OURS, OURS_BF16 = "plain", "padded", "realm", "realm bf16"


class FullBlocks:
    """Stands in for a corpus whose every block fills the block input and the joint input; what it says is drawn by the row."""

    def __init__(self, featurizer: Featurizer):
        self.featurizer = featurizer

    def rows(self, block_ids: np.ndarray) -> np.ndarray:
        return block_ids

    def _words(self, row: int) -> list[int]:
        return generator("full blocks", row).integers(FIRST_WORD, VOCABULARY, self.featurizer.block_length).tolist()

    def blocks(self, rows: list[int]) -> list[Sequence]:
        return [self.featurizer.block(self._words(row)[:8], self._words(row)) for row in rows]

    def joint(self, query: list[int], row: int) -> Sequence:
        return self.featurizer.joint(query, self._words(row))


@dataclass(frozen=True)
class Workload:
    """One batch before it is featurised, as pre-training has it: where blocks come from, the queries and their candidates."""

    inputs: Any
    queries: list[MaskedQuery]
    retrieved: Retrieved

    def joint(self) -> list[Sequence]:
        """b * k joint inputs, candidates of one query together."""
        rows = self.inputs.rows(self.retrieved.block_ids)
        return [self.inputs.joint(q.ids, int(row)) for q, own in zip(self.queries, rows, strict=True) for row in own]

    def blocks(self) -> list[Sequence]:
        """b * k block inputs, one for each candidate even where a document repeats."""
        return self.inputs.blocks(self.inputs.rows(self.retrieved.block_ids).ravel().tolist())

    def different_blocks(self) -> tuple[list[Sequence], torch.Tensor]:
        """Each document once, and for each of the b * k candidates which one it is."""
        rows, place = np.unique(self.inputs.rows(self.retrieved.block_ids), return_inverse=True)
        return self.inputs.blocks(rows.tolist()), torch.from_numpy(place.reshape(-1))

    def query_inputs(self) -> list[Sequence]:
        return [self.inputs.featurizer.query(q.ids) for q in self.queries]

    def masks(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Positions, targets and real slots, [b, m] each."""
        return mask_slots([q.positions for q in self.queries], [q.targets for q in self.queries])

    def first(self, b: int) -> "Workload":
        """The first ``b`` queries."""
        kept = Retrieved(self.retrieved.block_ids[:b], self.retrieved.valid[:b], self.retrieved.scores[:b])
        return Workload(self.inputs, self.queries[:b], kept)


def retrieved(block_ids: np.ndarray) -> Retrieved:
    return Retrieved(block_ids, np.ones(block_ids.shape, np.bool_), np.zeros(block_ids.shape, np.float32))


def full_workload(b: int, k: int, *, query_length: int, block_length: int) -> Workload:
    """Every input of its greatest length, every candidate another document: nothing to save by packing or sharing."""
    inputs = FullBlocks(Featurizer(cls=2, sep=3, mask=4, pad=0, query_length=query_length, block_length=block_length))
    queries = []
    for i in range(b):
        rng = generator("full query", i)
        ids = rng.integers(FIRST_WORD, VOCABULARY, query_length - 2).tolist()
        start = int(rng.integers(len(ids) - MASKS))
        positions = list(range(start, start + MASKS))
        targets = [ids[p] for p in positions]
        for p in positions:
            ids[p] = inputs.featurizer.mask
        queries.append(MaskedQuery(ids, positions, targets, origin=-2))
    return Workload(inputs, queries, retrieved(np.arange(b * k).reshape(b, k)))


def corpus_workload(inputs: BlockInputs, sentences: MaskedSentences, b: int, k: int) -> Workload:
    """Salient sentences of a corpus with the null document and k - 1 other blocks drawn at random, so that hardly one repeats."""
    rng = generator("corpus batch")
    queries = [sentences.query(int(item), rng) for item in rng.permutation(len(sentences))[:b]]
    drawn = rng.choice(np.asarray(inputs.store.block_ids), (b, k - 1), replace=False)
    return Workload(inputs, queries, retrieved(np.concatenate([np.full((b, 1), NULL_BLOCK), drawn], axis=1)))


def padded(sequences: list[Sequence], length: int) -> TokenInputs:
    """[n, length], whatever the longest is."""
    inputs = pad_batch([*sequences, Sequence([0] * length, [0] * length)], 0)
    return TokenInputs(inputs.ids[:-1], inputs.mask[:-1], inputs.segments[:-1])


def histogram(lengths: list[int], step: int = 32) -> dict[str, int]:
    """How many of each length, in groups of ``step``."""
    counts = np.bincount(np.asarray(lengths) // step)
    return {f"{i * step}-{i * step + step - 1}": int(count) for i, count in enumerate(counts)}


def body_flops(spec: BodySpec, length: int, read: int) -> float:
    """Of one forward pass over one input whose last states are read at ``read`` positions; what nothing reads is not counted."""
    h, layers, inner = spec.hidden, int(spec.config["num_hidden_layers"]), int(spec.config["intermediate_size"])
    whole = length * (8 * h * h + 4 * h * inner) + 4 * length * length * h
    last = length * 4 * h * h + read * (4 * h * h + 4 * h * inner) + 4 * read * length * h
    return (layers - 1) * whole + last


def step_flops(spec: BodySpec, projection: int, work: Workload) -> float:
    """Of forward and backward over real tokens: no padding, no repeated document, no logits but at the masks."""
    h, v = spec.hidden, int(spec.config["vocab_size"])
    (_, k), (_, _, slots) = work.retrieved.block_ids.shape, work.masks()
    masks = slots.sum(1).repeat_interleave(k).tolist()
    embedded = [*work.query_inputs(), *work.different_blocks()[0]]
    forward = sum(body_flops(spec, len(s), 1) + 2 * h * h + 2 * h * projection for s in embedded)
    forward += sum(body_flops(spec, len(s), m) + m * (2 * h * h + 2 * h * v) for s, m in zip(work.joint(), masks, strict=True))
    return 3 * forward


def gemm_peak(
    width: int, inner: int, dtype: torch.dtype, *, device: str = "cpu", rows: int = 4096, clock: Callable[[], float] = time.perf_counter
) -> float:
    """FLOP/s of a body's largest matrix product, the best of several; by the clock of processor time, FLOP for a second of that."""
    a, b = torch.randn(rows, width, dtype=dtype, device=device), torch.randn(width, inner, dtype=dtype, device=device)
    best = float("inf")
    for _ in range(10):
        wait(device)
        started = clock()
        a @ b
        wait(device)
        best = min(best, clock() - started)
    return 2 * rows * width * inner / best


def wait(device: str) -> None:
    """Until an accelerator has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Way:
    """A way without our short cuts. Each field is one of them; ``longest`` pads to the longest of the batch and not to the maximum."""

    masks_only: bool = False
    sdpa: bool = False
    fused: bool = False
    longest: bool = False
    shared: bool = False
    buckets: bool = False


WAYS = {
    PLAIN: Way(),
    "+ logits at masks only": Way(masks_only=True),
    "+ SDPA": Way(masks_only=True, sdpa=True),
    "+ fused AdamW": Way(masks_only=True, sdpa=True, fused=True),
    PADDED: Way(masks_only=True, sdpa=True, fused=True, longest=True),
    "+ shared documents": Way(masks_only=True, sdpa=True, fused=True, longest=True, shared=True),
    "+ length buckets": Way(masks_only=True, sdpa=True, fused=True, longest=True, shared=True, buckets=True),
}
"""Cumulative; ``OURS`` adds the last layer only where it is read, and is what pre-training runs."""


def prepare(model: RealmModel, way: Way | None) -> torch.optim.Optimizer:
    """Set the way's attention; returns its optimiser."""
    if way is not None and not way.sdpa:
        for part in (model.embedder, model.encoder):
            part.body.model.set_attn_implementation("eager")  # type: ignore[operator]
    if way is None or way.fused:
        return adamw([model], lr=1e-5)
    return torch.optim.AdamW(parameter_groups([model], 0.01), lr=1e-5, eps=1e-6, foreach=False, fused=False)


def our_loss(model: RealmModel, work: Workload) -> Tensor:
    """The code that pre-training runs."""
    context: Any = SimpleNamespace(inputs=work.inputs, device=next(model.parameters()).device, recipe=Recipe())
    scored = score_candidates(model, context, work.queries, work.retrieved)
    loss, _ = losses.marginal_nll_per_token(scored.target_log_probs, scored.log_p_z, scored.slots)
    return loss.sum() / scored.slots.sum()


def way_loss(way: Way, model: RealmModel, work: Workload) -> Tensor:
    """The same loss without our networks' short cuts."""
    (b, k), featurizer = work.retrieved.block_ids.shape, work.inputs.featurizer
    embed = _embedding(way, model)
    query_emb = embed(work.query_inputs(), featurizer.query_length)
    if way.shared:
        blocks, place = work.different_blocks()
        block_emb = embed(blocks, featurizer.block_length)[place]
    else:
        block_emb = embed(work.blocks(), featurizer.block_length)
    null = torch.from_numpy(work.retrieved.block_ids == NULL_BLOCK).to(query_emb.device)
    scores = losses.relevance_scores(query_emb, block_emb.view(b, k, -1), null, model.embedder.null_offset)
    log_p_z = losses.candidate_log_probs(scores, torch.ones(b, k, dtype=torch.bool))
    where, what, slots = work.masks()
    filled = _filled(way, model, work.joint(), where.repeat_interleave(k, 0), what.repeat_interleave(k, 0), featurizer.joint_length)
    loss, _ = losses.marginal_nll_per_token(filled.view(b, k, -1), log_p_z, slots)
    return loss.sum() / slots.sum()


def _inputs(way: Way, sequences: list[Sequence], length: int) -> TokenInputs:
    return pad_batch(sequences, 0) if way.longest else padded(sequences, length)


def _embedding(way: Way, model: RealmModel) -> Callable[[list[Sequence], int], Tensor]:
    embedder = model.embedder
    assert embedder is not None
    body: Body = embedder.body

    def pooled(inputs: TokenInputs) -> Tensor:
        return body.model.pooler(body(inputs))  # type: ignore[operator]

    def embed(sequences: list[Sequence], length: int) -> Tensor:
        if way.buckets:
            return embedder.head(in_buckets(body, sequences, lambda inputs, _: pooled(inputs)))
        return embedder.head(pooled(_inputs(way, sequences, length)))

    return embed


def _filled(way: Way, model: RealmModel, joint: list[Sequence], where: Tensor, what: Tensor, length: int) -> Tensor:
    """log p of the targets [n, m] with the joint inputs."""
    encoder = model.encoder
    assert encoder is not None

    def at_masks(inputs: TokenInputs, rows: list[int]) -> Tensor:
        states = encoder.body(inputs)
        return states.gather(1, where[rows].unsqueeze(-1).expand(-1, -1, states.shape[-1]))

    if way.buckets:
        logits = encoder.logits(in_buckets(encoder.body, joint, at_masks))
    elif way.masks_only:
        logits = encoder.logits(at_masks(_inputs(way, joint, length), list(range(len(joint)))))
    else:
        everywhere = encoder.logits(encoder.body(_inputs(way, joint, length)))
        labels = torch.full(everywhere.shape[:2], -100).scatter(1, where, what)
        found = -F.cross_entropy(everywhere.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none")
        return found.view(labels.shape).gather(1, where)
    return -F.cross_entropy(logits.flatten(0, 1), what.flatten(), reduction="none").view_as(what)
