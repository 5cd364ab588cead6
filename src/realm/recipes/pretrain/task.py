"""REALM pre-training: the retriever learns because a document that helps to fill a mask is rewarded (REALM, section 3)."""

import time
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from realm import losses
from realm.candidates import HybridCandidates
from realm.data.held_out import hold_out
from realm.data.loader import WHOLE, EpochOrder, Share, generator
from realm.data.masking import Exclusion, RecurringSpans
from realm.data.statements import Statements
from realm.data.types import MaskedQuery, Question
from realm.index.hybrid import HybridSearch
from realm.index.snapshot import Snapshot
from realm.nn.model import RealmModel
from realm.pointer import pointing_loss
from realm.recipes.context import StageContext, source_over
from realm.recipes.ict import IctTask
from realm.recipes.pretrain.asking import asked_instead, asked_of_own_blocks
from realm.recipes.pretrain.evidence import evidence_share, held_out_recall, with_evidence
from realm.recipes.pretrain.examples import Examples
from realm.recipes.pretrain.filling import score_candidates, weigh_candidates
from realm.recipes.pretrain.held_out import evaluate_held_out
from realm.recipes.pretrain.objectives import ScoredCandidates, pretraining_loss
from realm.recipes.pretrain.own_questions import ASKED, own_em, own_questions
from realm.recipes.pretrain.probe import ProbeSet
from realm.recipes.pretrain.sentences import pretraining_sentences, probe_sentences, require_same_corpus
from realm.recipes.pretrain.staleness import overlap, stale_share
from realm.recipes.pretrain.swaps import index_source, speed
from realm.recipes.pretrain.view import PretrainView
from realm.recipes.pretrain.watching import Watcher
from realm.refresh import Generation
from realm.retrieval import NULL_INDEX, Retrieved
from realm.timing import charged
from realm.train.distributed import is_first, on_first
from realm.train.loop import Measured, Metrics, StepResult, Task

NULL_QUERIES = 64
"""Probe sentences on which the null document's first offset is measured."""
RETRIEVER = ("embedder", "document_embedder")
SALIENT = 0.7
"""How often what is asked of its own block is a salient span of any sentence: names, dates and numbers, which other documents seldom
repeat."""

TRIED = 4
"""Held-out sentences that are tried for each question that is wanted of them."""


def pretraining_metrics(scored: ScoredCandidates, retrieved: Retrieved) -> Measured:
    """What a step shows of the retriever: utility and p(null) where there is a null document, entropy, distinct documents."""
    log_p_z, probs, slots = scored.log_p_z.detach(), scored.target_log_probs.detach(), scored.slots
    p_z = log_p_z.exp()
    entropy = -(p_z * log_p_z.masked_fill(p_z == 0, 0.0)).sum(-1)
    real = retrieved.block_ids[retrieved.real]
    metrics: Measured = {"entropy": entropy.mean(), "distinct": len(np.unique(real)) / max(1, len(real))}
    if retrieved.has_null:
        utility = losses.marginal_utility(probs, log_p_z, slots)
        metrics |= {"marginal_utility": utility.sum() / slots.sum(), "p_null": p_z[:, NULL_INDEX].mean()}
    return metrics


