"""REALM pre-training: the retriever learns because a document that helps to fill a mask is rewarded (REALM, section 3)."""

import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realm import losses
from realm.corpus.blocks import NULL_BLOCK
from realm.data.featurize import mask_slots
from realm.data.loader import EpochOrder, generator
from realm.data.types import MaskedQuery
from realm.nn.model import RealmModel
from realm.recipes.context import StageContext, fingerprint, is_published, load_stage, publish_stage, train
from realm.recipes.examples import Examples
from realm.recipes.probe import ProbeSet
from realm.recipes.staleness import overlap, stale_share
from realm.recipes.swaps import SwapLog, index_source, speed
from realm.recipes.warm import masked_sentences, require_reading
from realm.recipes.watching import Watcher
from realm.refresh import Generation
from realm.retrieval import Retrieved, Retriever
from realm.train.loop import Metrics, StepResult, Task


@dataclass(frozen=True)
class Scored:
    """One batch through both networks: live scores and target log-probabilities; ``tokens`` counts the wordpieces that were read."""

    log_p_z: Tensor
    target_log_probs: Tensor
    slots: Tensor
    tokens: int


def score_candidates(model: RealmModel, context: StageContext, queries: list[MaskedQuery], retrieved: Retrieved) -> Scored:
    """Embed queries and candidates afresh and let the encoder fill the masks with each candidate (design, steps 4 and 5).

    Args:
        queries: b masked sentences.
        retrieved: their k candidates, null at 0.

    Returns:
        log p(z|x) [b, k], log p(y_j|z,x) [b, k, m] (0 at invalid candidates), slots [b, m].
    """
    assert model.embedder is not None and model.encoder is not None
    inputs, device = context.inputs, context.device
    with context.watch("data"):
        rows = inputs.rows(retrieved.block_ids)
        # A document that several queries retrieved is embedded once.
        unique, place = np.unique(rows, return_inverse=True)
        sentences, blocks = [inputs.featurizer.query(q.ids) for q in queries], inputs.blocks(unique.tolist())
        pairs = np.nonzero(retrieved.valid)
        sequences = [inputs.joint(queries[i].ids, int(rows[i, j])) for i, j in zip(*(p.tolist() for p in pairs), strict=True)]
    query_emb = model.embedder(sentences)
    block_emb = model.documents(blocks)[torch.from_numpy(place.reshape(rows.shape)).to(device)]
    valid = torch.from_numpy(retrieved.valid).to(device)
    log_p_z = losses.candidate_log_probs(losses.relevance_scores(query_emb, block_emb), valid)

    where, what, slots = (t.to(device) for t in mask_slots([q.positions for q in queries], [q.targets for q in queries]))
    example, candidate = (torch.from_numpy(places).to(device) for places in pairs)
    filled = model.encoder(sequences, where[example], what[example])
    target_log_probs = filled.new_zeros(*rows.shape, where.shape[1]).index_put((example, candidate), filled)
    tokens = sum(len(sequence) for sequence in (*sentences, *blocks, *sequences))
    return Scored(log_p_z, target_log_probs, slots, tokens)


def pretraining_metrics(scored: Scored, retrieved: Retrieved) -> Metrics:
    """What a step shows of the retriever: utility, p(null), entropy, distinct documents."""
    log_p_z, probs, slots = scored.log_p_z.detach(), scored.target_log_probs.detach(), scored.slots
    p_z = log_p_z.exp()
    utility = losses.marginal_utility(probs, log_p_z, slots)
    entropy = -(p_z * log_p_z.masked_fill(p_z == 0, 0.0)).sum(-1)
    real = retrieved.block_ids[retrieved.valid & (retrieved.block_ids != NULL_BLOCK)]
    return {
        "marginal_utility": float(utility.sum() / slots.sum()),
        "p_null": float(p_z[:, 0].mean()),
        "entropy": float(entropy.mean()),
        "distinct": len(np.unique(real)) / max(1, len(real)),
    }


