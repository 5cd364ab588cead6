"""Salient-span taggers: their protocol, overlapping proposals, several taggers as one, listed phrases."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import regex

from realm.errors import DataError
from realm.text.folding import Folded, fold
from realm.text.lines import canonical_line


class TaggedSpan(NamedTuple):
    """A salient span of one sentence: ``start`` and ``end`` in code points of that sentence, ``kind`` is name, date, number or phrase."""

    start: int
    end: int
    kind: str


class SpanTagger(Protocol):
    """Finds the spans worth masking in one sentence."""

    def tag(self, text: str) -> list[TaggedSpan]:
        """Spans of the sentence ``text``, in order, without overlaps."""

    def state(self) -> dict[str, Any]:
        """State from which ``saved.load_tagger`` rebuilds this tagger: JSON values, with a "type"."""


def tag_all(tagger: SpanTagger, texts: Sequence[str]) -> list[list[TaggedSpan]]:
    """The spans of each text as it is written, found in its one spelling by ``tag_many`` of a tagger that is faster with many."""
    many: Callable[[Sequence[str]], list[list[TaggedSpan]]] | None = getattr(tagger, "tag_many", None)
    written = [fold(text) for text in texts]
    spelled = [one.text for one in written]
    found = [tagger.tag(text) for text in spelled] if many is None else many(spelled)
    return [spans if one.ranges is None else _as_written(one, spans) for one, spans in zip(written, found, strict=True)]


def _as_written(text: Folded, spans: Sequence[TaggedSpan]) -> list[TaggedSpan]:
    places = text.places([(span.start, span.end) for span in spans])
    return [TaggedSpan(start, end, span.kind) for (start, end), span in zip(places, spans, strict=True)]


_DATES = frozenset(["DATE", "TIME"])
_NUMBERS = frozenset(["CARDINAL", "ORDINAL", "QUANTITY", "PERCENT", "MONEY", "NUM", "NUMBER"])


def kind_of(label: str) -> str:
    """The kind of span that a tag set's label, such as "PER" or "DATE", stands for."""
    if label.upper() in _DATES:
        return "date"
    return "number" if label.upper() in _NUMBERS else "name"


def without_overlaps(proposals: Iterable[TaggedSpan]) -> list[TaggedSpan]:
    """Of overlapping spans the longest stays; of equally long ones the first proposed. In order of position."""
    proposed = list(proposals)
    ordered = sorted(proposed)
    if all(first.end <= second.start for first, second in pairwise(ordered)):
        return ordered
    kept: list[TaggedSpan] = []
    for span in sorted(proposed, key=lambda span: span.start - span.end):  # stable: ties keep the order of proposal
        if all(span.end <= other.start or other.end <= span.start for other in kept):
            kept.append(span)
    return sorted(kept)


class CombinedTagger:
    """Several taggers at once: of overlapping spans the longest wins, then the one of the earlier tagger."""

    def __init__(self, taggers: Sequence[SpanTagger]):
        self.taggers = tuple(taggers)

    def tag(self, text: str) -> list[TaggedSpan]:
        return _settled([spans for tagger in self.taggers if (spans := tagger.tag(text))])

    def tag_many(self, texts: Sequence[str]) -> list[list[TaggedSpan]]:
        """The spans of each text; every part sees all of them at once."""
        if not self.taggers:
            return [[] for _ in texts]
        proposals = zip(*(tag_all(tagger, texts) for tagger in self.taggers), strict=True)
        return [_settled([spans for spans in lists if spans]) for lists in proposals]

    def state(self) -> dict[str, Any]:
        return {"type": "combined", "taggers": [tagger.state() for tagger in self.taggers]}


def _settled(lists: list[list[TaggedSpan]]) -> list[TaggedSpan]:
    """The spans of several taggers without overlaps; one tagger's never overlap."""
    if len(lists) < 2:
        return lists[0] if lists else []
    return without_overlaps(chain.from_iterable(lists))


_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+|[^\s\p{L}\p{M}\p{N}]")


class GazetteerTagger:
    """Tags listed phrases: longest match, at word borders. A phrase written in lower case matches in any case ("pound sterling", "Pound
    sterling"), any other matches as written; white space inside is free."""

    def __init__(self, phrases: Iterable[str]):
        self.phrases = sorted({line for phrase in phrases if (line := canonical_line(phrase))})
        # By first word: the word sequences that start with it, longest first. Lower-case and cased phrases apart.
        self._folded: dict[str, list[tuple[str, ...]]] = {}
        self._cased: dict[str, list[tuple[str, ...]]] = {}
        for phrase in self.phrases:
            words = tuple(_WORD.findall(phrase))
            table = self._folded if phrase == phrase.lower() else self._cased
            table.setdefault(words[0], []).append(words)
        for table in (self._folded, self._cased):
            for entries in table.values():
                entries.sort(key=len, reverse=True)

    @classmethod
    def from_file(cls, path: Path) -> "GazetteerTagger":
        """Read one phrase a line, UTF-8, but empty lines and those behind #. Raises DataError: no file, not UTF-8, or nothing listed."""
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read the gazetteer: {error}", path=path, cure="Give a UTF-8 file with one phrase a line") from error
        tagger = cls(line for line in lines if not line.startswith("#"))
        if not tagger.phrases:
            raise DataError("the gazetteer lists no phrase", path=path, cure="Write one phrase a line")
        return tagger

    def tag(self, text: str) -> list[TaggedSpan]:
        matches = list(_WORD.finditer(text))
        words = [match.group() for match in matches]
        folded = [word.lower() for word in words]
        spans: list[TaggedSpan] = []
        position = 0
        while position < len(words):
            length = max(_longest(self._cased, words, position), _longest(self._folded, folded, position))
            if length:
                spans.append(TaggedSpan(matches[position].start(), matches[position + length - 1].end(), "phrase"))
            position += length or 1
        return spans

    def state(self) -> dict[str, Any]:
        return {"type": "gazetteer", "phrases": self.phrases}


def _longest(table: dict[str, list[tuple[str, ...]]], words: list[str], position: int) -> int:
    """Number of words of the longest entry of ``table`` that begins at ``position``; 0 if none does."""
    for entry in table.get(words[position], ()):
        if tuple(words[position : position + len(entry)]) == entry:
            return len(entry)
    return 0
