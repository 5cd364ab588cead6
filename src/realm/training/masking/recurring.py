"""Recurring spans with evidence: a block that can be found by the rest of the sentence, and states what is hidden.

Any run of words counts, in any script (``grams.py``), and so does what it is found by (``evidence.py``). After Splinter (Ram et al. 2021)
and Spider (Ram et al. 2022)."""

from array import array
from collections import Counter
from itertools import groupby, pairwise

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.models.types import TokenIds
from realm.training.masking.evidence import Evidence
from realm.training.masking.grams import CorpusWords, corpus_words, recurring_grams
from realm.training.masking.kinds import MAX_MASKS, Maskable, Span

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
