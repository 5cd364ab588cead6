"""Layout of a run directory: the places of its parts, the notes of its published stages, ``stages/NAME/stage.json``, and its format."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realm.errors import RunError, made_earlier
from realm.storage.files import file_sum, json_value, read_json
from realm.storage.manifests import SUMS, Errors, check_sealed, is_sealed, unsealed, write_sealed


class _Part:
    """The path of a part of a run directory, by its name."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, paths: "RunPaths", owner: type) -> Path:
        return paths.root / self._name


@dataclass(frozen=True)
class RunPaths:
    """Places of the files of a run below ``root``; nothing is opened or made."""

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


logger = logging.getLogger(__name__)
RUN_FORMAT = 2
STAGE_FILE = "stage.json"
CONFIG_SUM = "config_xxh3"
FILES = "files"
LISTED = ("metrics.jsonl", "seconds.json", "results/*.json")
"""Files that say how a run went; ``run.json`` lists those that were there, so that one that is lost is noticed."""
CLEAR = "Run realm cache clear; the next question rebuilds everything"
AGAIN = "Restore the file; realm verify RUN lists all damage, realm repair RUN shows what can be rebuilt"

STAGE_SECTIONS = {
    "ict": ("ict",),
    "warm": ("warm",),
    "pretrain": ("pretrain",),
    "finetune": ("finetune",),
    **dict.fromkeys(("bm25", "hardem", "tfidf", "orqa", "published"), ("finetune",)),
    "closed_book": ("warm", "finetune"),
}
"""Sections of the recipe that each stage is made from."""

DAMAGED = Errors.of(RunError, AGAIN, "damaged: ")
"""Errors for files of a published stage, or of parameters."""


def stage_facts(paths: RunPaths, stage: str) -> dict[str, Any]:
    """The note of a published stage. Raises RunError: the stage is not published, or by an earlier version, or what it wrote has changed
    since."""
    path = paths.stage(stage) / STAGE_FILE
    check_sealed(path.parent, DAMAGED, STAGE_FILE)
    facts = _read(path)
    if facts is None:
        raise RunError(f"the stage '{stage}' has not run", path=paths.root, cure=f"Run it: realm run {paths.root} --stages {stage}")
    _check_format(facts, path)
    if not is_sealed(path.parent):
        raise DAMAGED.damaged("missing", path=path.parent / SUMS)
    return facts


def has_stage(paths: RunPaths, stage: str) -> bool:
    return (paths.stage(stage) / STAGE_FILE).exists()


def require_run(paths: RunPaths) -> None:
    """Refuse a directory that holds no run. Raises RunError: no run is there, or one of an earlier version; config.toml of a cached
    folder, which is never edited, has changed."""
    if not paths.config.is_file():
        cure = CLEAR if paths.wrapped.exists() else "Restore it, or make a run with: realm run RECIPE.toml --out RUN"
        raise RunError("no run here: config.toml is missing", path=paths.root, cure=cure)
    facts = check_run_format(paths)
    if facts and facts[CONFIG_SUM] != file_sum(paths.config):
        if paths.wrapped.exists():
            raise RunError("changed since it was written (checksum differs)", path=paths.config, cure=CLEAR)
        logger.warning("%s: differs from what realm run wrote. If you did not edit it, it is damaged: restore it", paths.config)


def holds_run(directory: Path) -> bool:
    """Return whether a directory holds what only a run does, its config.toml aside."""
    known = read_json(directory / "run.json")
    parts = ("stages/*/stage.json", "index/CURRENT")
    return (isinstance(known, dict) and CONFIG_SUM in known) or any(any(directory.glob(part)) for part in parts)


def check_run_format(paths: RunPaths) -> dict[str, Any]:
    """Refuse a run directory of an earlier version; one that no version has written to passes. Returns what ``run.json`` says; nothing
    where it is not there. Raises RunError: an earlier version wrote ``run.json``, or it is damaged or cannot be read."""
    path = _run_file(paths)
    facts = _read(path)
    if facts is None:
        return {}
    _check_format(facts, path)
    return unsealed(facts, DAMAGED, path)


def write_run_format(paths: RunPaths, version: str) -> None:
    """Say in ``run.json`` which format the run has and which version wrote it, with the checksum of ``config.toml`` as it is now."""
    facts = {"format": RUN_FORMAT, "version": version, CONFIG_SUM: file_sum(paths.config)}
    write_sealed(_run_file(paths), check_run_format(paths) | facts)


def list_files(paths: RunPaths) -> None:
    """Add the files that say how the run went to the list in ``run.json``."""
    facts = check_run_format(paths)
    here = (path.relative_to(paths.root).as_posix() for pattern in LISTED for path in paths.root.glob(pattern))
    if facts and facts.get(FILES) != (found := sorted({*facts.get(FILES, ()), *here})):
        write_sealed(_run_file(paths), facts | {FILES: found})


def lost_files(paths: RunPaths) -> list[Path]:
    """Files missing of those that ``run.json`` lists; none where it cannot be read."""
    try:
        return [path for name in check_run_format(paths).get(FILES, ()) if not (path := paths.root / name).exists()]
    except RunError:
        return []


def _run_file(paths: RunPaths) -> Path:
    return paths.root / "run.json"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        facts: dict[str, Any] = json_value(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, OSError) as error:
        raise RunError(f"cannot be read: {error}", path=path, cure=f"{AGAIN}.") from error
    return facts


def _check_format(facts: Any, path: Path) -> None:
    if not isinstance(facts, dict) or facts.get("format") != RUN_FORMAT:
        raise made_earlier(RunError, path)
