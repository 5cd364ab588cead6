"""Fine-tuning with a document side that learns: the blocks that are read, and as many of the beam that hold an answer, are embedded
afresh and scored with a gradient to both sides; the rest of the beam keeps the vectors of the index. The index follows by the machinery
of pre-training's inline refresh: parameters published, corpus embedded, generation published, opened and searched from that step on.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realm.models.model import RealmModel
from realm.models.types import Question, TokenIds
from realm.search.candidates import Candidates, DenseCandidates
from realm.search.publishing.generation import Generation
from realm.training.context import StageContext
from realm.training.finetune.task import ReadingTask
from realm.training.loop.loop import Metrics
from realm.training.refresh.index_source import Inline, RefreshContext, Schedule, for_all_ranks


def fresh_columns(rows: np.ndarray, correct: np.ndarray, read: int) -> np.ndarray:
    """Which candidates are embedded afresh: the first ``read``, and the first ``read`` others that hold an answer. bool [b, c]."""
    others = correct.copy()
    others[:, :read] = False
    chosen = others & (others.cumsum(1) <= read)
    chosen[:, :read] = True
    return chosen & (rows >= 0)


class BothSidesTask(ReadingTask):
    """Fine-tuning of question side, document side and reader, with the index refreshed.

    Args:
        context: the run.
        model: with a document embedder of its own and a reader.
        source: the live question embedder over the index that pre-training left.
        generation: that index.
        questions, dev: as for ``ReadingTask``.
    """

    def __init__(
        self,
        context: StageContext,
        model: RealmModel,
        source: DenseCandidates,
        generation: Generation,
        questions: list[Question],
        dev: list[Question],
    ):
        super().__init__("finetune", context, source, model.reader, questions, dev)
        self.networks, self.dense = model, source
        self.model["documents"] = model.documents.requires_grad_(True)
        self._before = generation.number
        schedule = Schedule(self.section.steps, self.section.refresh_every)
        refresh = RefreshContext(context.paths, context.inputs, context.device, schedule, self._needed, progress=context.embedded)
        self.refresh = for_all_ranks(Inline(refresh))
        self.number = generation.number
        self._restored: int | None = None

    def _needed(self) -> frozenset[int]:
        """Generations that must stay: pre-training's, which baselines and explanations go back to, and those of kept checkpoints."""
        return frozenset({self._before, *(int(state["generation"]) for state in self.kept_states())})

    def wide(self, items: list[int], tokens: list[TokenIds]) -> tuple[Candidates, Tensor]:
        wide, correct = super().wide(items, tokens)
        assert wide.query_emb is not None
        example, column = np.nonzero(fresh_columns(wide.rows, correct.numpy(), self.section.read))
        distinct, place = np.unique(wide.rows[example, column], return_inverse=True)
        if not len(distinct):
            return wide, correct
        block_emb = self.networks.documents(self.context.inputs.blocks(distinct.tolist()))
        at, to = (torch.from_numpy(part).to(wide.scores.device) for part in (example, column))
        fresh = (wide.query_emb[at] * block_emb[torch.from_numpy(place).to(block_emb.device)]).sum(-1)
        scores = wide.scores.index_put((at, to), fresh.to(wide.scores.dtype))
        return Candidates(wide.rows, scores, wide.embed_seconds, wide.query_emb), correct

    def between(self, step: int) -> Metrics | None:
        """Go over to a new index when it is time; the first step searches pre-training's."""
        if self._restored is not None:
            self._search(self.refresh.resume(self._restored))
            self._restored = None
        if 0 < step < self.section.steps:
            found = self.refresh.between(step, self.networks)
            if found is not None:
                self._search(found)
        return super().between(step)

    def _search(self, generation: Generation) -> None:
        self.dense.snapshot, self.dense.index = generation.snapshot, generation.index
        self.number = generation.number

    @property
    def retriever_learns(self) -> bool:
        return True

    def finalize(self, step: int) -> None:
        """Search the index under the document side as it is in the end."""
        self._search(self.refresh.finalize(step, self.networks))

    def restore_retriever(self, start: Mapping[str, Tensor]) -> None:
        super().restore_retriever(start)
        self._search(self.refresh.resume(self._before))

    def state(self) -> dict[str, Any]:
        return {**super().state(), "generation": self.number}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._restored = int(state["generation"])
