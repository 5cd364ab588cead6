"""Several taggers as one."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from realm.corpus.tagging.spans import SpanTagger, TaggedSpan, tag_all, without_overlaps


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
