"""REALM pre-training: the retriever learns because a document that helps to fill a mask is rewarded (REALM, section 3)."""

import time
from contextlib import closing
from typing import Any

import numpy as np
import torch

from realm import losses
from realm.corpus.blocks import NULL_BLOCK
from realm.data.featurize import mask_slots
from realm.data.loader import EpochOrder, generator
from realm.data.types import MaskedQuery
from realm.nn.model import RealmModel
from realm.recipes.context import StageContext, is_published, load_stage, new_model, publish_stage, train
from realm.recipes.objectives import Scored, pretraining_loss
from realm.recipes.probe import ProbeSet
from realm.recipes.retrieving import allowed_among, retrieve_candidates
from realm.recipes.sentences import pretraining_fingerprint, pretraining_sentences, probe_sentences, require_same_corpus
from realm.recipes.staleness import overlap, stale_share
from realm.recipes.swaps import SwapLog, index_source, speed
from realm.recipes.warm import require_reading
from realm.refresh import Generation
from realm.retrieval import NULL_INDEX, Retrieved
from realm.train.loop import Metrics, StepResult, Task


def score_candidates(model: RealmModel, context: StageContext, queries: list[MaskedQuery], retrieved: Retrieved) -> Scored:
    """Embed queries and candidates afresh and let the encoder fill the masks with each candidate (design, steps 4 and 5).

    Args:
        queries: b masked sentences.
        retrieved: their k candidates.

    Returns:
        log p(z|x) [b, k], log p(y_j|z,x) [b, k, m] (0 at invalid candidates), slots [b, m].
    """
    assert model.embedder is not None and model.encoder is not None
    inputs, device, section = context.inputs, context.device, context.recipe.pretrain
    query_emb = model.embedder([inputs.featurizer.query(q.ids) for q in queries])
    rows = inputs.rows(retrieved.block_ids)
    # A document that several queries retrieved is embedded once.
    unique, place = np.unique(rows, return_inverse=True)
    unique_emb = model.documents(inputs.blocks(unique.tolist()))
    own = torch.from_numpy(place.reshape(rows.shape)).to(device)
    valid = torch.from_numpy(retrieved.valid).to(device)
    log_p_z = losses.candidate_log_probs(losses.relevance_scores(query_emb, unique_emb[own]), valid)
    among_batch = None
    if section.in_batch:
        allowed = allowed_among(queries, unique, inputs, null=section.null, overlap=section.exclude_overlap)
        among_batch = losses.in_batch_log_probs(query_emb @ unique_emb.T, torch.from_numpy(allowed).to(device), own, valid)

    where, what, slots = (t.to(device) for t in mask_slots([q.positions for q in queries], [q.targets for q in queries]))
    example, candidate = (torch.from_numpy(a).to(device) for a in np.nonzero(retrieved.valid))
    sequences = [inputs.joint(queries[i].ids, int(rows[i, j])) for i, j in zip(example.tolist(), candidate.tolist(), strict=True)]
    # Without a null document every candidate of a batch may be excluded.
    filled = model.encoder(sequences, where[example], what[example]) if sequences else log_p_z.new_zeros(0, where.shape[1])
    target_log_probs = filled.new_zeros(*rows.shape, where.shape[1]).index_put((example, candidate), filled)
    return Scored(log_p_z, target_log_probs, slots, among_batch)


def pretraining_metrics(scored: Scored, retrieved: Retrieved) -> Metrics:
    """What a step shows of the retriever: utility and p(null) where there is a null document, entropy, distinct documents."""
    log_p_z, probs, slots = scored.log_p_z.detach(), scored.target_log_probs.detach(), scored.slots
    p_z = log_p_z.exp()
    entropy = -(p_z * log_p_z.masked_fill(p_z == 0, 0.0)).sum(-1)
    real = retrieved.block_ids[retrieved.valid & (retrieved.block_ids != NULL_BLOCK)]
    metrics = {"entropy": float(entropy.mean()), "distinct": len(np.unique(real)) / max(1, len(real))}
    if retrieved.has_null:
        utility = losses.marginal_utility(probs, log_p_z, slots)
        metrics |= {"marginal_utility": float(utility.sum() / slots.sum()), "p_null": float(p_z[:, NULL_INDEX].mean())}
    return metrics