def _with_batch(context: StageContext, batch: int) -> StageContext:
    """The run with ICT's batches of another size."""
    recipe = context.recipe
    return replace(context, recipe=replace(recipe, ict=replace(recipe.ict, batch=batch)))


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
        self.held_out, self.training = hold_out(self.sentences.keys, self.section.held_out)
        self.order = EpochOrder(len(self.training), "pretrain", context.seed)
        self.salient = probe_sentences(context, self.sentences)
        self.probe = ProbeSet(context, self.salient, self.section.probe_queries)
        self._generation: Generation | None = None
        self.cloze = IctTask(_with_batch(context, self.section.ict_batch), model) if self.section.ict_batch else None
        self.source = index_source(context, self.kept_generations)
        self.watcher, self.followed = Watcher(), Examples(context.paths.examples, self.sentences.store)
        self._restored: dict[str, Any] | None = None
        self._searched: tuple[Snapshot, HybridSearch | None] | None = None
        self.collapsed = False
        self.first_recall = 0.0
        self.own_em: float | None = None
        self._even_offset: float | None = None

    @property
    def generation(self) -> Generation:
        """What is searched.

        Raises:
            RuntimeError: nothing yet: ``between`` gets the first generation.
        """
        if self._generation is None:
            raise RuntimeError("pre-training has no index before its first step")
        return self._generation

    @generation.setter
    def generation(self, found: Generation) -> None:
        # Where documents stay as they are, what is searched with is never old either.
        self._generation = replace(found, query_embedder=self.model.embedder) if self.section.queries_alone else found

    @property
    def view(self) -> PretrainView:
        """What those who watch get to see; raises as ``generation`` does."""
        return PretrainView(self.context, self.model, self.generation, self.sentences.store, self._hybrid(self.generation))

    def query(self, position: int, item: int) -> MaskedQuery:
        """The sentence ``item`` as it is masked at a position of the training order, with what is hidden shown to the retriever or not."""
        rng = generator("pretrain", self.context.seed, position)
        query = self.sentences.query(item, rng)
        return replace(query, shown=True) if rng.random() < self.section.shown else query

    @cached_property
    def statements(self) -> Statements:
        """What makes questions of masked sentences."""
        store = self.context.store
        exclusion = Exclusion(store, store, documents=self.section.exclude == "document")
        return Statements(store, self.sentences.store, self.context.inputs.featurizer, exclusion)

    def _drawn(self, purpose: str, share: float, positions: list[int]) -> dict[int, np.random.Generator]:
        """Which of the sentences at these positions, by their number, are to be asked in another way, and what draws their words."""
        rngs = {i: generator(purpose, self.context.seed, at) for i, at in enumerate(positions)} if share else {}
        return {i: rng for i, rng in rngs.items() if rng.random() < share}

    def _asked(self, view: PretrainView, queries: list[MaskedQuery], positions: list[int], *, reader_only: bool) -> list[MaskedQuery]:
        """The masked sentences at these positions, some of them asked of their own blocks, or as questions."""
        own = self._drawn("own", self.section.own_block if reader_only else 0.0, positions)
        questions = self._drawn("question", self.section.questions, positions)
        queries = [self._salient(own[i]) if i in own and own[i].random() < SALIENT else query for i, query in enumerate(queries)]
        queries = asked_of_own_blocks(self.statements, queries, own)
        return asked_instead(view, self.statements, queries, {i: rng for i, rng in questions.items() if i not in own})

    def _salient(self, rng: np.random.Generator) -> MaskedQuery:
        """Any sentence with a salient span hidden, but for those that are held out."""
        return self.salient.query(self._salient_training[int(rng.integers(len(self._salient_training)))], rng)

    @cached_property
    def _salient_training(self) -> list[int]:
        return hold_out(self.salient.keys, self.section.held_out)[1]

    @cached_property
    def own_questions(self) -> list[Question]:
        """Questions made of held-out sentences, where the reader is to learn to answer such (``pretrain.own_block``)."""
        if not self.section.own_block:
            return []
        held_out = hold_out(self.salient.keys, TRIED * ASKED)[0]
        queries = [self.salient.query(item, generator("own questions", self.context.seed, -1 - item)) for item in held_out]
        return own_questions(self.statements, queries, self.context.seed)

    def held_out_queries(self) -> list[MaskedQuery]:
        """The held-out sentences, masked the same at every evaluation; what is hidden is never shown."""
        # Training visits positions from 0: a negative one is drawn like them, and by no step.
        return [self.sentences.query(item, generator("pretrain", self.context.seed, -1 - item)) for item in self.held_out]

    def _hybrid(self, generation: Generation) -> HybridSearch | None:
        """Dense and sparse search of the generation that is searched now, if the recipe wants both."""
        if self._searched is None or self._searched[0] is not generation.snapshot:
            source = source_over(self.context, generation.queries, generation)
            self._searched = generation.snapshot, source.search if isinstance(source, HybridCandidates) else None
        return self._searched[1]

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        view = self.view
        with charged("data"):
            drawn = self.order.batch(step, self.section.batch, share)
            queries = [self.query(at, self.training[item]) for at, item in drawn]
        with charged("search"):
            reader_only = not self.section.retriever_learns(step)
            queries = self._asked(view, queries, [at for at, _ in drawn], reader_only=reader_only)
            retrieved = view.retrieve(queries)
            if reader_only and isinstance(self.sentences.kind, RecurringSpans):
                retrieved = with_evidence(view, queries, retrieved, self.sentences.kind.evidence)
        retriever_only = self.section.reader_stays(step)
        scored = score_candidates(
            self.model, self.context, queries, retrieved, reader_only=reader_only, retriever_only=retriever_only, known=view.known
        )
        loss, valid = pointing_loss(scored.pointed) if reader_only and scored.pointed else pretraining_loss(scored, self.section)
        metrics: Measured = {**pretraining_metrics(scored, retrieved), **self._staleness(step)}
        metrics |= self.watcher.step(view, step, queries, retrieved, scored)
        result = StepResult(loss.sum(), valid.sum(), metrics, scored.slots.sum())
        return result if reader_only or self.cloze is None else self._with_cloze(result, self.cloze.step(step, share))

    def _with_cloze(self, result: StepResult, cloze: StepResult) -> StepResult:
        """A step with ICT's beside it: to the mean over sentences comes ``ict_weight`` times ICT's mean over its own batch."""
        each = self.section.batch / self.section.ict_batch
        metrics = {**result.metrics, "ict_accuracy": cloze.metrics["accuracy"]}
        return replace(result, loss=result.loss + self.section.ict_weight * each * cloze.loss, metrics=metrics)

    def examples(self, step: int) -> list[dict[str, Any]]:
        drawn = self.order.batch(step, self.section.batch)
        queries = [(self.training[item], self.query(at, self.training[item])) for at, item in drawn]
        return [{"item": item, "block": int(query.origin), "sentence": int(query.sentence)} for item, query in queries]

    def row(self, step: int, steps: int) -> Metrics:
        return self.watcher.row(step, steps)

    def _staleness(self, step: int) -> Metrics:
        """Steps since the parameters of the index; 0 where the documents' stay as they are."""
        return {"staleness_steps": 0.0 if self.section.queries_alone else float(step - self.generation.step)}

    def kept_generations(self) -> frozenset[int]:
        """Generations that a killed run would go back to: those that were searched at a kept checkpoint."""
        return frozenset(int(state["generation"]) for state in self.kept_states())

    def between(self, step: int) -> Metrics | None:
        """Continue with the generation that a checkpoint was searching, swap to a newer one when there is one, and probe the retriever."""
        if self._generation is None:
            self.watcher.begin()
        if self._restored is not None:
            state, self._restored = self._restored, None
            self.generation = self.source.resume(int(state["generation"]))
            self.probe.retrieve(self.view)
        started = time.perf_counter()
        # It is what the index was made with.
        still = step > 0 and (self.section.queries_alone or not self.section.retriever_learns(step - 1))
        with charged("waiting"):
            found = None if still else self.source.between(step, self.model)
        metrics = {} if found is None else self._go_over(step, found, time.perf_counter() - started)
        if step and step == self.section.reader_first:  # not before: an index says by whose weights it was made, and the offset is one
            self._start_null()
        if self.held_out and (step % self.section.eval_every == 0 or step == self.section.steps):
            with charged("evaluation", whole=True):
                metrics |= self._evaluated(step)
        return metrics or None

    def _evaluated(self, step: int) -> Metrics:
        """What the held-out sentences say after so many steps."""
        view, queries = self.view, self.held_out_queries()
        metrics = evaluate_held_out(view, queries, self.section.batch)
        if self.section.masking == "recurring":
            metrics |= evidence_share(view, queries, self.section.batch)
        if self.section.masking == "recurring" or self.section.publish == "better":
            metrics["held_out_recall"] = held_out_recall(view, queries, self.section.batch)
        if step and self.own_questions:
            metrics["own_em"] = self.own_em = own_em(view, self.own_questions, self.context.recipe.finetune.read)
        if step == 0:
            self.first_recall = metrics.get("held_out_recall", 0.0)
        return metrics

    @charged("watching", whole=True)
    def _go_over(self, step: int, found: Generation, seconds: float) -> Metrics:
        """Search ``found`` from this step on. What it changes is measured on the probe set by the first rank, which logs it."""
        require_same_corpus(self.context.store)
        previous, self.generation = self.probe.retrieved, found
        if step == 0 == self.section.reader_first:
            self._start_null()
        if not is_first():
            return {}
        view, queries = self.view, self.probe.queries
        retrieved = self.probe.retrieve(view)
        metrics = {"probe_recall": self.probe.recall(retrieved)}
        self.collapsed = self.probe.collapse()
        metrics["collapsed"] = float(self.collapsed)
        self.followed.add(view, step, queries, retrieved)
        if previous is not None:
            metrics["topk_overlap"] = overlap(previous, retrieved)
            metrics["stale_share"] = stale_share(view, queries, previous, step)
        metrics["refresher_restarts"] = float(self.source.restarts)
        return metrics | {"wait_seconds": seconds} | speed(found)

    def _start_null(self) -> None:
        """Start the null document where it is as likely as any other candidate, unless the model has learnt how likely it is."""
        offset = self.model.embedder.null_offset
        if offset is None or float(offset.detach()) or not (self.section.null and self.section.retriever_rate):
            return
        queries = self.probe.queries[:NULL_QUERIES]

        def measure() -> float:
            with torch.no_grad():
                self.model.eval()
                weighed = weigh_candidates(self.model, self.context, queries, self.view.retrieve(queries))
                return float(losses.even_null_offset(weighed.log_p_z))

        self._even_offset = on_first(measure)
        offset.data.fill_(self._even_offset)

    def phase(self, step: int, steps: int) -> tuple[int, int]:
        first = self.section.reader_first
        if not self.section.reader_stays(steps - 1):
            return 0, steps
        return (0, first) if step < first else (first, steps)

    def finished(self, step: int) -> bool:
        return self.collapsed and self.section.stop_on_collapse

    def state(self) -> dict[str, Any]:
        state = {"generation": self.generation.number, "probe": self.probe.history}
        state |= {"first_recall": self.first_recall, "own_em": self.own_em, "even_offset": self._even_offset}
        return state | {"watcher": self.watcher.state(), "followed": self.followed.rows}

    def restore(self, state: dict[str, Any]) -> None:
        self._restored = state
        self.probe.history = list(state["probe"])
        self.watcher.restore(state.get("watcher", {}))
        self.followed.restore(state.get("followed", 0))
        self.first_recall, self._even_offset = state.get("first_recall", 0.0), state.get("even_offset")
        self.own_em = state.get("own_em")

    @property
    def retriever_learnt(self) -> bool:
        """Whether blocks are searched by other parameters than the stage began with."""
        return self.section.queries_alone or any(map(self.section.retriever_learns, range(self.generation.step)))

    def finalize(self, step: int) -> Generation:
        """The index of the parameters as they are in the end: fine-tuning freezes the document side under it."""
        between = range(*sorted((self.generation.step, step)))
        if not self.section.queries_alone and any(map(self.section.retriever_learns, between)):  # ended early, or between two refreshes
            self.generation = self.source.finalize(step, self.model)
        return self.generation

    def search_start(self) -> None:
        """Search an index of the retriever that the stage began with, whose weights are loaded."""
        offset = self.model.embedder.null_offset
        if offset is not None and self._even_offset is not None:
            offset.data.fill_(self._even_offset)
        if not self.section.queries_alone:
            self.generation = self.source.finalize(0, self.model)
