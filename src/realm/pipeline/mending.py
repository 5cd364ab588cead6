"""``realm verify`` and ``realm repair``: read all of a run or a corpus, compare it with its checksums, and rebuild what can be rebuilt."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from realm.corpus.mending import corpus_damage
from realm.corpus.store.manifest import CURRENT_FILE, TOKENIZER_DIRECTORY
from realm.decoding import json_value
from realm.errors import RealmError, RunError
from realm.knn.datastore import FACTS as DATASTORE, Datastore
from realm.nn.model import RealmModel
from realm.paths import RunPaths
from realm.pipeline.cached import MARK
from realm.pipeline.needed_index import index_parts
from realm.progress import Progress
from realm.refresh.mending import index_damage
from realm.stages import DAMAGED, check_run_format, stage_facts, write_run_format
from realm.storage.damage import Damage
from realm.storage.files import write_atomic
from realm.storage.generations import QUARANTINE_SUFFIX
from realm.storage.manifests import CHECKSUM, unsealed
from realm.storage.sealed import SUMS, is_sealed, sealed_problems
from realm.storage.sums import file_sum
from realm.train.checkpoint import checkpoint_problem

ROUNDS = 4
"""How often what was mended may show what could not be looked at before: a manifest, then what it names, then the index of that."""


def verify(place: Path, progress: Progress) -> list[Damage]:
    """Read everything in a run, a corpus or a kNN datastore. Nothing is changed.

    Raises:
        RunError: none is there.
    """
    if _is_corpus(place):
        return corpus_damage(place)
    if (place / DATASTORE).exists():
        return _datastore_damage(place)
    if not place.is_dir() or not any((place / name).exists() for name in ("config.toml", "run.json", "stages", "corpus")):
        raise RunError("no run, corpus or datastore is here", path=place, cure="Name the directory of one.")
    return list(_run_damage(RunPaths(place), progress))


def repair(place: Path, progress: Progress, say: Callable[[str], None]) -> tuple[list[Damage], list[Damage]]:
    """Repair what can be repaired.

    Args:
        say: gets a line for each.

    Returns:
        What was mended, and what is left.

    Raises:
        RealmError: nothing of the kind is there; another process is changing it.
    """
    mended: list[Damage] = []
    for _ in range(ROUNDS):
        found = verify(place, progress)
        now = [damage for damage in found if damage.mend is not None]
        if not now:
            break
        for damage in now:
            say(f"{damage.path}: {damage.problem}; now: {damage.cure}")
            assert damage.mend is not None
            damage.mend()
        mended += now
    return mended, verify(place, progress) if mended else found


def put_aside(place: Path) -> list[str]:
    """Names of index generations that were moved aside as damaged and are no longer needed."""
    return sorted(path.name for path in (place / "index").glob(f"*{QUARANTINE_SUFFIX}"))


def _datastore_damage(place: Path) -> list[Damage]:
    """A kNN datastore is read whole, and compared, whenever it is opened."""
    try:
        Datastore.open(place)
    except RealmError as error:
        return [Damage(error.path or place, error.problem, error.cure or "")]
    return []


def _is_corpus(place: Path) -> bool:
    return (place / CURRENT_FILE).exists() or any(place.glob("manifest-*.json"))


def _run_damage(paths: RunPaths, progress: Progress) -> Iterator[Damage]:
    yield from _format(paths)
    for corpus in (paths.corpus, paths.sentences):
        if corpus.is_dir():
            yield from corpus_damage(corpus, sorted((paths.root / "stages").glob("*")))
    for stage in sorted((paths.root / "stages").glob("*")):
        if stage.is_dir():
            yield from _stage(paths, stage)
    yield from _index(paths, progress)
    for directory in sorted((paths.root / "checkpoints").glob("*/step-*")):
        if directory.is_dir() and (problem := checkpoint_problem(directory)) is not None:
            yield Damage(directory, problem, "remove it: an older one, or none, is used", partial(shutil.rmtree, directory))
    yield from _notes(paths)


def _format(paths: RunPaths) -> Iterator[Damage]:
    from realm import __version__

    try:
        check_run_format(paths)
    except RunError as error:
        damaged = error.problem.startswith(("cannot be read", "damaged"))
        mend = partial(write_run_format, paths, __version__) if damaged and paths.config.is_file() else None
        yield Damage(error.path or paths.root, error.problem, "write it again" if damaged else error.cure or "", mend)
    try:
        _recipe(paths)
    except RealmError as error:
        yield Damage(error.path or paths.config, error.problem, "Restore config.toml: its missing values are stored nowhere else")


def _recipe(paths: RunPaths) -> Any:
    from realm.config import load_recipe

    return load_recipe(paths.config)


def _stage(paths: RunPaths, stage: Path) -> Iterator[Damage]:
    again = f"These weights are stored nowhere else: restore them, or remove {stage} and the later stages, and run the recipe again"
    if (paths.root / MARK).exists():
        again = "Run realm cache clear; the next question rebuilds everything"
    try:
        if not is_sealed(stage):  # of an earlier version: whether it loads is all that can be told
            stage_facts(paths, stage.name)
            RealmModel.from_pretrained(stage)
            return
        problems = sealed_problems(stage, DAMAGED)
    except RealmError as error:
        yield Damage(error.path or stage, error.problem, again)
        return
    for path, problem in problems:
        copy = paths.corpus / TOKENIZER_DIRECTORY / path.name
        if _is_listed(stage, path, copy):
            yield Damage(path, problem, f"copy {copy}", partial(_copy_file, copy, path))
        else:
            yield Damage(path, problem, again if path.name != "README.md" else "No command reads it: restore it, or leave it")


def _is_listed(stage: Path, path: Path, copy: Path) -> bool:
    """Whether a file has the bytes that a stage's list says of one of its own."""
    listed = json_value((stage / SUMS).read_text("utf-8"))["files"].get(path.relative_to(stage).as_posix(), {})
    return copy.is_file() and file_sum(copy) == listed.get("xxh3")


