"""Questions without labels: of a masked sentence whose span a retrieved block states (Fabbri et al., 2020), or of the sentence itself.

The first are made of the retrieved statement and answered where the masked sentence stands: the statement's blocks must not be read, the
sentence's own may. The second are thinned, some words dropped and out of order ("noisy cloze", Lewis et al. 2019): a whole one would teach
a reader to look for the same words."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence as SequenceOf
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from realm.answering.cloze import MASK, masked_text
from realm.answering.questions.answer_kinds import LANGUAGES, detect_language
from realm.answering.questions.templates import question_from
from realm.documents.store.blocks import BlockStore
from realm.evaluation.places import Span
from realm.models.featurize import Featurizer
from realm.models.types import MaskedQuery, TokenIds
from realm.text.wordpieces import word_table
from realm.text.words import words
from realm.training.masking.sentences import Exclusion

QUESTION_SHARE = 0.7
"""Share of sentences asked of their own block that are put as a question, if a template can; the rest keep their [MASK]."""
MIN_SHARED_WORDS = 2
"""A statement has so many words, besides the span, of the sentence that it is to restate."""


@dataclass(frozen=True)
class Statement:
    """A sentence that states a span: its words, and where the span stands in them, [start, end) in code points."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Asked:
    """A question made of a statement: text, wordpieces, the answer's wordpieces, block ids that hold the statement, and its block."""

    text: str
    ids: TokenIds
    targets: TokenIds
    excluded: np.ndarray
    origin: int


def stating_sentence(store: BlockStore, row: int, place: Span) -> Statement | None:
    """The sentence of a block that holds the span ``place``, [start, end) in wordpieces of its body.

    None if the span crosses a sentence's border, or the text does not give the block's wordpieces again."""
    sentence, table = _sentence_of(store, row, place), store.sentences(row)
    (first, last), (begin, finish) = table.tokens[sentence].tolist(), table.chars[sentence].tolist()
    text = store.block(row).text[begin:finish]
    _, offsets = store.tokenizer.encode_offsets(text)
    if not first <= place[0] < place[1] <= last or len(offsets) < last - first:
        return None
    return Statement(text, offsets[place[0] - first][0], offsets[place[1] - 1 - first][1])


def _sentence_of(store: BlockStore, row: int, place: Span) -> int:
    """The number of the sentence in which a span begins."""
    ends = store.sentences(row).tokens[:, 1].tolist()
    return min(bisect_right(ends, place[0]), len(ends) - 1)


