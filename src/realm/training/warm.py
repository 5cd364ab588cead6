"""The reading warm start: the encoder learns to fill a masked span from a block that holds the answer.

An encoder that cannot copy yet ignores every document, and the retriever's gradient is noise. The stage ends with a test: on held-out pairs
it must fill the span with the block far more often than without."""

from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realm.errors import ConfigError, RunError
from realm.models import losses
from realm.models.encoder import KnowledgeAugmentedEncoder, mask_slots
from realm.models.model import RealmModel
from realm.models.types import MaskedQuery
from realm.recipe.seeds import generator
from realm.search.blocks import NULL_ROW
from realm.storage.layout import stage_facts
from realm.training.context import StageContext, fingerprint, is_published, publish_stage, train
from realm.training.loop.distributed import on_first
from realm.training.loop.task import Metrics, StepResult, Task
from realm.training.masking.evidence import Partners
from realm.training.masking.sentences import hide_more
from realm.training.order import WHOLE, EpochOrder, Share, hold_out
from realm.training.pretrain.questions import warm_sentences
from realm.training.starting import new_model

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
