"""What a step asks: masked sentences, some of which are asked of their own blocks or as questions (``training/masking/statements.py``).

Questions that are made of held-out sentences tell whether the reader has learnt to read. They are asked of the whole corpus, as a person
would ask them, and their sentence is among what may be read: so they are easier than people's own questions, and a reader that fails at
them has learnt too little to be asked at all.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from realm.answering.answerer import Answerer
from realm.answering.cloze import masked_text
from realm.evaluation.measures import exact_match_share
from realm.models.types import MaskedQuery, Question
from realm.recipe.seeds import generator
from realm.timing import charged
from realm.training.context import StageContext, source_over
from realm.training.loop.distributed import on_first
from realm.training.masking.sentences import Exclusion
from realm.training.masking.statements import Statements
from realm.training.order import WHOLE, EpochOrder, Share, hold_out
from realm.training.pretrain.retrieve import PretrainView
from realm.training.pretrain.sentences import pretraining_sentences, probe_sentences

SALIENT = 0.7
"""How often what is asked of its own block is a salient span of any sentence: names, dates and numbers, which other documents seldom
repeat."""
ASKED = 50
"""Questions made of held-out sentences."""
TRIED = 4
"""Held-out sentences that are tried for each question that is wanted of them."""


class Queries:
    """The masked sentences of the steps, in the order of training, and those that are held out.

    Args:
        context: the run.

    Attributes:
        sentences: all of them, masked as the recipe says.
        salient: the same with a salient span hidden.
        held_out, training: numbers of sentences.
        order: places of ``training``, step by step.
    """

    def __init__(self, context: StageContext):
        self.context, self.section = context, context.recipe.pretrain
        self.sentences = pretraining_sentences(context)
        self.held_out, self.training = hold_out(self.sentences.keys, self.section.held_out)
        self.order = EpochOrder(len(self.training), "pretrain", context.seed)
        self.salient = probe_sentences(context, self.sentences)

    def query(self, position: int, item: int) -> MaskedQuery:
        """The sentence ``item`` as it is masked at a position of the training order, with what is hidden shown to the retriever or not."""
        rng = generator("pretrain", self.context.seed, position)
        query = self.sentences.query(item, rng)
        return replace(query, shown=True) if rng.random() < self.section.shown else query

    def drawn(self, step: int, share: Share = WHOLE) -> dict[int, MaskedQuery]:
        """The masked sentences of a share of a step by their positions in the training order."""
        return {at: self.query(at, self.training[item]) for at, item in self.order.batch(step, self.section.batch, share)}

    def examples(self, step: int) -> list[dict[str, Any]]:
        """Which sentences a step masks, as JSON: numbers by which a person finds them."""
        drawn = [(self.training[item], at) for at, item in self.order.batch(step, self.section.batch)]
        queries = [(item, self.query(at, item)) for item, at in drawn]
        return [{"item": item, "block": int(query.origin), "sentence": int(query.sentence)} for item, query in queries]

    def asked(self, view: PretrainView, step: int, share: Share, *, reader_only: bool) -> list[MaskedQuery]:
        """What a share of a step asks.

        Args:
            view: the index in use.
            step, share: as for a task's step.
            reader_only: whether the reader learns alone: then some are asked of their own blocks.
        """
        with charged("data"):
            drawn = self.drawn(step, share)
        with charged("search"):
            return self.varied(view, list(drawn.values()), list(drawn), reader_only=reader_only)

    def varied(self, view: PretrainView, queries: list[MaskedQuery], positions: list[int], *, reader_only: bool) -> list[MaskedQuery]:
        """The masked sentences at these positions, some of them asked of their own blocks, or as questions."""
        own = self._chosen("own", self.section.own_block if reader_only else 0.0, positions)
        questions = self._chosen("question", self.section.questions, positions)
        queries = [self._any_salient(own[i]) if i in own and own[i].random() < SALIENT else query for i, query in enumerate(queries)]
        queries = asked_of_own_blocks(self.statements, queries, own)
        return asked_instead(view, self.statements, queries, {i: rng for i, rng in questions.items() if i not in own})

    def held_out_queries(self) -> list[MaskedQuery]:
        """The held-out sentences, masked the same at every evaluation; what is hidden is never shown."""
        # Training visits positions from 0: a negative one is drawn like them, and by no step.
        return [self.sentences.query(item, generator("pretrain", self.context.seed, -1 - item)) for item in self.held_out]

    @cached_property
    def statements(self) -> Statements:
        """What makes questions of masked sentences."""
        store = self.context.store
        exclusion = Exclusion(store, store, documents=self.section.exclude == "document")
        return Statements(store, self.sentences.store, self.context.inputs.featurizer, exclusion)

    @cached_property
    def own_questions(self) -> list[Question]:
        """A question with its answer for each of the first ``ASKED`` held-out sentences that a template makes a question of, where the
        reader is to learn to answer such (``pretrain.own_block``)."""
        if not self.section.own_block:
            return []
        found: list[Question] = []
        for item in hold_out(self.salient.keys, TRIED * ASKED)[0]:
            query = self.salient.query(item, generator("own questions", self.context.seed, -1 - item))
            text = self.statements.in_words(query, generator("own questions", self.context.seed, len(found)))
            if text is not None:
                found.append(Question(str(len(found)), text, masked_text(self.statements.store, query)[1]))
            if len(found) == ASKED:
                break
        return found

    def _chosen(self, purpose: str, share: float, positions: list[int]) -> dict[int, np.random.Generator]:
        """Which of the sentences at these positions, by their number, are to be asked in another way, and what draws their words."""
        rngs = {i: generator(purpose, self.context.seed, at) for i, at in enumerate(positions)} if share else {}
        return {i: rng for i, rng in rngs.items() if rng.random() < share}

    def _any_salient(self, rng: np.random.Generator) -> MaskedQuery:
        """Any sentence with a salient span hidden, but for those that are held out."""
        return self.salient.query(self._salient_training[int(rng.integers(len(self._salient_training)))], rng)

    @cached_property
    def _salient_training(self) -> list[int]:
        return hold_out(self.salient.keys, self.section.held_out)[1]


def asked_of_own_blocks(statements: Statements, queries: list[MaskedQuery], rngs: dict[int, np.random.Generator]) -> list[MaskedQuery]:
    """The queries, some of them thinned and asked of the blocks that they stand in, of which none is excluded any more.

    Args:
        statements: makes the questions.
        queries: b masked sentences of the knowledge corpus.
        rngs: of those that are asked so, by their number.
    """
    found = list(queries)
    for i, rng in rngs.items():
        found[i] = queries[i].as_question(statements.of_itself(queries[i], rng), excluded=np.empty(0, np.int64))
    return found


def asked_instead(
    view: PretrainView, statements: Statements, queries: list[MaskedQuery], rngs: dict[int, np.random.Generator]
) -> list[MaskedQuery]:
    """The queries, some of them replaced by questions with the same answer. What nothing states that was retrieved stays as it is.

    Args:
        view: the index in use.
        statements: makes the questions.
        queries: b masked sentences.
        rngs: of those that are to be asked, by their number.
    """
    if not rngs:
        return queries
    chosen = [queries[i] for i in rngs]
    retrieved = view.retrieve(chosen)
    places, rows = view.inputs.span_places, view.inputs.rows(retrieved.block_ids)
    found = list(queries)
    for i, query, real, row in zip(rngs, chosen, retrieved.real, rows, strict=True):
        stating = {one: spans for one in row[real].tolist() if (spans := places.places(one, query.targets))}
        asked = statements.as_question(query, list(stating), list(stating.values()), rngs[i])
        if asked is not None:
            found[i] = query.as_question(asked.ids, asked.excluded)
    return found


def own_em(view: PretrainView, questions: list[Question], read: int) -> float:
    """Exact match on questions with the networks as they are now, ``read`` blocks read for each."""

    def measure() -> float:
        source = source_over(view.context, view.generation.queries, view.generation)
        answerer = Answerer(view.inputs, source, view.model.reader, versions={}, bf16=view.context.recipe.run.bf16)
        return exact_match_share(answerer.answer([question.text for question in questions], k=read), questions)

    return on_first(measure)
