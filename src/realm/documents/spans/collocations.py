"""Terms of scripts without letter case (Chinese, Japanese, Thai, Korean, Arabic, Hebrew, Hindi ...), learned from the corpus itself.

A term is a sequence that occurs more often than its parts make likely (pointwise mutual information over the worst split) and whose
neighbours vary on both sides, so that it is neither a piece of a longer term nor an accident. Scripts that put no space between words
are counted by character, the others by word."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import regex

from realm.documents.spans.spans import TaggedSpan
from realm.text.words import is_grammar, particle_length

# Units (characters, words, whole runs of Katakana) of the shortest and the longest term.
SHORTEST = {"chars": 2, "words": 2, "katakana": 1}
LONGEST = {"chars": 8, "words": 4, "katakana": 1}
# Entries of the table of counts, about 120 bytes each. When it is full, the rarest go.
MOST_ENTRIES = 2_000_000
MOST_TERMS = 200_000
FEWEST_OCCURRENCES = 4
# In nats: information of the worst split; entropy of the neighbours on the less free side.
LEAST_INFORMATION = 2.5
LEAST_FREEDOM = 0.9
# A term that stands in a larger share of the sentences is grammar ("we", "can"), not knowledge; small counts are excused.
COMMON_SHARE, COMMON_COUNT = 0.02, 200

# Runs of one unspaced script. Hiragana is left out: it writes endings and particles. A run of Katakana is one word already.
_UNSPACED = r"[\p{Han}々〆]+|\p{Thai}+|\p{Lao}+|\p{Khmer}+|\p{Myanmar}+|\p{Tibetan}+"
_SPACED = (
    r"[[\p{Hangul}\p{Arabic}\p{Hebrew}\p{Devanagari}\p{Bengali}\p{Gurmukhi}\p{Gujarati}\p{Oriya}\p{Tamil}\p{Telugu}\p{Kannada}"
    r"\p{Malayalam}\p{Sinhala}\p{Ethiopic}\p{Syriac}\p{Thaana}]&&[\p{L}\p{M}]||[\u200c\u200d]]+"
)
_RUN = regex.compile(rf"(?V1)(?P<chars>{_UNSPACED})|(?P<katakana>[\p{{Katakana}}ー]{{2,}}+)|(?P<words>{_SPACED}(?: {_SPACED})*)")
_CASELESS = regex.compile(r"\p{Lo}")


class CollocationCounts:
    """Counts the sequences of characters or words of sentences whose letters mostly have no case. Memory is bounded."""

    def __init__(self, most_entries: int = MOST_ENTRIES) -> None:
        self._most = most_entries
        self._counts: dict[str, dict[str, int]] = {kind: {} for kind in LONGEST}
        self._units = dict.fromkeys(LONGEST, 0)
        self._rarest = 0
        self._sentences = 0

    def add(self, sentences: Iterable[str]) -> None:
        """Count the sentences that are written without case; the others cost next to nothing."""
        for sentence in sentences:
            if not mostly_caseless(sentence):
                continue
            self._sentences += 1
            for match in _RUN.finditer(sentence):
                kind = match.lastgroup or "chars"
                self._count(_units(match.group(), kind), kind)
            self._drop_rarest()

    def terms(self) -> list[str]:
        """The terms, in order of the alphabet; at most ``MOST_TERMS``, those of the most information."""
        scored = [entry for kind in LONGEST for entry in self._scored(kind)]
        scored.sort(key=lambda entry: (-entry[1], entry[0]))
        return sorted(term for term, _ in scored[:MOST_TERMS])

    def _count(self, run: Sequence[str], kind: str) -> None:
        self._units[kind] += len(run)
        _count_sequences(self._counts[kind], run, LONGEST[kind] + 1, _joint(kind))

    def _drop_rarest(self) -> None:
        if sum(map(len, self._counts.values())) <= self._most:
            return
        while sum(map(len, self._counts.values())) > self._most // 2:
            self._rarest += 1
            for kind, counts in self._counts.items():
                self._counts[kind] = {sequence: count for sequence, count in counts.items() if count > self._rarest}

    def _scored(self, kind: str) -> list[tuple[str, float]]:
        """(term, information) of every sequence that passes."""
        counts = self._counts[kind]
        fewest = max(FEWEST_OCCURRENCES, self._rarest + 1)
        most = max(COMMON_COUNT, COMMON_SHARE * self._sentences)
        information = {}
        for sequence, count in counts.items():
            if fewest <= count <= most and SHORTEST[kind] <= len(_units(sequence, kind)) <= LONGEST[kind]:
                least = self._information(sequence, count, kind)
                if least >= LEAST_INFORMATION:
                    information[sequence] = least
        before: defaultdict[str, float] = defaultdict(float)
        after: defaultdict[str, float] = defaultdict(float)
        for sequence, count in counts.items():
            if count > 1:  # one occurrence adds nothing: log 1 = 0
                head, tail = _without_ends(sequence, kind)
                if head in information:
                    after[head] += count * math.log(count)
                if tail in information:
                    before[tail] += count * math.log(count)
        # Entropy of the neighbours. An edge of the run counts as a neighbour of its own, as do sequences too rare to be kept.
        return [
            (sequence, least)
            for sequence, least in information.items()
            if math.log(counts[sequence]) - max(before[sequence], after[sequence]) / counts[sequence] >= LEAST_FREEDOM
        ]

    def _information(self, sequence: str, count: int, kind: str) -> float:
        """Pointwise mutual information of the two parts, least over all splits; nats."""
        counts, units, joint = self._counts[kind], _units(sequence, kind), _joint(kind)
        parts = (counts.get(joint.join(units[:cut]), 0) * counts.get(joint.join(units[cut:]), 0) for cut in range(1, len(units)))
        return math.log(count * self._units[kind] / max(max(parts, default=1), 1))


class CollocationTagger:
    """Tags learned terms, as ``CollocationCounts.terms`` gives them, in sentences mostly without case: from the left the longest one."""

    def __init__(self, terms: Iterable[str]):
        self.terms = frozenset(terms)
        # By the first two units of a term: units of the longest that begins so. Most places in a text need one look.
        self._reach: dict[str, int] = {}
        for term in self.terms:
            kind = _kind_of(term)
            units = _units(term, kind)
            beginning = _joint(kind).join(units[:2])
            self._reach[beginning] = max(self._reach.get(beginning, 0), len(units))

    def tag(self, text: str) -> list[TaggedSpan]:
        if not self.terms or not mostly_caseless(text):
            return []
        return [span for run in _RUN.finditer(text) for span in self._terms_of(run.group(), run.start(), run.lastgroup or "chars")]

    def state(self) -> dict[str, Any]:
        return {"type": "collocations", "terms": sorted(self.terms)}

    def _terms_of(self, run: str, offset: int, kind: str) -> Iterator[TaggedSpan]:
        units, joint = _units(run, kind), _joint(kind)
        done = 0
        for first, stop in self._found(units, kind):
            start = offset + sum(map(len, units[done:first])) + len(joint) * (first - done)
            offset = start + len(joint.join(units[first:stop]))
            # Korean glues particles to its words: they belong to the sentence, not to the term.
            if kind != "words" or not is_grammar(units[first:stop]):
                yield TaggedSpan(start, offset - (particle_length(units[stop - 1]) if kind == "words" else 0), "phrase")
            done, offset = stop, offset + len(joint)

    def _found(self, units: Sequence[str], kind: str) -> Iterator[tuple[int, int]]:
        """(first unit, unit after the last) of every term, in order, without overlaps."""
        joint = _joint(kind)
        first = 0
        while first < len(units):
            reach = self._reach.get(joint.join(units[first : first + 2]), 0)
            for stop in range(min(len(units), first + reach), first + SHORTEST[kind] - 1, -1):
                if joint.join(units[first:stop]) in self.terms:
                    yield first, stop
                    break
            else:
                stop = first + 1
            first = stop


def _kind_of(term: str) -> str:
    match = _RUN.fullmatch(term)
    return (match and match.lastgroup) or "chars"


def mostly_caseless(text: str) -> bool:
    """Return whether more than half of the letters belong to scripts without case."""
    if text.isascii():
        return False
    caseless = len(_CASELESS.findall(text))
    return caseless > 0 and 2 * caseless > sum(map(str.isalpha, text))


def _joint(kind: str) -> str:
    return " " if kind == "words" else ""


def _units(run: str, kind: str) -> Sequence[str]:
    if kind == "katakana":
        return [run]
    return run.split(" ") if kind == "words" else run


def _count_sequences(counts: dict[str, int], run: Sequence[str], longest: int, joint: str) -> None:
    """Count every sequence of up to ``longest`` units; one of more than three only once its beginning has been met before.

    Most long sequences occur once: this keeps nine tenths of them out, and costs the others their first few occurrences."""
    for first in range(len(run)):
        sequence = ""
        for stop in range(first + 1, min(len(run), first + longest) + 1):
            sequence = f"{sequence}{joint}{run[stop - 1]}" if sequence else run[first]
            seen = counts.get(sequence, 0)
            counts[sequence] = seen + 1
            if not seen and stop - first >= 3:
                break


def _without_ends(sequence: str, kind: str) -> tuple[str, str]:
    """The sequence without its last unit, and without its first."""
    if kind == "words":
        return sequence.rpartition(" ")[0], sequence.partition(" ")[2]
    return (sequence[:-1], sequence[1:]) if kind == "chars" else ("", "")
