"""The warm starts before pre-training: the inverse cloze task for the embedder (ORQA, section 5), reading for the encoder.

ICT: negatives are the other blocks of the whole batch, on all ranks and parts. With several parts all are embedded without gradient first,
which gives the gradient of every embedding; then each part is embedded again and hands that gradient on.

Reading: the encoder learns to fill a masked span from a block that holds the answer. An encoder that cannot copy yet ignores every
document, and the retriever's gradient is noise. The stage ends with a test: on held-out pairs it must fill the span with the block far more
often than without."""

from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realm.documents.store.blocks import BlockStore
from realm.errors import ConfigError, CorpusError, RunError
from realm.models import losses
from realm.models.encoder import KnowledgeAugmentedEncoder, mask_slots
from realm.models.model import RealmModel
from realm.models.types import IctExample, MaskedQuery
from realm.recipe.seeds import generator
from realm.search.blocks import NULL_ROW
from realm.storage.layout import stage_facts
from realm.training.context import StageContext, fingerprint, is_published, publish_stage, train
from realm.training.loop.distributed import gather, on_first, rank, world
from realm.training.loop.stepping import own_shares, seed_share
from realm.training.loop.task import Metrics, StepResult, Task
from realm.training.masking.evidence import Partners
from realm.training.masking.sentences import hide_more
from realm.training.order import WHOLE, EpochOrder, Share, hold_out
from realm.training.pretrain.questions import warm_sentences
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


HELD_OUT_PAIRS = 200
HIDE_RATE = 0.2
"""Share of a sentence's other wordpieces that are hidden too, so that one sentence gives more to copy."""
PARTNER_RATE = 0.5
"""Share of blocks replaced by a partner, which holds the hidden span and a neighbouring one: the same names in other words."""
MIN_COPY_RATIO, MIN_COPY_ACCURACY = 3.0, 0.5
"""The encoder reads when it fills at least so many times as many held-out spans with the block as without it, and at least this share."""
SAMPLED_PAIRS = 512
"""Examples from which the wordpieces of a step are reckoned."""


def one_document_nll(target_log_probs: Tensor, slots: Tensor) -> losses.Loss:
    """The marginal likelihood where only one document is read: log p(y_j|z,x) and slots, [b, m] each -> loss [b], valid [b]."""
    certain = torch.zeros(len(target_log_probs), 1, device=target_log_probs.device)
    return losses.marginal_nll_per_token(target_log_probs.unsqueeze(1), certain, slots)


@dataclass(frozen=True)
class FilledShares:
    """Share of held-out spans filled exactly, with the block and with nothing."""

    with_block: float
    without: float

    @property
    def passes(self) -> bool:
        return self.with_block >= MIN_COPY_ACCURACY and self.with_block >= MIN_COPY_RATIO * self.without


class Pairs:
    """Masked sentences with their own block, and the test on pairs that training never sees."""

    def __init__(self, context: StageContext):
        self.context = context
        self.sentences = warm_sentences(context)
        self.partners = Partners(context.store)
        self.held_out, self.training = hold_out(self.sentences.keys, HELD_OUT_PAIRS, least=1)

    def example(self, item: int, position: int) -> tuple[MaskedQuery, list[int]]:
        """A masked sentence and the wordpieces it is read with.

        Either a partner block, or a random stretch of sentences around it in its own block, and more of the sentence is hidden (all can be
        copied)."""
        rng = generator("warm", self.context.seed, position)
        query = self.sentences.query(item, rng)
        store = self.context.store
        if rng.random() < PARTNER_RATE:
            rows = self.partners.rows(query.targets, query.others, set(store.rows_of(query.excluded).tolist()))
            if rows:
                return query, store.token_ids(rows[int(rng.integers(len(rows)))]).tolist()
        row = int(store.rows_of(np.array([query.origin]))[0])
        sentences = store.sentences(row).tokens
        first = int(sentences[rng.integers(query.sentence + 1), 0])
        last = int(sentences[rng.integers(query.sentence, len(sentences)), 1])
        query = hide_more(query, HIDE_RATE, self.context.inputs.featurizer.mask, rng)
        return query, store.token_ids(row)[first:last].tolist()

    def slots(self, queries: list[MaskedQuery]) -> tuple[Tensor, Tensor, Tensor]:
        """Mask positions, targets and real slots, [b, m] each, on the run's device."""
        where, what, slots = mask_slots([q.positions for q in queries], [q.targets for q in queries])
        return where.to(self.context.device), what.to(self.context.device), slots.to(self.context.device)

    @torch.no_grad()
    def test(self, encoder: KnowledgeAugmentedEncoder) -> FilledShares:
        """Fill the held-out spans with their block and with the null document."""
        encoder.eval()
        queries = [self.sentences.query(item, generator("warm", self.context.seed, "held out", item)) for item in self.held_out]
        where, what, slots = self.slots(queries)
        own = self.context.store.rows_of(np.array([q.origin for q in queries])).tolist()
        shares = []
        for rows in (own, [NULL_ROW] * len(queries)):
            sequences = [self.context.inputs.joint(q.ids, row) for q, row in zip(queries, rows, strict=True)]
            right = (encoder.log_probs(sequences, where).argmax(-1) == what) | ~slots
            shares.append(float(right.all(-1).float().mean()))
        return FilledShares(*shares)


