"""Kinds of masks: listed spans, random wordpieces, random spans of whole words, and recurring spans with evidence: a block that can be
found by the rest of the sentence, and states what is hidden.

A span is hidden whole or not at all, and at least one wordpiece of a sentence stays to be seen. What recurs may be any run of words, in any
script (``grams.py``), and so may what it is found by (``evidence.py``). After Splinter (Ram et al. 2021) and Spider (Ram et al. 2022)."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from typing import Protocol

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.models.types import TokenIds
from realm.text.wordpieces import WordTable
from realm.training.masking.evidence import Evidence
from realm.training.masking.grams import CorpusWords, corpus_words, recurring_grams

MAX_MASKS = 10
RATE = 0.15
"""Share of wordpieces that BERT hides (Devlin et al. 2019)."""
SHRINK, MOST_WORDS = 0.2, 10
"""Lengths of random spans in words: geometric, clipped, as in SpanBERT (Joshi et al. 2020); 3.8 words in the mean."""
LENGTH_SHARES = SHRINK * (1 - SHRINK) ** np.arange(MOST_WORDS)

Span = tuple[int, int]
Maskable = Iterator[tuple[int, list[Span]]]


class MaskKind(Protocol):
    """One way to choose what is hidden. Spans count from the first wordpiece of their sentence."""

    def maskable(self, row: int, shown: int, dropped: Counter[str]) -> Maskable:
        """(sentence, spans) of every sentence of a row with something to hide within ``shown`` wordpieces; counts ``dropped`` by reason."""

    def hide(self, ids: TokenIds, spans: list[Span], rng: np.random.Generator) -> tuple[list[Span], list[Span]]:
        """Spans to hide of the ``spans`` of a sentence's ``ids``, in order and apart, and the listed spans that stay."""


class ListedSpans:
    """Mask of one listed span of a sentence: ``listed`` gives of a row spans [m, 2] in its wordpieces and their sentences [m]."""

    def __init__(self, store: BlockStore, listed: Callable[[int], tuple[np.ndarray, np.ndarray]], *, max_masks: int = MAX_MASKS):
        self.store = store
        self.listed = listed
        self.max_masks = max_masks

    def maskable(self, row: int, shown: int, dropped: Counter[str]) -> Maskable:
        tokens, sentences = self.listed(row)
        table = self.store.sentences(row).tokens
        usable: dict[int, list[Span]] = {}
        for (start, end), sentence in zip(tokens.tolist(), sentences.tolist(), strict=True):
            first, last = table[sentence].tolist()
            if end - start > self.max_masks:
                dropped["longer than max_masks"] += 1
            elif end - first > shown:
                dropped["beyond the query length"] += 1
            elif end - start == min(last - first, shown):
                dropped["the whole sentence"] += 1
            else:
                usable.setdefault(sentence, []).append((start - first, end - first))
        yield from sorted(usable.items())

    def hide(self, ids: TokenIds, spans: list[Span], rng: np.random.Generator) -> tuple[list[Span], list[Span]]:
        chosen = spans[int(rng.integers(len(spans)))]
        return [chosen], [span for span in spans if span != chosen]


def salient_spans(store: BlockStore, *, max_masks: int = MAX_MASKS) -> ListedSpans:
    """The spans that the corpus's tagger found (REALM, section 3.4)."""

    def listed(row: int) -> tuple[np.ndarray, np.ndarray]:
        table = store.spans(row)
        return table.tokens, table.sentence

    return ListedSpans(store, listed, max_masks=max_masks)


class UniformTokens:
    """Mask of random wordpieces, each as likely as any other, at BERT's rate, at least one. All of them become [MASK]."""

    def __init__(self, store: BlockStore):
        self.store = store

    def maskable(self, row: int, shown: int, dropped: Counter[str]) -> Maskable:
        for sentence, (first, last) in enumerate(self.store.sentences(row).tokens.tolist()):
            if min(last - first, shown) < 2:
                dropped["fewer than two wordpieces"] += 1
            else:
                yield sentence, [(0, min(last - first, shown))]

    def hide(self, ids: TokenIds, spans: list[Span], rng: np.random.Generator) -> tuple[list[Span], list[Span]]:
        count = min(max(1, round(RATE * len(ids))), len(ids) - 1)
        return [(p, p + 1) for p in sorted(rng.permutation(len(ids))[:count].tolist())], []


class RandomSpans:
    """Mask of a span of whole words, of a random length of at most ``max_masks`` wordpieces at a random place."""

    def __init__(self, store: BlockStore, words: WordTable, *, max_masks: int = MAX_MASKS):
        self.store = store
        self.words = words
        self.max_masks = max_masks

    def maskable(self, row: int, shown: int, dropped: Counter[str]) -> Maskable:
        starts = self.words.starts[self.store.token_ids(row)]
        for sentence, (first, last) in enumerate(self.store.sentences(row).tokens.tolist()):
            borders = [0, *(np.flatnonzero(starts[first + 1 : last]) + 1).tolist(), last - first]
            whole = [border for border in borders if border <= shown]  # a word that the query would cut is no word to hide
            if any(self._fits((a, b), min(last - first, shown)) for a, b in pairwise(whole)):
                yield sentence, [(0, whole[-1])]
            else:
                dropped["no word that can be hidden"] += 1

    def hide(self, ids: TokenIds, spans: list[Span], rng: np.random.Generator) -> tuple[list[Span], list[Span]]:
        ((_, end),) = spans
        borders = [0, *(p for p in range(1, end) if self.words.starts[ids[p]]), end]
        return [self._draw(borders, len(ids), rng)], []

    def _draw(self, borders: list[int], shown: int, rng: np.random.Generator) -> Span:
        """A length, again if it fits nowhere, then one of the places where it fits; ``maskable`` has seen that there is one."""
        shares = LENGTH_SHARES[: len(borders) - 1].copy()
        while True:
            at = int(np.searchsorted(np.cumsum(shares), rng.random() * shares.sum(), side="right"))
            words = min(at, int(np.flatnonzero(shares)[-1])) + 1  # a draw of nearly 1 may be rounded up
            places = [span for span in zip(borders, borders[words:], strict=False) if self._fits(span, shown)]
            if places:
                return places[int(rng.integers(len(places)))]
            shares[words - 1] = 0.0

    def _fits(self, span: Span, shown: int) -> bool:
        return span[1] - span[0] <= self.max_masks and span[1] - span[0] < shown