class PretrainTask(Task):
    """Retrieve with the published embedder, score with the live one, learn from the marginal likelihood."""

    name = "pretrain"

    def __init__(self, context: StageContext, model: RealmModel):
        self.context = context
        self.model = model
        self.section = context.recipe.pretrain
        self.sentences = masked_sentences(context)
        self.order = EpochOrder(len(self.sentences), "pretrain", context.seed)
        self.probe = ProbeSet(context, self.sentences, self.section.probe_queries)
        self.nll = losses.marginal_nll_per_token if self.section.marginal == "token" else losses.marginal_nll_joint
        self.generation: Generation | None = None
        self.source = index_source(context, self.kept_generations)
        self.swaps = SwapLog(context.paths.swaps)
        self.watcher, self.followed = Watcher(self), Examples(self)
        self._restored: dict[str, Any] | None = None
        self.collapsed = False

    def query(self, position: int, item: int) -> MaskedQuery:
        return self.sentences.query(item, generator("pretrain", self.context.seed, position))

    def retrieve(self, queries: list[MaskedQuery]) -> Retrieved:
        """k candidates by the generation's own embedder, null first, without the documents a query came from."""
        assert self.generation is not None
        features = self.context.inputs.featurizer
        retriever = Retriever(self.generation.queries, self.generation.index)
        with torch.inference_mode():
            sequences = [features.query(q.ids) for q in queries]
            return retriever.retrieve(sequences, self.section.candidates, null=True, exclude=[q.excluded for q in queries])

    def step(self, step: int) -> StepResult:
        watch = self.context.watch
        with watch("data"):
            queries = [self.query(at, item) for at, item in self.order.batch(step, self.section.batch)]
        with watch("search"):
            retrieved = self.retrieve(queries)
        with watch("forward"):
            scored = score_candidates(self.model, self.context, queries, retrieved)
            loss, valid = self.nll(scored.target_log_probs, scored.log_p_z, scored.slots)
            metrics = {**pretraining_metrics(scored, retrieved), "staleness_steps": float(step - self._generation_step())}
        metrics |= self.watcher.step(step, queries, retrieved, scored)
        return StepResult(loss.sum() / scored.slots.sum(), int(valid.sum()), metrics)

    def row(self, step: int, steps: int) -> Metrics:
        return self.watcher.row(step, steps)

    def _generation_step(self) -> int:
        assert self.generation is not None
        return self.generation.snapshot.manifest.step

    def kept_generations(self) -> frozenset[int]:
        """Generations that a killed run would go back to: those that were searched at a kept checkpoint."""
        return frozenset(int(state["generation"]) for state in self.kept_states())

    def between(self, step: int) -> Metrics | None:
        """Go on with the generation that a checkpoint was searching, go over to a newer one when there is one, and probe the retriever."""
        if self.generation is None:
            self.watcher.begin()
        with self.context.watch("waiting"):
            return self._between(step)

    def _between(self, step: int) -> Metrics | None:
        if self._restored is not None:
            state, self._restored = self._restored, None
            self.generation = self.source.resume(int(state["generation"]))
            self.probe.retrieve(self)
        started = time.perf_counter()
        found = self.source.between(step, self.model)
        return None if found is None else self._go_over(step, found, time.perf_counter() - started)

    def _go_over(self, step: int, found: Generation, seconds: float) -> Metrics:
        """Search ``found`` from this step on. What it changes is measured on the probe set and logged."""
        previous, self.generation = self.probe.retrieved, found
        self.swaps.add(step, self.source)
        metrics = {"probe_recall": self.probe.recall(self)}
        self.collapsed = self.probe.collapse()
        metrics["collapsed"] = float(self.collapsed)
        assert self.probe.retrieved is not None
        self.followed.add(step, self.probe.retrieved)
        if previous is not None:
            metrics["topk_overlap"] = overlap(previous, self.probe.retrieved)
            metrics["stale_share"] = stale_share(self, previous, step)
        metrics["refresher_restarts"] = float(self.source.restarts)
        return metrics | {"wait_seconds": seconds} | speed(found)

    def finished(self, step: int) -> bool:
        return self.collapsed and self.section.stop_on_collapse

    def state(self) -> dict[str, Any]:
        assert self.generation is not None
        state = {"generation": self.generation.number, "probe": self.probe.history, "swaps": self.swaps.rows}
        return state | {"source": self.source.state(), "watcher": self.watcher.state(), "followed": self.followed.rows}

    def restore(self, state: dict[str, Any]) -> None:
        self._restored = state
        self.probe.history = list(state["probe"])
        self.swaps.restore(state.get("swaps", []))
        self.source.restore(state.get("source", {}))
        self.watcher.restore(state.get("watcher", {}))
        self.followed.restore(state.get("followed", 0))

    def settle(self, step: int) -> Generation:
        """The index of the parameters as they are in the end: fine-tuning freezes the document side under it."""
        assert self.generation is not None
        if self.generation.step != step:  # ended early, between two refreshes
            self.generation = self.source.settle(step, self.model)
            self.swaps.add(step, self.source)
        return self.generation


def run_pretrain(context: StageContext) -> None:
    """Pre-train from the embedder of ICT and the encoder of the warm stage; publish both and the index of the last step."""
    mark = fingerprint(context, "pretrain", "ict", "warm")
    if is_published(context, "pretrain", mark):
        return
    require_reading(context)
    model = load_stage(context, "ict").with_parts(encoder=load_stage(context, "warm").encoder)
    if context.recipe.pretrain.separate_embedders:
        model = model.fork_document_embedder()
        model.documents.requires_grad_(True)  # frozen in fine-tuning only; here both sides learn
    task = PretrainTask(context, model)
    with closing(task.source):
        steps = train(context, task, context.recipe.pretrain, mark)
        generation = task.settle(steps)
    publish_stage(context, "pretrain", model, mark, {"steps": steps, "generation": generation.number, "probe": task.probe.history})