def _copy_file(source: Path, target: Path) -> None:
    write_atomic(target, source.read_bytes())


def _index(paths: RunPaths, progress: Progress) -> Iterator[Damage]:
    if not paths.index.is_dir():
        return
    try:
        parts = index_parts(paths, progress)
    except RealmError:  # said above; the index is looked at when that is mended
        yield Damage(paths.index, "not read: it needs the recipe, the corpus and the last stage", "Mend these first")
        return
    if parts is not None:
        yield from index_damage(parts)


def _notes(paths: RunPaths) -> Iterator[Damage]:
    """Small files that say something of the run, and its logs."""
    for path in sorted((*paths.root.glob("*.json"), *paths.results.glob("*.json"), *paths.answers.glob("*.json"))):
        if path.name != "run.json" and (problem := _note_problem(path)) is not None:
            derived = path.parent in (paths.results, paths.answers) or path.name in ("seconds.json", paths.profile.name)
            cure = "remove it: realm run rebuilds it" if derived else "Restore it; realm run rewrites it if needed"
            yield Damage(path, problem, cure, path.unlink if derived else None)
    for path in sorted(paths.root.glob("*.jsonl")):
        lines = path.read_bytes().splitlines()[:-1]  # the last one may be on its way
        if (problem := _json_problem(lines)) is not None:
            yield Damage(path, problem, "Training does not use it; the report leaves out damaged parts")


def _note_problem(path: Path) -> str | None:
    """What is wrong with a small file of JSON, which may have a checksum over itself."""
    if (problem := _json_problem([path.read_bytes()])) is not None:
        return problem
    value = json_value(path.read_bytes())
    try:
        unsealed(value, DAMAGED, path) if isinstance(value, dict) and CHECKSUM in value else None
    except RunError as error:
        return error.problem
    return None


def _json_problem(texts: list[bytes]) -> str | None:
    try:
        for text in texts:
            json_value(text)
    except ValueError as error:
        return f"not JSON: {error}"
    return None
