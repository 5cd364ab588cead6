"""Taggers of a corpus, from the words a user writes: "default", "dates+hf:./models/ner" ... docs/salient-spans.md says what each finds.

Several are joined by "+"; of overlapping spans the longest wins, then the one named first."""

import json
from pathlib import Path
from typing import Any

from realm.documents.spans.collocations import CollocationCounts, CollocationTagger
from realm.documents.spans.dates import DateNumberTagger
from realm.documents.spans.spans import CombinedTagger, GazetteerTagger, SpanTagger
from realm.documents.spans.truecase import CasingCounts, TruecaseTagger
from realm.documents.store import manifest as manifests
from realm.documents.store.manifest import CorpusManifest
from realm.errors import ConfigError, CorpusError
from realm.storage import files
from realm.storage.files import json_value
from realm.storage.manifests import Errors, sealed, unsealed

DEFAULT = "default"
_PLAIN = ("truecase", "dates", "collocations")
_SETS = {DEFAULT: ("dates", "collocations", "truecase"), "none": ()}
_WITH_VALUE = ("gazetteer", "hf")
_CURE = f"Join with + what is wanted of: {DEFAULT}, none, {', '.join(_PLAIN)}, gazetteer:FILE, hf:MODEL"


class TaggerPlan:
    """The taggers that ``spec`` names. What needs no corpus is made at once, so that a wrong name stops before any work.

    ``gazetteer`` is a file of phrases to tag besides, one a line; before all others. Raises ConfigError: the spec cannot be read;
    DataError: a file or a model is missing or unusable; MissingExtra: the extra of a tagger is not installed."""

    def __init__(self, spec: str = DEFAULT, gazetteer: Path | None = None):
        parts = [*([] if gazetteer is None else [f"gazetteer:{gazetteer}"]), *_parts(spec)]
        self._made: list[SpanTagger | str] = [_made(part) for part in parts]

    @property
    def learns_casing(self) -> bool:
        return "truecase" in self._made

    @property
    def learns_collocations(self) -> bool:
        return "collocations" in self._made

    def tagger(self, casing: CasingCounts, collocations: CollocationCounts) -> SpanTagger:
        """The tagger, with what was learned from the corpus; counts that are not needed may be empty."""
        made: list[SpanTagger] = []
        for part in self._made:
            if part == "truecase":
                made.append(TruecaseTagger(casing.table()))
            elif part == "collocations":
                made.append(CollocationTagger(collocations.terms()))
            elif not isinstance(part, str):
                made.append(part)
        return CombinedTagger(made)


def _parts(spec: str) -> list[str]:
    parts: list[str] = []
    for part in spec.split("+"):
        part = part.strip()
        parts += _SETS.get(part, (part,))
    return list(dict.fromkeys(parts))


def _made(part: str) -> SpanTagger | str:
    """A tagger, or the name of one that learns from the corpus first."""
    name, colon, value = part.partition(":")
    if name == "dates" and not colon:
        return DateNumberTagger()
    if name in _PLAIN and not colon:
        return name
    if name not in _WITH_VALUE or not value:
        raise ConfigError(f"no tagger '{part}'", cure=_CURE)
    return GazetteerTagger.from_file(Path(value)) if name == "gazetteer" else model_tagger(value)


_DAMAGED = Errors.of(CorpusError, "Build the corpus again; the corpus can still be searched", "damaged tagger: ")
CORPUS = "corpus_id"
"""Under which a saved tagger says whose it is."""
_AGAIN = "Build the corpus again"


def tagger_from_state(state: dict[str, Any]) -> SpanTagger:
    """Rebuild a tagger from its ``state()``. Raises ValueError: a type unknown to this version; DataError: a tagger's model has gone."""
    kind = state.get("type")
    if kind == "combined":
        return CombinedTagger([tagger_from_state(part) for part in state["taggers"]])
    if kind == "dates":
        return DateNumberTagger()
    if kind == "gazetteer":
        return GazetteerTagger(state["phrases"])
    if kind == "collocations":
        return CollocationTagger(state["terms"])
    if kind == "hf":
        return model_tagger(state["model"])
    if kind == "truecase":
        return TruecaseTagger({word: (small, capital) for word, (small, capital) in state["table"].items()}, state["linkers"])
    raise ValueError(f"unknown tagger type {kind!r}")


def model_tagger(model: str) -> SpanTagger:
    """A token classifier's tagger. Its libraries are imported only here."""
    from realm.documents.spans.models import ClassifierTagger

    return ClassifierTagger(model)


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Publish what a tagger is rebuilt from, with a checksum."""
    files.write_atomic(path, json.dumps(sealed(state), ensure_ascii=False, separators=(",", ":")) + "\n")


def read_state(path: Path) -> dict[str, Any]:
    """Values of ``write_state``. Raises OSError, ValueError: no such file, or no JSON; CorpusError: changed since it was published."""
    return unsealed(json_value(path.read_text(encoding="utf-8")), _DAMAGED, path)


def load_tagger(path: Path) -> SpanTagger:
    """Read the tagger whose state ``write_state`` wrote. Raises CorpusError: the file is missing or damaged."""
    try:
        return tagger_from_state(read_state(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"cannot read the corpus's tagger: {error}", path=path, cure=_AGAIN) from error


def give_tagger(corpus: Path, corpus_id: str) -> None:
    path = corpus / manifests.TAGGER_FILE
    write_state(path, {**read_state(path), CORPUS: corpus_id})


def corpus_tagger(corpus: Path, manifest: CorpusManifest) -> SpanTagger:
    """The tagger of a corpus. Raises CorpusError: missing or damaged, or that of another corpus."""
    path = corpus / manifests.TAGGER_FILE
    tagger = load_tagger(path)
    if read_state(path).get(CORPUS) != manifest.corpus_id:
        raise CorpusError("it is the tagger of another corpus", path=path, cure=_AGAIN)
    return tagger
