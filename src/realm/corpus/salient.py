"""Salient spans: which words of a sentence are worth masking. Taggers to choose from, to combine, and to save with a corpus.

The default needs no weights and no network: names by the corpus's own letter case, dates and numbers by patterns, and the corpus's own
terms where a script has no case.
"""

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from realm import paths
from realm.corpus.collocations import CollocationCounts, CollocationTagger
from realm.corpus.dates import DateNumberTagger
from realm.corpus.gazetteer import GazetteerTagger
from realm.corpus.tagging import SpanTagger, TaggedSpan, tag_all, without_overlaps
from realm.corpus.truecase import CasingCounts, TruecaseTagger
from realm.errors import CorpusError

__all__ = [
    "CasingCounts", "CollocationCounts", "CollocationTagger", "CombinedTagger", "DateNumberTagger", "GazetteerTagger", "SpanTagger",
    "TaggedSpan", "TruecaseTagger", "load_tagger", "save_tagger", "tag_all", "tagger_from_state",
]  # fmt: skip


MODEL_TAGGERS = ("spacy", "hf", "perceptron")


class CombinedTagger:
    """Several taggers at once: of overlapping spans the longest wins, then the one of the earlier tagger."""

    def __init__(self, taggers: Sequence[SpanTagger]):
        self.taggers = tuple(taggers)

    def tag(self, text: str) -> list[TaggedSpan]:
        """Spans of the sentence ``text``, in order, without overlaps."""
        return _settled([spans for tagger in self.taggers if (spans := tagger.tag(text))])

    def tag_many(self, texts: Sequence[str]) -> list[list[TaggedSpan]]:
        """The spans of each text; every part sees all of them at once."""
        if not self.taggers:
            return [[] for _ in texts]
        proposals = zip(*(tag_all(tagger, texts) for tagger in self.taggers), strict=True)
        return [_settled([spans for spans in lists if spans]) for lists in proposals]

    def state(self) -> dict[str, Any]:
        """The states of the parts."""
        return {"type": "combined", "taggers": [tagger.state() for tagger in self.taggers]}


def _settled(lists: list[list[TaggedSpan]]) -> list[TaggedSpan]:
    """The spans of several taggers without overlaps; one tagger's never overlap."""
    if len(lists) < 2:
        return lists[0] if lists else []
    return without_overlaps(chain.from_iterable(lists))


def tagger_from_state(state: dict[str, Any]) -> SpanTagger:
    """Rebuild a tagger from what its ``state()`` gave.

    Raises:
        ValueError: a type that this version does not know.
        DataError: the model of a tagger has gone.
        MissingExtra: the tagger's extra is not installed.
    """
    kind = state.get("type")
    if kind == "combined":
        return CombinedTagger([tagger_from_state(part) for part in state["taggers"]])
    if kind == "dates":
        return DateNumberTagger()
    if kind == "gazetteer":
        return GazetteerTagger(state["phrases"])
    if kind == "collocations":
        return CollocationTagger(state["terms"])
    if kind in MODEL_TAGGERS:
        return model_tagger(kind, state["model"])
    if kind == "truecase":
        return TruecaseTagger({word: (small, capital) for word, (small, capital) in state["table"].items()}, state["linkers"])
    raise ValueError(f"unknown tagger type {kind!r}")


def model_tagger(kind: str, model: str) -> SpanTagger:
    """A tagger of a model that lies outside the corpus; ``kind`` is one of ``MODEL_TAGGERS``. Its libraries are imported only here."""
    if kind == "hf":
        from realm.corpus.classifier import ClassifierTagger

        return ClassifierTagger(model)
    if kind == "spacy":
        from realm.corpus.spacy_tagger import SpacyTagger

        return SpacyTagger(model)
    from realm.corpus.perceptron import PerceptronTagger

    return PerceptronTagger.load(model)


def save_tagger(tagger: SpanTagger, path: Path) -> None:
    """Write the tagger's state as JSON."""
    paths.write_atomic(path, json.dumps(tagger.state(), ensure_ascii=False, separators=(",", ":")) + "\n")


def load_tagger(path: Path) -> SpanTagger:
    """Read what ``save_tagger`` wrote.

    Raises:
        CorpusError: the file is missing or damaged, or another version wrote it.
    """
    try:
        return tagger_from_state(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"cannot read the corpus's tagger: {error}", path=path, cure="Build the corpus again") from error