class PretrainTask(Task):
    """Retrieve with the published embedder, score with the live one, learn from the marginal likelihood."""

    name = "pretrain"

    def __init__(self, context: StageContext, model: RealmModel):
        self.context = context
        self.model = model
        self.section = context.recipe.pretrain
        self.sentences = pretraining_sentences(context)
        self.order = EpochOrder(len(self.sentences), "pretrain", context.seed)
        self.probe = ProbeSet(context, probe_sentences(context, self.sentences), self.section.probe_queries)
        self.generation: Generation | None = None
        self.source = index_source(context, self.kept_generations)
        self.swaps = SwapLog(context.paths.swaps)
        self._restored: dict[str, Any] | None = None
        self.collapsed = False

    def query(self, position: int, item: int) -> MaskedQuery:
        return self.sentences.query(item, generator("pretrain", self.context.seed, position))

    def retrieve(self, queries: list[MaskedQuery]) -> Retrieved:
        """k candidates by the generation's own embedder, null first if it is one, without the documents that hold a query's sentence."""
        assert self.generation is not None
        section = self.section
        return retrieve_candidates(
            self.generation, self.context.inputs, queries, section.candidates, null=section.null, overlap=section.exclude_overlap
        )

    def step(self, step: int) -> StepResult:
        queries = [self.query(at, item) for at, item in self.order.batch(step, self.section.batch)]
        retrieved = self.retrieve(queries)
        scored = score_candidates(self.model, self.context, queries, retrieved)
        loss, valid = pretraining_loss(scored, self.section)
        metrics = {**pretraining_metrics(scored, retrieved), "staleness_steps": float(step - self._generation_step())}
        return StepResult(loss.sum() / scored.slots.sum(), int(valid.sum()), metrics)

    def _generation_step(self) -> int:
        assert self.generation is not None
        return self.generation.snapshot.manifest.step

    def kept_generations(self) -> frozenset[int]:
        """Generations that a killed run would go back to: those that were searched at a kept checkpoint."""
        return frozenset(int(state["generation"]) for state in self.kept_states())

    def between(self, step: int) -> Metrics | None:
        """Go on with the generation that a checkpoint was searching, go over to a newer one when there is one, and probe the retriever."""
        if self._restored is not None:
            state, self._restored = self._restored, None
            self.generation = self.source.resume(int(state["generation"]))
            self.probe.retrieve(self)
        started = time.perf_counter()
        found = self.source.between(step, self.model)
        return None if found is None else self._go_over(step, found, time.perf_counter() - started)

    def _go_over(self, step: int, found: Generation, seconds: float) -> Metrics:
        """Search ``found`` from this step on. What it changes is measured on the probe set and logged."""
        require_same_corpus(self.context.store)
        previous, self.generation = self.probe.retrieved, found
        self.swaps.add(step, self.source)
        metrics = {"probe_recall": self.probe.recall(self)}
        self.collapsed = self.probe.collapse()
        metrics["collapsed"] = float(self.collapsed)
        if previous is not None and self.probe.retrieved is not None:
            metrics["topk_overlap"] = overlap(previous, self.probe.retrieved)
            metrics["stale_share"] = stale_share(self, previous, step)
        metrics["refresher_restarts"] = float(self.source.restarts)
        return metrics | {"wait_seconds": seconds} | speed(found)

    def finished(self, step: int) -> bool:
        return self.collapsed and self.section.stop_on_collapse

    def state(self) -> dict[str, Any]:
        assert self.generation is not None
        return {"generation": self.generation.number, "probe": self.probe.history, "swaps": self.swaps.rows, "source": self.source.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self._restored = state
        self.probe.history = list(state["probe"])
        self.swaps.restore(state.get("swaps", []))
        self.source.restore(state.get("source", {}))

    def settle(self, step: int) -> Generation:
        """The index of the parameters as they are in the end: fine-tuning freezes the document side under it."""
        assert self.generation is not None
        if self.generation.step != step:  # ended early, between two refreshes
            self.generation = self.source.settle(step, self.model)
            self.swaps.add(step, self.source)
        return self.generation


def starting_model(context: StageContext) -> RealmModel:
    """The embedder of ICT and the encoder of the warm stage; a fresh one in place of a stage that the recipe does not start from."""
    section = context.recipe.pretrain
    fresh = None if section.from_ict and section.from_warm else new_model(context).to(context.device)
    model = fresh or load_stage(context, "ict")
    embedder = load_stage(context, "ict").embedder if section.from_ict else model.embedder
    encoder = load_stage(context, "warm").encoder if section.from_warm else model.encoder
    model = model.with_parts(embedder=embedder, encoder=encoder)
    if section.separate_embedders:
        model = model.fork_document_embedder()
        model.documents.requires_grad_(True)  # frozen in fine-tuning only; here both sides learn
    return model


def run_pretrain(context: StageContext) -> None:
    """Pre-train, and publish embedder, encoder and the index of the last step."""
    mark = pretraining_fingerprint(context)
    if is_published(context, "pretrain", mark):
        return
    require_reading(context)
    model = starting_model(context)
    task = PretrainTask(context, model)
    context.say(f"pretrain: {task.sentences.summary}")
    with closing(task.source):
        steps = train(context, task, context.recipe.pretrain, mark)
        generation = task.settle(steps)
    facts = {"steps": steps, "generation": generation.number, "probe": task.probe.history}
    sentences = {"sentences": len(task.sentences), "spans": task.sentences.spans, "dropped": dict(task.sentences.dropped)}
    publish_stage(context, "pretrain", model, mark, facts | sentences)
