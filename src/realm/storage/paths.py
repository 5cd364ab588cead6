"""Layout of a run directory."""

from dataclasses import dataclass
from pathlib import Path

from realm.storage.decoding import json_value

HUB_PREFIX = "hf:"
"""Starts the name of a dataset on the Hugging Face hub, where else a path of documents stands."""


@dataclass(frozen=True)
class RunPaths:
    """The layout of one run directory."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def corpus(self) -> Path:
        return self.root / "corpus"

    @property
    def sentences(self) -> Path:
        """The corpus of sentences to mask, where they are not the knowledge corpus's own."""
        return self.root / "sentences"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def examples(self) -> Path:
        """A few sentences with what pre-training retrieved for them at each refresh."""
        return self.root / "examples.jsonl"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def profile(self) -> Path:
        """Seconds of each stage by kind of work."""
        return self.root / "profile.json"

    @property
    def index(self) -> Path:
        """Generations of the index, with ``CURRENT``."""
        return self.root / "index"

    @property
    def params(self) -> Path:
        """Published parameters, one directory a generation."""
        return self.root / "params"

    @property
    def results(self) -> Path:
        """One JSON file for each finished evaluation, so that a resumed run does not repeat it."""
        return self.root / "results"

    @property
    def answers(self) -> Path:
        """Places of the answers of question files in the corpus: found once, kept."""
        return self.root / "answers"

    @property
    def wrapped(self) -> Path:
        """In a cached folder, which wraps a body without training: its documents, the body, and when it was asked last."""
        return self.root / "documents.json"

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
