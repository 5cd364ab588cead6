"""Layout of a run directory."""

from dataclasses import dataclass
from pathlib import Path

from realm.storage.decoding import json_value


class _Part:
    """The path of a part of a run directory, by its name."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, paths: "RunPaths", owner: type) -> Path:
        return paths.root / self._name


@dataclass(frozen=True)
class RunPaths:
    root: Path

    config = _Part("config.toml")
    corpus = _Part("corpus")
    sentences = _Part("sentences")
    """The corpus of sentences to mask, where they are not the knowledge corpus's own."""
    metrics = _Part("metrics.jsonl")
    report = _Part("report.html")
    index = _Part("index")
    """Generations of the index, with ``CURRENT``."""
    params = _Part("params")
    """Published parameters, one directory a generation."""
    results = _Part("results")
    """One JSON file for each finished evaluation, so that a resumed run does not repeat it."""
    answers = _Part("answers")
    """Places of the answers of question files in the corpus: found once, kept."""
    wrapped = _Part("documents.json")
    """In a cached folder, which wraps a body without training: its documents, the body, and when it was asked last."""

    def checkpoints(self, stage: str) -> Path:
        return self.root / "checkpoints" / stage

    def stage(self, stage: str) -> Path:
        """The published result of a finished stage: models, tokenizer, stage.json."""
        return self.root / "stages" / stage


def is_realm_model(directory: Path) -> bool:
    """Return whether a directory holds a whole REALM, of this package or of Hugging Face's classes, and not a body alone."""
    try:
        values = json_value((directory / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and (values.get("library") == "realm" or values.get("model_type") == "realm")