class Statements:
    """Questions of what was retrieved from ``store`` for masked ``sentences``; ``exclusion``: blocks that hold a sentence (default
    verbatim)."""

    def __init__(self, store: BlockStore, sentences: BlockStore, featurizer: Featurizer, exclusion: Exclusion | None = None):
        self.store = store
        self.sentences = sentences
        self.featurizer = featurizer
        self.exclusion = exclusion or Exclusion(store, store)
        self.language = lru_cache(maxsize=65536)(lambda row: detect_language(store.block(row).text))  # a sentence alone may be too short

    def as_question(
        self, query: MaskedQuery, rows: SequenceOf[int], places: SequenceOf[SequenceOf[Span]], rng: np.random.Generator
    ) -> Asked | None:
        """The masked sentence as a question; None if none of ``rows`` states its span, at ``places`` of its body, in a usable sentence."""
        for row, place, statement in self._best_first(query, rows, places, rng):
            language = self.language(row)
            text = language and question_from(statement.text, statement.start, statement.end, language, rng)
            if text:
                ids = self.store.tokenizer.encode([text])[0][: self.featurizer.query_length - 2]
                sentence_hash = int(self.store.sentences(row).hashes[_sentence_of(self.store, row, place)])
                excluded = np.unique(self.exclusion.blocks(row, sentence_hash))
                return Asked(text, ids, list(query.targets), excluded, int(self.store.block_ids[row]))
        return None

    def of_itself(self, query: MaskedQuery, rng: np.random.Generator) -> TokenIds:
        """Wordpieces of the masked sentence, thinned, as a question or a cloze that its own block answers."""
        text = self.in_words(query, rng) if rng.random() < QUESTION_SHARE else None
        if text is None:
            ids = thinned_cloze(query, self.featurizer.mask, self._starts, rng)
        else:
            asked = self.store.tokenizer.encode([text])[0]
            second = 1 + int(np.argmax(self._starts[asked[1:]]))
            ids = [*asked[:second], *thinned(asked[second:], self._starts, rng)]  # its first word asks
        return ids[: self.featurizer.query_length - 2]

    def in_words(self, query: MaskedQuery, rng: np.random.Generator) -> str | None:
        """A masked sentence of the knowledge corpus with a question word for what is hidden; None where no template makes one of it."""
        row = int(self.store.rows_of(np.array([query.origin]))[0])
        begin = int(self.store.sentences(row).tokens[query.sentence, 0])
        statement = stating_sentence(self.store, row, (begin + query.positions[0], begin + query.positions[-1] + 1))
        language = self.language(row)
        if statement is None or language is None:
            return None
        return question_from(statement.text, statement.start, statement.end, language, rng)

    @cached_property
    def _starts(self) -> np.ndarray:
        """bool [v]: which wordpieces begin a word."""
        return word_table(self.store.tokenizer).starts

    def _best_first(
        self, query: MaskedQuery, rows: SequenceOf[int], places: SequenceOf[SequenceOf[Span]], rng: np.random.Generator
    ) -> Iterator[tuple[int, Span, Statement]]:
        """Statements of the span with their places, most shared words first; none with too few, and none of its own document.

        A date or a name alone is stated of many things: what else both sentences say makes it the same fact."""
        text, hidden = masked_text(self.sentences, query)
        document = self._document_of(query)
        common = set(words(text.replace(MASK, " "))) - set(words(" ".join(hidden))) - _FUNCTION_WORDS
        found = []
        for row, spans in zip(rows, places, strict=True):
            if row < 0 or (document is not None and self.store.doc_id(row) == document):
                continue
            for place in spans:
                statement = stating_sentence(self.store, row, place)
                shared = 0 if statement is None else len(common & set(words(statement.text)))
                if statement is not None and shared >= MIN_SHARED_WORDS:
                    found.append((shared, row, place, statement))
        order = rng.permutation(len(found)).tolist()
        for at in sorted(order, key=lambda at: -found[at][0]):  # stable: ties stay as drawn
            yield found[at][1:]

    def _document_of(self, query: MaskedQuery) -> str | None:
        """The masked sentence's document in the knowledge corpus; None where its sentences come from elsewhere."""
        if self.sentences is not self.store:
            return None
        return self.store.doc_id(int(self.store.rows_of(np.array([query.origin]))[0]))


_FUNCTION_WORDS = frozenset().union(*(language.words["function_words"] for language in LANGUAGES.values()))


WORD_DROP_RATE = 0.15
"""Share of words that are left out."""
SHUFFLE_DISTANCE = 3.0
"""By fewer places than this a word changes places with its neighbours."""
WORDS_BESIDE_MASK = (2, 12)
"""Words that are kept on each side of what is hidden: from so many on, fewer than so many."""


def thinned(ids: TokenIds, starts: np.ndarray, rng: np.random.Generator) -> TokenIds:
    """Wordpieces without some words, the others a little out of order; ``starts`` bool [v]: which wordpieces begin a word."""
    words = _words(ids, starts)
    kept = [word for word in words if rng.random() >= WORD_DROP_RATE] or words
    order = np.argsort(np.arange(len(kept)) + SHUFFLE_DISTANCE * rng.random(len(kept)), kind="stable")
    return [wordpiece for place in order.tolist() for wordpiece in kept[place]]


def thinned_cloze(query: MaskedQuery, mask: int, starts: np.ndarray, rng: np.random.Generator) -> TokenIds:
    """Words around the hidden span of a sentence, thinned, with one [MASK] in its place."""
    before, after = _words(query.ids[: query.positions[0]], starts), _words(query.ids[query.positions[-1] + 1 :], starts)
    left, right = before[-int(rng.integers(*WORDS_BESIDE_MASK)) :], after[: int(rng.integers(*WORDS_BESIDE_MASK))]
    first, last = (thinned([wordpiece for word in words for wordpiece in word], starts, rng) for words in (left, right))
    return [*first, mask, *last]


def _words(ids: TokenIds, starts: np.ndarray) -> list[TokenIds]:
    borders = [0, *(np.flatnonzero(starts[ids[1:]]) + 1).tolist(), len(ids)] if ids else []
    return [ids[begin:end] for begin, end in pairwise(borders)]
