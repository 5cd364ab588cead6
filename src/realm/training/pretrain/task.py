"""REALM pre-training: the retriever learns because a document that helps to fill a mask is rewarded (REALM, section 3)."""

import time
from dataclasses import replace
from typing import Any

import torch

from realm.models import losses
from realm.models.model import RealmModel
from realm.recipe.seeds import generator
from realm.search.candidates import HybridCandidates
from realm.search.publishing.generation import Generation
from realm.search.publishing.snapshot import Snapshot
from realm.search.retriever import HybridSearch
from realm.training.context import StageContext, source_over
from realm.training.loop.distributed import is_first, on_first
from realm.training.loop.task import Metrics, StepResult, Task
from realm.training.order import WHOLE, Share
from realm.training.pretrain import monitor
from realm.training.pretrain.monitor import held_out_recall
from realm.training.pretrain.questions import Queries, own_em, require_same_corpus
from realm.training.pretrain.retrieve import PretrainView, index_source
from realm.training.pretrain.score import evaluate_held_out, score_step, weigh_candidates

NULL_QUERIES = 64
"""Sentences on which the null document's first offset is measured."""
RETRIEVER = ("embedder", "document_embedder")


class PretrainTask(Task):
    """Retrieve with the published embedder, score with the live one, learn from the marginal likelihood."""

    name = "pretrain"
    best_by = "held_out_utility"

    def __init__(self, context: StageContext, model: RealmModel):
        self.context = context
        self.model = model
        self.section = context.recipe.pretrain
        self.rates = dict.fromkeys(RETRIEVER, self.section.retriever_rate)
        self.queries = Queries(context)
        self._generation: Generation | None = None
        self.source = index_source(context, self.kept_generations)
        self.watcher = monitor.Watcher()
        self._restored: dict[str, Any] | None = None
        self._searched: tuple[Snapshot, HybridSearch | None] | None = None
        self.first_recall = 0.0
        self.own_em: float | None = None
        self._even_offset: float | None = None

    @property
    def generation(self) -> Generation:
        """The generation that is searched. Raises RuntimeError: ``between`` has not brought the first one yet."""
        if self._generation is None:
            raise RuntimeError("pre-training has no index before its first step")
        return self._generation

    @generation.setter
    def generation(self, found: Generation) -> None:
        # Where documents stay as they are, what is searched with is never old either.
        self._generation = replace(found, query_embedder=self.model.embedder) if self.section.queries_alone else found

    def kept_generations(self) -> frozenset[int]:
        """Generations that a killed run would go back to: those that were searched at a kept checkpoint."""
        return frozenset(int(state["generation"]) for state in self.kept_states())

    @property
    def retriever_learnt(self) -> bool:
        """Tell whether blocks are searched by other parameters than the stage began with."""
        return self.section.queries_alone or any(map(self.section.retriever_learns, range(self.generation.step)))

    @property
    def view(self) -> PretrainView:
        """The networks and the index as watchers see them; raises as ``generation`` does."""
        if self._searched is None or self._searched[0] is not self.generation.snapshot:
            source = source_over(self.context, self.generation.queries, self.generation)
            self._searched = self.generation.snapshot, source.search if isinstance(source, HybridCandidates) else None
        return PretrainView(self.context, self.model, self.generation, self.queries.sentences.store, self._searched[1])

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        view = self.view
        read = score_step(view, self.queries, step, share)
        return StepResult(read.loss.sum(), read.valid.sum(), self.watcher.step(view, step, read), read.scored.slots.sum())

    def row(self, step: int, steps: int) -> Metrics:
        return self.watcher.row(step, steps)

    def between(self, step: int) -> Metrics | None:
        """Continue with the generation that a checkpoint was searching, and swap to a newer one when there is one."""
        if self._generation is None:
            self.watcher.begin()
        if self._restored is not None:
            state, self._restored = self._restored, None
            self.generation = self.source.resume(int(state["generation"]))
        started = time.perf_counter()
        # It is what the index was made with.
        still = step > 0 and (self.section.queries_alone or not self.section.retriever_learns(step - 1))
        found = None if still else self.source.between(step, self.model)
        metrics = {} if found is None else self._go_over(step, found, time.perf_counter() - started)
        if step and step == self.section.reader_first < self.section.steps:  # an index says by whose weights it was made, and this is one
            self._start_null()
        if self.queries.held_out and (step % self.section.eval_every == 0 or step == self.section.steps):
            metrics |= self._evaluated(step)
        return metrics or None

    def _evaluated(self, step: int) -> Metrics:
        """Measure the held-out sentences after so many steps."""
        view, queries = self.view, self.queries.held_out_queries()
        metrics = evaluate_held_out(view, queries, self.section.batch)
        if self.section.masking == "recurring":
            metrics |= monitor.evidence_share(view, queries, self.section.batch)
        metrics["held_out_recall"] = held_out_recall(view, queries, self.section.batch)
        if step and self.queries.own_questions and not self.model.reader.spec.taught:  # people's questions say more
            metrics["own_em"] = self.own_em = own_em(view, self.queries.own_questions, self.context.recipe.finetune.read)
        if step == 0:
            self.first_recall = metrics["held_out_recall"]
        return metrics

    def _go_over(self, step: int, found: Generation, seconds: float) -> Metrics:
        """Search ``found`` from this step on."""
        require_same_corpus(self.context.store)
        self.generation = found
        if step == 0 == self.section.reader_first:
            self._start_null()
        if not is_first():
            return {}
        return {"refresher_restarts": float(self.source.restarts), "wait_seconds": seconds} | monitor.speed(found)

    def _start_null(self) -> None:
        """Start the null document where it is as likely as any other candidate, unless the model has learnt how likely it is."""
        offset = self.model.embedder.null_offset
        if offset is None or float(offset.detach()) or not (self.section.null and self.section.retriever_rate):
            return
        rng, sentences = generator("probe", self.context.seed), self.queries.salient
        queries = [sentences.query(item, rng) for item in rng.permutation(len(sentences))[:NULL_QUERIES].tolist()]

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

    def state(self) -> dict[str, Any]:
        state = {"generation": self.generation.number, "watcher": self.watcher.state()}
        return state | {"first_recall": self.first_recall, "own_em": self.own_em, "even_offset": self._even_offset}

    def restore(self, state: dict[str, Any]) -> None:
        self._restored = state
        self.watcher.restore(state["watcher"])
        self.first_recall, self.own_em, self._even_offset = state["first_recall"], state["own_em"], state["even_offset"]

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