NOTHING_RECURS = "sentences without words of another document"
NO_EVIDENCE = "sentences without evidence for such words"
REPEATED_IN_SENTENCE = "sentences that say what could be hidden once more"
MAX_UNSALIENT_CHANCE = 0.25
"""Words that no tagger finds are hidden only where so little of their evidence would be there by chance, as a share of what may be else."""


class RecurringSpans:
    """Mask of one span that another document has too: a salient one, or the longest run of words that no salient span touches.

    ``sentences`` is the pre-training corpus X, ``blocks`` the knowledge corpus Z; a query holds ``shown`` wordpieces; ``unsalient``: how
    often an untagged span is hidden where a sentence has both kinds."""

    def __init__(self, sentences: BlockStore, blocks: BlockStore, *, shown: int, unsalient: float):
        self.sentences, self.unsalient = sentences, unsalient
        self._offset = 0 if sentences is blocks else len(blocks)
        words = corpus_words([blocks] if sentences is blocks else [blocks, sentences])
        grams = recurring_grams(words, len(blocks), MAX_MASKS)
        self.evidence = Evidence(words, grams, sentences, len(blocks), shown)
        self._sentence, self._spans = self._listed(words, grams.edges)

    def _listed(self, words: CorpusWords, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sentences [n], ascending, and what may be hidden of them [n, 2]: salient spans, and back to front, (end, start), the others."""
        places = self.evidence
        kept = np.flatnonzero(np.isfinite(places.chance) & (places.end - places.start < (words.ends - words.begins)[places.sentence]))
        sentences, spans = array("q"), array("i")
        for number, here in groupby(kept.tolist(), lambda at: int(places.sentence[at])):
            tagged, bare = self._salient(words, edges, number)
            for at in here:
                start, end = int(places.start[at]), int(places.end[at])
                if (start, end) in bare:
                    spans.extend((start, end))
                elif places.maximal[at] and places.chance[at] <= MAX_UNSALIENT_CHANCE and all(end <= a or b <= start for a, b in tagged):
                    spans.extend((end, start))
                else:
                    continue
                sentences.append(number)
        return np.array(sentences, np.int64), np.array(spans, np.int32).reshape(-1, 2)

    def _salient(self, words: CorpusWords, edges: np.ndarray, number: int) -> tuple[list[Span], set[Span]]:
        """The tagger's spans in a sentence, and the same without stopwords and punctuation at their ends."""
        row = int(words.row[number])
        local, sentence = row - self._offset, number - int(words.first_sentence[row])
        table = self.sentences.spans(local)
        tagged = (table.tokens[table.sentence == sentence] - self.sentences.sentences(local).tokens[sentence, 0]).tolist()
        bare = set()
        for start, end in tagged:
            first, last = np.searchsorted(words.pieces, words.begins[number] + np.array([start, end]))
            telling = first + np.flatnonzero(edges[first:last])
            if len(telling):
                begin, stop = words.pieces[telling[[0, -1]] + [0, 1]] - words.begins[number]
                bare.add((int(begin), int(stop)))
        return [(start, end) for start, end in tagged], bare

    def maskable(self, row: int, shown: int, dropped: Counter[str]) -> Maskable:
        first, sentences = self.evidence.first_sentence(row), len(self.sentences.sentences(row).tokens)
        bounds = np.searchsorted(self._sentence, np.arange(first, first + sentences + 1)).tolist()
        recurs = np.diff(np.searchsorted(self.evidence.sentence, np.arange(first, first + sentences + 1)))
        body, borders = self.sentences.token_ids(row).tolist(), self.sentences.sentences(row).tokens.tolist()
        for number, (begin, end) in enumerate(pairwise(bounds)):
            listed = [(a, b) for a, b in self._spans[begin:end].tolist() if max(a, b) <= shown]
            sentence = body[slice(*borders[number])]
            spans = [span for span in listed if not _repeated(sentence, *sorted(span))]
            if spans:
                yield number, spans
            elif listed:
                dropped[REPEATED_IN_SENTENCE] += 1
            else:
                dropped[NO_EVIDENCE if recurs[number] else NOTHING_RECURS] += 1

    def hide(self, ids: TokenIds, spans: list[Span], rng: np.random.Generator) -> tuple[list[Span], list[Span]]:
        salient, others = [(a, b) for a, b in spans if a < b], [(b, a) for a, b in spans if b < a]
        chosen = others if others and (not salient or rng.random() < self.unsalient) else salient
        hidden = chosen[int(rng.integers(len(chosen)))]
        return [hidden], [(a, b) for a, b in sorted(salient + others) if b <= hidden[0] or hidden[1] <= a]


def _repeated(sentence: TokenIds, start: int, end: int) -> bool:
    """Tell whether the hidden wordpieces stand in the sentence once more: a reader would learn to point at the question."""
    span = sentence[start:end]
    return any(sentence[at : at + len(span)] == span for at in range(len(sentence) - len(span) + 1) if at != start)
