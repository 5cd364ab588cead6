"""The sentences that a run masks: of which corpus, what is hidden of them, and what they must not be given; and the queries of a step:
masked sentences, some asked of their own blocks or as questions (``training/masking/statements.py``).

Questions made of held-out sentences tell whether the reader has learnt to read: asked of the whole corpus, their sentence included, they
are easier than people's own."""

from dataclasses import replace
from functools import cached_property

import numpy as np

from realm.answering.answerer import Answerer
from realm.answering.cloze import begun, masked_text
from realm.documents.store.blocks import BlockStore
from realm.documents.store.manifest import given_corpus, read_manifest
from realm.errors import CorpusError
from realm.evaluation.measures import exact_match_share
from realm.models.reader import ReadingNetwork
from realm.models.types import MaskedQuery, Question
from realm.recipe.seeds import generator
from realm.text.wordpieces import word_table
from realm.training.context import StageContext, fingerprint, source_over
from realm.training.loop.distributed import on_first
from realm.training.masking.kinds import NO_EVIDENCE, NOTHING_RECURS, MaskKind, RandomSpans, RecurringSpans, UniformTokens, salient_spans
from realm.training.masking.sentences import Exclusion, MaskedSentences
from realm.training.masking.statements import Statements
from realm.training.order import WHOLE, EpochOrder, Share, hold_out
from realm.training.pretrain.retrieve import PretrainView


def sentences_store(context: StageContext) -> BlockStore:
    """The pre-training corpus X: the knowledge corpus, unless the recipe names another. Raises CorpusError: it does not fit."""
    named = context.recipe.pretrain.sentences
    if not named:
        return context.store
    store = BlockStore.open(given_corpus(named) or context.paths.sentences)
    if not store.tokenizer.same_wordpieces(context.store.tokenizer):
        cure = f"Build it with: realm corpus build --tokenizer {context.paths.corpus}"
        raise CorpusError("the sentences have other wordpieces than the run's corpus", path=store.path, cure=cure)
    return store


def require_same_corpus(store: BlockStore) -> None:
    """Refuse to continue over another corpus than the open one. Raises CorpusError: it was replaced, or is gone."""
    if read_manifest(store.path).corpus_id != store.manifest.corpus_id:
        cure = "The trained stages belong to the old corpus: start a new run with --out."
        raise CorpusError("another corpus was built here while the run was using it", path=store.path, cure=cure)


def warm_sentences(context: StageContext) -> MaskedSentences:
    """Sentences that teach reading: a salient span of each, or random spans in a corpus without. Raises CorpusError: there are none."""
    salient = MaskedSentences(context.store, context.inputs.featurizer)
    if len(salient):
        return salient
    return _any(MaskedSentences(context.store, context.inputs.featurizer, _kind("spans", context.store)), "random spans")


def pretraining_sentences(context: StageContext) -> MaskedSentences:
    """Sentences that pre-training learns from, masked as the recipe says. Raises CorpusError: there are none."""
    section, store = context.recipe.pretrain, sentences_store(context)
    featurizer = context.inputs.featurizer
    exclusion = Exclusion(store, context.store, section.exclude)
    if section.masking == "recurring":
        kind: MaskKind = RecurringSpans(store, context.store, shown=featurizer.query_length - 2, unsalient=section.unsalient)
    else:
        kind = _kind(section.masking, store)
    return _any(MaskedSentences(store, featurizer, kind, exclusion), f"pretrain.masking = {section.masking!r}")


def probe_sentences(context: StageContext, training: MaskedSentences) -> MaskedSentences:
    """Sentences with a salient span that probe the retriever under any masks; ``training`` where the corpus has none."""
    section = context.recipe.pretrain
    if section.masking == "salient":
        return training
    salient = MaskedSentences(training.store, training.featurizer, exclusion=training.exclusion)
    return salient if len(salient) else training


def pretraining_fingerprint(context: StageContext) -> str:
    """Fingerprint of pre-training, over the corpus of masked sentences and the stages it starts from, too."""
    section = context.recipe.pretrain
    parents = [stage for stage, used in (("ict", section.from_ict), ("warm", section.from_warm)) if used]
    more = {"sentences": sentences_store(context).manifest.corpus_id} if section.sentences else {}
    return fingerprint(context, "pretrain", *parents, **more)


def _kind(masking: str, store: BlockStore) -> MaskKind:
    if masking == "spans":
        return RandomSpans(store, word_table(store.tokenizer))
    return UniformTokens(store) if masking == "tokens" else salient_spans(store)


def _any(sentences: MaskedSentences, choice: str) -> MaskedSentences:
    if len(sentences):
        return sentences
    alone, recurring = (sentences.dropped[reason] for reason in (NOTHING_RECURS, NO_EVIDENCE))
    if alone + recurring:
        share = recurring / (alone + recurring)
        problem = f"{share:.1%} of {alone + recurring:,} sentences share words with another document, but no document helps to fill them"
        cure = "Add documents that speak of the same things, or set pretrain.masking to 'salient' or 'spans'."
        raise CorpusError(problem, path=sentences.store.path, cure=cure)
    left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(sentences.dropped.items()))
    problem = f"no sentence has a span that can be masked with {choice}" + (f" ({left_out})" if left_out else "")
    cure = "Give a gazetteer ([corpus] gazetteer) or documents with names or dates, or set pretrain.masking to 'spans'."
    raise CorpusError(problem, path=sentences.store.path, cure=cure)


