"""A few sentences followed through training: what is retrieved for them at each refresh, and which of it helps."""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from realm.corpus.store.blocks import BlockStore
from realm.data.masked_text import masked_text
from realm.data.types import MaskedQuery
from realm.document_utility import document_effects, likelihood
from realm.nn.model import RealmModel
from realm.recipes.context import StageContext
from realm.recipes.pretrain.filling import score_candidates
from realm.recipes.pretrain.view import PretrainView
from realm.records import DocumentEffect
from realm.retrieval import Retrieved
from realm.train.distributed import is_first
from realm.train.metrics import MetricsLog

STAGE = "pretrain"
FOLLOWED = 5
EXCERPT = 240
"""Characters of a document that are kept: the whole corpus must not be written again at every refresh."""


@dataclass(frozen=True)
class ReadSentence:
    """One masked sentence with the documents read; ``text`` has a [MASK] for each of ``targets``, p_y is the sum of p_z * p_y_given_z."""

    text: str
    targets: tuple[str, ...]
    p_y: float
    candidates: tuple[DocumentEffect, ...]


@torch.no_grad()
def read_sentences(
    context: StageContext, model: RealmModel, sentences: BlockStore, queries: list[MaskedQuery], retrieved: Retrieved
) -> list[ReadSentence]:
    """Masked sentences read with their candidates, as a step of training does it, but without dropout.

    Args:
        context: the run.
        model: put into evaluation mode.
        sentences: the corpus that the sentences come from.
        queries: b masked sentences.
        retrieved: their candidates.
    """
    scored = score_candidates(model.eval(), context, queries, retrieved)
    found = []
    for i, query in enumerate(queries):
        valid = np.flatnonzero(retrieved.valid[i])
        kept = torch.from_numpy(valid).to(scored.log_p_z.device)
        log_probs = scored.target_log_probs[i, kept][:, scored.slots[i]]
        candidates = document_effects(context.store, retrieved.block_ids[i, valid], scored.log_p_z[i, kept], log_probs)
        text, targets = masked_text(sentences, query)
        found.append(ReadSentence(text, targets, likelihood(candidates), candidates))
    return found


class Examples:
    """``examples.jsonl``: the first few probe sentences with their documents, a row for each sentence at each refresh.

    Args:
        path: of the file. A resumed run takes back what came after its checkpoint.
        sentences: the corpus that the probe sentences come from.
    """

    def __init__(self, path: Path, sentences: BlockStore):
        self.sentences = sentences
        self.rows = 0
        self._log = MetricsLog(path)

    def add(self, view: PretrainView, step: int, queries: list[MaskedQuery], retrieved: Retrieved) -> None:
        """Note what the generation in use found for the probe queries, and what the networks make of it."""
        if not self.rows:
            self._log.rewind(STAGE, 0)  # the record of a run that was started again from nothing
        queries = queries[:FOLLOWED]
        first = Retrieved(*(values[: len(queries)] for values in (retrieved.block_ids, retrieved.valid, retrieved.scores)))
        found = read_sentences(view.context, view.model, self.sentences, queries, first)
        for number, read in enumerate(found):
            shown = asdict(read)
            shown["candidates"] = [c | {"text": c["text"][:EXCERPT]} for c in shown["candidates"]]
            self._log.write(STAGE, step, generation=view.generation.number, sentence=number, **shown)
            self.rows += 1
        self._log.sync()  # a checkpoint counts them

    def restore(self, rows: int) -> None:
        """Keep only the first ``rows`` rows; of several ranks the first writes."""
        self.rows = rows
        if is_first():
            self._log.rewind(STAGE, rows)
