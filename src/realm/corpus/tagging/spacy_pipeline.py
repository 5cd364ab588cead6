"""A salient-span tagger from a spaCy pipeline (extra ``spacy``)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from realm.corpus.tagging.spans import TaggedSpan, kind_of
from realm.errors import DataError, MissingExtra

BATCH = 128


class SpacyTagger:
    """Tags the entities (``doc.ents``) of a pipeline.

    Args:
        model: an installed pipeline, such as en_core_web_sm, or a directory that ``nlp.to_disk`` wrote.

    Raises:
        DataError: no such pipeline.
        MissingExtra: spaCy is not installed.
    """

    def __init__(self, model: str):
        try:
            import spacy
        except ImportError:
            raise MissingExtra("a spaCy tagger", "spacy") from None
        self.model = str(Path(model).resolve()) if Path(model).is_dir() else model
        try:
            self._pipeline = spacy.load(self.model)
        except (OSError, ValueError) as error:
            first_line = str(error).strip().splitlines()[0]
            cure = f"Install it (python -m spacy download {model}), or give the directory of a pipeline"
            raise DataError(f"no spaCy pipeline '{model}': {first_line}", cure=cure) from error

    def tag(self, text: str) -> list[TaggedSpan]:
        """Spans in order, without overlaps: dates and numbers if the labels name them, else names."""
        return _spans(self._pipeline(text).ents)

    def tag_many(self, texts: Sequence[str]) -> list[list[TaggedSpan]]:
        """The spans of each text."""
        return [_spans(document.ents) for document in self._pipeline.pipe(texts, batch_size=BATCH)]

    def state(self) -> dict[str, Any]:
        return {"type": "spacy", "model": self.model}


def _spans(entities: Iterable[Any]) -> list[TaggedSpan]:
    return [TaggedSpan(entity.start_char, entity.end_char, kind_of(entity.label_)) for entity in entities]
