"""Link targets as salient spans: what a document links, and titles of other documents in those that link nothing."""

import base64
from collections.abc import Iterable
from typing import Any

import numpy as np

from realm.corpus.links import Links, title_key
from realm.corpus.mentions import mentions
from realm.corpus.tagging.gazetteer import GazetteerTagger
from realm.corpus.tagging.spans import SpanTagger, TaggedSpan
from realm.text.words import words


class LinkTagger:
    """Tags titles of the corpus's documents where mentions.py lets a name count; the longest first.

    Args:
        titles: uint64 [t], their keys.
    """

    def __init__(self, titles: np.ndarray):
        self._titles = np.unique(titles)

    @classmethod
    def of_titles(cls, titles: Iterable[str]) -> "LinkTagger":
        """For documents with these titles; empty ones do not count."""
        return cls(np.array([title_key(title) for title in titles if title], np.uint64))

    def for_document(self, links: Links) -> SpanTagger:
        """What tags a document with these links: wherever the words of one stand, they are a span; without links the titles are."""
        phrases = [phrase for phrase, _ in links if words(phrase)]  # "the" and signs carry links, too
        return GazetteerTagger(phrases) if phrases else self

    def tag(self, text: str) -> list[TaggedSpan]:
        places = [place for place in mentions(text, [(0, len(text))]) if place]
        keys = np.array([title_key(mention.name) for place in places for mention in place], np.uint64)
        known = iter(np.isin(keys, self._titles).tolist())
        spans: list[TaggedSpan] = []
        for place in places:
            found = [mention for mention, is_title in zip(place, known) if is_title]  # noqa: B905  # known goes on to the next place
            if found and (not spans or found[0].start >= spans[-1].end):
                spans.append(TaggedSpan(found[0].start, found[0].end, "name"))
        return spans

    def state(self) -> dict[str, Any]:
        return {"type": "links", "titles": base64.b64encode(self._titles.astype("<u8").tobytes()).decode("ascii")}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "LinkTagger":
        """What ``state`` gave. Raises ValueError: the titles are damaged."""
        return cls(np.frombuffer(base64.b64decode(state["titles"], validate=True), "<u8"))
