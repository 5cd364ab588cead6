"""Inverse cloze task: the embedder's warm start (ORQA, section 5).

Negatives are the other blocks of the whole batch, on all ranks and parts. With several parts all are embedded without gradient first, which
gives the gradient of every embedding; then each part is embedded again and hands that gradient on."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from realm.documents.store.blocks import BlockStore
from realm.errors import CorpusError
from realm.models import losses
from realm.models.model import RealmModel
from realm.models.types import IctExample
from realm.recipe.seeds import generator
from realm.training.context import StageContext, fingerprint, is_published, publish_stage, train
from realm.training.loop.distributed import gather, rank, world
from realm.training.loop.stepping import own_shares, seed_share
from realm.training.loop.task import StepResult, Task
from realm.training.order import WHOLE, EpochOrder, Share
from realm.training.starting import new_model

KEEP_RATE = 0.1
"""Share of sentences that stay in their block."""
SAMPLED_BATCHES = 4
"""Batches from which the wordpieces of a step are reckoned."""


class InverseCloze:
    """Blocks of at least two sentences; at ``keep_rate`` a sentence stays in its block, so that exact overlap is learnt too."""

    def __init__(self, store: BlockStore, *, keep_rate: float = KEEP_RATE):
        self.store = store
        self.keep_rate = keep_rate
        self.rows = [int(row) for row in np.flatnonzero(store.live) if len(store.sentences(int(row)).tokens) > 1]

    def __len__(self) -> int:
        return len(self.rows)

    def example(self, item: int, rng: np.random.Generator) -> IctExample:
        """One sentence of block ``item`` drawn by ``rng``, with what is left of the block."""
        row = self.rows[item]
        sentences = self.store.sentences(row).tokens
        start, end = (int(v) for v in sentences[int(rng.integers(len(sentences)))])
        body = self.store.token_ids(row).tolist()
        query = body[start:end]
        if rng.random() >= self.keep_rate:
            del body[start:end]
        return IctExample(query, self.store.title_ids(row).tolist(), body, int(self.store.block_ids[row]))


@dataclass(frozen=True)
class _Scored:
    """Loss and hits of this rank's pseudo-queries against the blocks of the whole batch, [b] each."""

    loss: Tensor
    valid: Tensor
    hits: Tensor


@dataclass(frozen=True)
class _Ahead:
    """Loss and hits of one part of a step, and the gradient of its embeddings, [b, d] each."""

    scored: _Scored
    queries: Tensor
    blocks: Tensor


class IctTask(Task):
    """Blocks, a sentence of each as its pseudo-query, the others as negatives; a document embedder of its own learns unless frozen."""

    name = "ict"

    def __init__(self, context: StageContext, model: RealmModel):
        section = context.recipe.ict
        self.model = model
        self.context = context
        self.batch = section.batch
        self.cloze = InverseCloze(context.store)
        if len(self.cloze) < 2:
            cure = "ICT needs at least two blocks of two sentences: add documents."
            raise CorpusError(f"{len(self.cloze)} blocks have more than one sentence", path=context.paths.corpus, cure=cure)
        self.order = EpochOrder(len(self.cloze), self.name, context.seed)
        self._ahead: dict[Share, _Ahead] = {}

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        examples = self._examples(step, share)
        if share.count == world():
            scored = self._scored(*self._embed(examples), examples)
            return _result(scored, scored.loss.sum())
        if share not in self._ahead:
            self._ahead = self._look_ahead(step, share.count // world())
            seed_share(self.context.seed, self.name, step, share)  # the second pass drops what the first one dropped
        ahead = self._ahead.pop(share)
        queries, blocks = self._embed(examples)
        handed_on = (queries * ahead.queries).sum() + (blocks * ahead.blocks).sum()
        return _result(ahead.scored, handed_on - handed_on.detach() + ahead.scored.loss.sum())

    def _examples(self, step: int, share: Share) -> list[IctExample]:
        drawn = self.order.batch(step, self.batch, share)
        return [self.cloze.example(item, generator("ict", self.context.seed, at)) for at, item in drawn]

    def _embed(self, examples: list[IctExample]) -> tuple[Tensor, Tensor]:
        """Pseudo-queries and blocks, [b, d] each."""
        features = self.context.inputs.featurizer
        queries = self.model.embedder.embed_queries([features.query(e.query) for e in examples])
        return queries, self.model.documents([features.block(e.title, e.body) for e in examples])

    def wordpieces_a_step(self) -> float:
        """Wordpieces of sentences and blocks that the embedders read in a step, reckoned from its first batches."""
        features = self.context.inputs.featurizer
        drawn = [e for step in range(SAMPLED_BATCHES) for e in self._examples(step, WHOLE)]
        return sum(len(features.query(e.query)) + len(features.block(e.title, e.body)) for e in drawn) / SAMPLED_BATCHES

    def _scored(self, queries: Tensor, blocks: Tensor, examples: list[IctExample]) -> _Scored:
        """This rank's pseudo-queries [b, d] against its blocks [b, d] and those of the other ranks."""
        everywhere = gather(blocks)
        own = torch.tensor([e.block_id for e in examples])
        collision = (own[:, None] == gather(own)[None, :]).to(queries.device)
        positive = torch.arange(len(examples), device=queries.device) + rank() * len(examples)
        loss, valid = losses.ict(queries, everywhere, positive, collision)
        return _Scored(loss, valid, (queries.detach() @ everywhere.detach().T).argmax(-1) == positive)

    def _look_ahead(self, step: int, parts: int) -> dict[Share, _Ahead]:
        """Every part of this rank embedded without gradient, and the gradient of the whole batch's loss by these embeddings."""
        shares, examples, embedded = own_shares(parts), [], []
        for share in shares:
            seed_share(self.context.seed, self.name, step, share)
            examples.append(self._examples(step, share))
            with torch.no_grad():
                embedded.append(self._embed(examples[-1]))
        queries, blocks = (torch.cat(side).requires_grad_() for side in zip(*embedded, strict=True))
        scored = self._scored(queries, blocks, [example for part in examples for example in part])
        by_queries, by_blocks = torch.autograd.grad(scored.loss.sum(), (queries, blocks))
        columns = (scored.loss.detach(), scored.valid, scored.hits, by_queries, by_blocks)
        rows = zip(*(column.chunk(parts) for column in columns), strict=True)
        return {share: _Ahead(_Scored(*row[:3]), *row[3:]) for share, row in zip(shares, rows, strict=True)}


def _result(scored: _Scored, loss: Tensor) -> StepResult:
    return StepResult(loss, scored.valid.sum(), {"accuracy": scored.hits.float().mean()}, len(scored.hits))


def run_ict(context: StageContext) -> None:
    """Train the embedder by ICT and publish it; nothing happens when that is done already."""
    mark = fingerprint(context, "ict")
    if is_published(context, "ict", mark):
        return
    model = new_model(context).with_parts(encoder=None).to(context.device)
    steps = train(context, IctTask(context, model), context.recipe.ict, mark)
    publish_stage(context, "ict", model, mark, {"steps": steps})