SALIENT_SHARE = 0.7
"""Share of sentences asked of their own block that hide a salient span of any sentence, which other documents seldom repeat."""
OWN_QUESTIONS = 50
"""Questions made of held-out sentences."""
TRIES_PER_QUESTION = 4
"""Held-out sentences that are tried for each question that is wanted of them."""


class Queries:
    """Masked sentences of the steps in training order, and those held out.

    ``sentences`` are masked as the recipe says, ``salient`` with a salient span; ``held_out`` and ``training`` are their numbers, ``order``
    places of ``training``, step by step."""

    def __init__(self, context: StageContext):
        self.context, self.section = context, context.recipe.pretrain
        self.sentences = pretraining_sentences(context)
        self.held_out, self.training = hold_out(self.sentences.keys, self.section.held_out)
        self.order = EpochOrder(len(self.training), "pretrain", context.seed)
        self.salient = probe_sentences(context, self.sentences)

    def query(self, position: int, item: int) -> MaskedQuery:
        """The sentence ``item`` as it is masked at a position of the training order, with what is hidden shown to the retriever or not."""
        rng = generator("pretrain", self.context.seed, position)
        query = self._drawn(item, rng)
        return replace(query, shown=True) if rng.random() < self.section.shown else query

    def _drawn(self, item: int, rng: np.random.Generator) -> MaskedQuery:
        query = self.sentences.query(item, rng)
        return begun(self.sentences.store, query) if self.section.fill == "lm" else query

    def drawn(self, step: int, share: Share = WHOLE) -> dict[int, MaskedQuery]:
        """The masked sentences of a share of a step by their positions in the training order."""
        return {at: self.query(at, self.training[item]) for at, item in self.order.batch(step, self.section.batch, share)}

    def asked(self, view: PretrainView, step: int, share: Share, *, reader_only: bool) -> list[MaskedQuery]:
        """Queries of a share of a step; with ``reader_only`` some are asked of their own blocks."""
        drawn = self.drawn(step, share)
        return self.varied(view, list(drawn.values()), list(drawn), reader_only=reader_only)

    def varied(self, view: PretrainView, queries: list[MaskedQuery], positions: list[int], *, reader_only: bool) -> list[MaskedQuery]:
        """The masked sentences at these positions, some of them asked of their own blocks, or as questions."""
        own = self._chosen("own", self.section.own_block if reader_only else 0.0, positions)
        questions = self._chosen("question", self.section.questions, positions)
        queries = list(queries)
        for i, rng in own.items():
            if rng.random() < SALIENT_SHARE:
                queries[i] = self.salient.query(self._salient_training[int(rng.integers(len(self._salient_training)))], rng)
        queries = asked_of_own_blocks(self.statements, queries, own)
        return asked_instead(view, self.statements, queries, {i: rng for i, rng in questions.items() if i not in own})

    def held_out_queries(self) -> list[MaskedQuery]:
        """The held-out sentences, masked the same at every evaluation; what is hidden is never shown."""
        # Training visits positions from 0: a negative one is drawn like them, and by no step.
        return [self._drawn(item, generator("pretrain", self.context.seed, -1 - item)) for item in self.held_out]

    @cached_property
    def statements(self) -> Statements:
        """Maker of questions from masked sentences."""
        store = self.context.store
        exclusion = Exclusion(store, store, self.section.exclude or True)
        return Statements(store, self.sentences.store, self.context.inputs.featurizer, exclusion)

    @cached_property
    def own_questions(self) -> list[Question]:
        """Questions with answers made of the first ``OWN_QUESTIONS`` held-out sentences; none without ``pretrain.own_block``."""
        if not self.section.own_block:
            return []
        found: list[Question] = []
        for item in hold_out(self.salient.keys, TRIES_PER_QUESTION * OWN_QUESTIONS)[0]:
            query = self.salient.query(item, generator("own questions", self.context.seed, -1 - item))
            text = self.statements.in_words(query, generator("own questions", self.context.seed, len(found)))
            if text is not None:
                found.append(Question(str(len(found)), text, masked_text(self.statements.store, query)[1]))
            if len(found) == OWN_QUESTIONS:
                break
        return found

    def _chosen(self, purpose: str, share: float, positions: list[int]) -> dict[int, np.random.Generator]:
        """Generators for the positions that are asked in another way, by their number."""
        rngs = {i: generator(purpose, self.context.seed, at) for i, at in enumerate(positions)} if share else {}
        return {i: rng for i, rng in rngs.items() if rng.random() < share}

    @cached_property
    def _salient_training(self) -> list[int]:
        return hold_out(self.salient.keys, self.section.held_out)[1]


def asked_of_own_blocks(statements: Statements, queries: list[MaskedQuery], rngs: dict[int, np.random.Generator]) -> list[MaskedQuery]:
    """The queries, those of ``rngs`` thinned and asked of the blocks that they stand in, none excluded any more."""
    found = list(queries)
    for i, rng in rngs.items():
        found[i] = queries[i].as_question(statements.of_itself(queries[i], rng), excluded=np.empty(0, np.int64))
    return found


def asked_instead(
    view: PretrainView, statements: Statements, queries: list[MaskedQuery], rngs: dict[int, np.random.Generator]
) -> list[MaskedQuery]:
    """The queries, those of ``rngs`` replaced by questions with the same answer where a retrieved block states it."""
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
        reader = ReadingNetwork(view.model.reader, bf16=view.context.recipe.run.bf16)
        answerer = Answerer(view.inputs, source, reader, versions={})
        return exact_match_share(answerer.answer([question.text for question in questions], k=read), questions)

    return on_first(measure)