class WarmTask(Task):
    """Masked-language modelling on (masked sentence, its own block)."""

    name = "warm"

    def __init__(self, context: StageContext, model: RealmModel):
        self.model = model
        self.context = context
        self.section = context.recipe.warm
        self.pairs = Pairs(context)
        self.order = EpochOrder(len(self.pairs.training), "warm", context.seed)
        self.reading: FilledShares | None = None

    def wordpieces_a_step(self) -> float:
        """Wordpieces that the encoder reads in a step, reckoned from ``SAMPLED_PAIRS`` pairs."""
        joint, training = self.context.inputs.featurizer.joint, self.pairs.training
        drawn = [self.pairs.example(training[at % len(training)], at) for at in range(SAMPLED_PAIRS)]
        return sum(len(joint(query.ids, body)) for query, body in drawn) / SAMPLED_PAIRS * self.section.batch

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        drawn = self.order.batch(step, self.section.batch, share)
        examples = [self.pairs.example(self.pairs.training[item], at) for at, item in drawn]
        queries = [query for query, _ in examples]
        where, what, known = mask_slots([q.positions for q in queries], [q.targets for q in queries])
        features = self.context.inputs.featurizer
        sequences = [features.joint(query.ids, body) for query, body in examples]
        where, what, slots = (values.to(self.context.device) for values in (where, what, known))
        loss, valid = one_document_nll(self.model.encoder(sequences, where, what, known), slots)
        return StepResult(loss.sum(), valid.sum(), {"span_log_prob": -loss.detach().mean()}, float(known.sum()))

    def between(self, step: int) -> Metrics | None:
        if step == 0 or (step % self.section.check_every and step != self.section.steps):
            return None
        self.reading = FilledShares(*on_first(lambda: astuple(self.pairs.test(self.model.encoder))))
        return {"filled_with_block": self.reading.with_block, "filled_without": self.reading.without}

    def finished(self, step: int) -> bool:
        return step >= self.section.least_steps and self.reading is not None and self.reading.passes

    def state(self) -> dict[str, Any]:
        return {"reading": None if self.reading is None else [self.reading.with_block, self.reading.without]}

    def restore(self, state: dict[str, Any]) -> None:
        self.reading = None if state["reading"] is None else FilledShares(*state["reading"])


def run_warm(context: StageContext) -> None:
    """Teach the encoder to read and publish it with the outcome of the test."""
    mark = fingerprint(context, "warm")
    if is_published(context, "warm", mark):
        return
    model = new_model(context, embeds=False).to(context.device)
    require_encoder(context, model)
    task = WarmTask(context, model)
    steps = train(context, task, context.recipe.warm, mark)
    reading = task.reading or task.pairs.test(model.encoder)  # type: ignore[arg-type]
    reads = reading.passes
    facts = {"steps": steps, "filled_with_block": reading.with_block, "filled_without": reading.without, "reads": reads}
    publish_stage(context, "warm", model, mark, facts)


def require_encoder(context: StageContext, model: RealmModel) -> None:
    """Refuse to fill masks with a body that cannot. Raises ConfigError: it has no encoder."""
    if not model.has("encoder"):
        cure = 'Set pretrain.fill = "pointer" to continue training its reader.'
        raise ConfigError("this body has a reader that points, and no head that fills masks", path=context.paths.config, cure=cure)


def require_reading(context: StageContext) -> None:
    """Refuse to pre-train with an encoder that cannot read, unless forced. Raises RunError: the warm stage did not pass its test."""
    if not context.recipe.pretrain.from_warm:  # which a recipe must force
        return
    facts = stage_facts(context.paths, "warm")
    if not facts["reads"] and not context.recipe.pretrain.force:
        shares = f"{facts['filled_with_block']:.2f} of held-out spans with the block given, {facts['filled_without']:.2f} without"
        problem = f"the encoder fills {shares}: it has not learnt to read, so pre-training cannot teach the retriever"
        raise RunError(problem, path=context.paths.root, cure="Raise warm.steps, or set pretrain.force = true.")
