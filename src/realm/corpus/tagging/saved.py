"""A tagger stored with a corpus, so that documents added later are tagged as the others were."""

import json
from pathlib import Path
from typing import Any

from realm.corpus.tagging.collocations import CollocationTagger
from realm.corpus.tagging.dates import DateNumberTagger
from realm.corpus.tagging.gazetteer import GazetteerTagger
from realm.corpus.tagging.spans import CombinedTagger, SpanTagger
from realm.corpus.tagging.truecase import TruecaseTagger
from realm.errors import CorpusError
from realm.storage import files

MODEL_TAGGERS = ("spacy", "hf")
_CURE = "Build the corpus again, with a tagger of this version"


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
    if kind == "perceptron":
        raise ValueError("it is a trained perceptron, which this version no longer has")
    raise ValueError(f"unknown tagger type {kind!r}")


def model_tagger(kind: str, model: str) -> SpanTagger:
    """A tagger of a model that lies outside the corpus; ``kind`` is one of ``MODEL_TAGGERS``. Its libraries are imported only here."""
    if kind == "hf":
        from realm.corpus.tagging.classifier import ClassifierTagger

        return ClassifierTagger(model)
    from realm.corpus.tagging.spacy_pipeline import SpacyTagger

    return SpacyTagger(model)


def save_tagger(tagger: SpanTagger, path: Path) -> None:
    files.write_atomic(path, json.dumps(tagger.state(), ensure_ascii=False, separators=(",", ":")) + "\n")


def load_tagger(path: Path) -> SpanTagger:
    """Read what ``save_tagger`` wrote. Raises CorpusError: the file is missing or damaged, or another version wrote it."""
    try:
        return tagger_from_state(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"cannot read the corpus's tagger: {error}", path=path, cure=_CURE) from error
