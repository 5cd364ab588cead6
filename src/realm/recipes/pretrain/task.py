"""REALM pre-training: the retriever learns because a document that helps to fill a mask is rewarded (REALM, section 3)."""

import time
from contextlib import closing
from typing import Any

import numpy as np

from realm import losses
from realm.data.loader import WHOLE, EpochOrder, Share, generator
from realm.data.types import MaskedQuery
from realm.nn.model import RealmModel
from realm.recipes.context import StageContext, is_published, load_stage, new_model, publish_stage, train
from realm.recipes.pretrain.examples import Examples
from realm.recipes.pretrain.filling import score_candidates
from realm.recipes.pretrain.held_out import choose_weights, evaluate_held_out, hold_out
from realm.recipes.pretrain.objectives import Scored, pretraining_loss
from realm.recipes.pretrain.probe import ProbeSet
from realm.recipes.pretrain.retrieving import retrieve_candidates
from realm.recipes.pretrain.sentences import pretraining_fingerprint, pretraining_sentences, probe_sentences, require_same_corpus
from realm.recipes.pretrain.staleness import overlap, stale_share
from realm.recipes.pretrain.swaps import SwapLog, index_source, speed
from realm.recipes.pretrain.watching import Watcher
from realm.recipes.warm import require_reading
from realm.refresh import Generation
from realm.retrieval import NULL_INDEX, Retrieved
from realm.train.distributed import is_first, world
from realm.train.loop import Metrics, StepResult, Task

RETRIEVER = ("embedder", "document_embedder")


def pretraining_metrics(scored: Scored, retrieved: Retrieved) -> Metrics:
    """What a step shows of the retriever: utility and p(null) where there is a null document, entropy, distinct documents."""
    log_p_z, probs, slots = scored.log_p_z.detach(), scored.target_log_probs.detach(), scored.slots
    p_z = log_p_z.exp()
    entropy = -(p_z * log_p_z.masked_fill(p_z == 0, 0.0)).sum(-1)
    real = retrieved.block_ids[retrieved.real]
    metrics = {"entropy": float(entropy.mean()), "distinct": len(np.unique(real)) / max(1, len(real))}
    if retrieved.has_null:
        utility = losses.marginal_utility(probs, log_p_z, slots)
        metrics |= {"marginal_utility": float(utility.sum() / slots.sum()), "p_null": float(p_z[:, NULL_INDEX].mean())}
    return metrics


class PretrainTask(Task):
    """Retrieve with the published embedder, score with the live one, learn from the marginal likelihood."""

    name = "pretrain"
    best_by = "held_out_utility"

    def __init__(self, context: StageContext, model: RealmModel):
        self.context = context
        self.model = model
        self.section = context.recipe.pretrain
        self.rates = dict.fromkeys(RETRIEVER, self.section.retriever_rate)
        self.sentences = pretraining_sentences(context)
        self.held_out, self.training = hold_out(len(self.sentences), self.section.held_out)
        self.order = EpochOrder(len(self.training), "pretrain", context.seed)
        self.probe = ProbeSet(context, probe_sentences(context, self.sentences), self.section.probe_queries)
        self.generation: Generation | None = None
        self.source = index_source(context, self.kept_generations)
        self.swaps = SwapLog(context.paths.swaps)
        self.watcher, self.followed = Watcher(self), Examples(self)
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

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        watch = self.context.watch
        with watch("data"):
            queries = [self.query(at, self.training[item]) for at, item in self.order.batch(step, self.section.batch, share)]
        with watch("search"):
            retrieved = self.retrieve(queries)
        with watch("forward"):
            scored = score_candidates(self.model, self.context, queries, retrieved)
            loss, valid = pretraining_loss(scored, self.section)
            metrics = {**pretraining_metrics(scored, retrieved), **self._staleness(step)}
        metrics |= self.watcher.step(step, queries, retrieved, scored)
        return StepResult(loss.sum(), int(valid.sum()), metrics, float(scored.slots.sum()))

    def examples(self, step: int) -> list[dict[str, Any]]:
        drawn = self.order.batch(step, self.section.batch)
        queries = [(self.training[item], self.query(at, self.training[item])) for at, item in drawn]
        return [{"item": item, "block": int(query.origin), "sentence": int(query.sentence)} for item, query in queries]

    def row(self, step: int, steps: int) -> Metrics:
        return self.watcher.row(step, steps)

    def _staleness(self, step: int) -> Metrics:
        """Steps since the parameters of the index."""
        assert self.generation is not None
        return {"staleness_steps": float(step - self.generation.step)}

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
        metrics = {} if found is None else self._go_over(step, found, time.perf_counter() - started)
        if self.held_out and (step % self.section.eval_every == 0 or step == self.section.steps):
            metrics |= evaluate_held_out(self, self.held_out, self.section.batch)
        return metrics or None

    def _go_over(self, step: int, found: Generation, seconds: float) -> Metrics:
        """Search ``found`` from this step on. What it changes is measured on the probe set by the first rank, which logs it."""
        require_same_corpus(self.context.store)
        previous, self.generation = self.probe.retrieved, found
        if not is_first():
            return {}
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

    def finalize(self, step: int) -> Generation:
        """The index of the parameters as they are in the end: fine-tuning freezes the document side under it."""
        assert self.generation is not None
        if self.generation.step != step:  # ended early, or between two refreshes
            self.generation = self.source.finalize(step, self.model)
            if is_first():
                self.swaps.add(step, self.source)
        return self.generation


def starting_model(context: StageContext) -> RealmModel:
    """The embedder of ICT and the encoder of the warm stage; a fresh one in place of a stage that the recipe does not start from."""
    section = context.recipe.pretrain
    model = load_stage(context, "ict") if section.from_ict and section.from_warm else new_model(context).to(context.device)
    if section.from_ict and not section.from_warm:
        model = model.with_parts(embedder=load_stage(context, "ict").embedder)
    if section.from_warm:
        model = model.with_parts(encoder=load_stage(context, "warm").encoder)
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
        choice = choose_weights(context, task, steps)
        generation = task.finalize(int(choice["published_step"]))
    facts = {"steps": steps, **choice, "generation": generation.number, "probe": task.probe.history}
    facts["encoded"] = task.watcher.encoded * world()  # the ranks' shares are as large as each other, but for some wordpieces
    sentences = {"sentences": len(task.sentences), "spans": task.sentences.spans, "dropped": dict(task.sentences.dropped)}
    publish_stage(context, "pretrain", model, mark, facts | sentences)
    task.source.tidy()
