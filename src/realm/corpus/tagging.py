"""What a salient-span tagger is, and how overlapping proposals are settled."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol


class TaggedSpan(NamedTuple):
    """A salient span of one sentence: ``start`` and ``end`` in code points of that sentence, ``kind`` is name, date, number or phrase."""

    start: int
    end: int
    kind: str


class SpanTagger(Protocol):
    """Finds the spans worth masking in one sentence."""

    def tag(self, text: str) -> list[TaggedSpan]:
        """Spans of the sentence ``text``, in order, without overlaps."""
        ...

    def state(self) -> dict[str, Any]:
        """What ``salient.load_tagger`` needs to rebuild this tagger: JSON values, with a "type"."""
        ...


def without_overlaps(proposals: Iterable[TaggedSpan]) -> list[TaggedSpan]:
    """Of overlapping spans the longest stays; of equally long ones the first proposed. In order of position."""
    proposed = list(proposals)
    if not _overlap(ordered := sorted(proposed)):
        return ordered
    kept: list[TaggedSpan] = []
    for span in sorted(proposed, key=lambda span: span.start - span.end):  # stable: ties keep the order of proposal
        if all(span.end <= other.start or other.end <= span.start for other in kept):
            kept.append(span)
    return sorted(kept)


def _overlap(ordered: list[TaggedSpan]) -> bool:
    """Whether two of the spans, which are in order, share a character."""
    reached = 0
    for start, end, _ in ordered:
        if start < reached:
            return True
        reached = end
    return False
