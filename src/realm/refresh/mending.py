"""The index of a run and its parameters, read through: what is damaged, and how each part is rebuilt from undamaged ones.

A generation is made of its parameters and the corpus; parameters are also in the stage that ended with them. Fine-tuned networks ask for
one generation by its number: that one is built again under the same number.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from realm.data.blocks import BlockInputs
from realm.errors import RealmError, SnapshotError
from realm.index.snapshot import Snapshot, read_generation
from realm.index.sparse import DIRECTORY as SPARSE, verify_sparse
from realm.nn.model import RealmModel, state_sha256
from realm.paths import RunPaths
from realm.refresh.embedding import EmbedOptions, Progress
from realm.refresh.locks import publishing
from realm.refresh.parameters import parameters_path, publish_parameters, read_facts
from realm.refresh.refresher import build_generation
from realm.storage.damage import Damage
from realm.storage.disk import says_nothing_of_the_file
from realm.storage.generations import (
    CURRENT,
    advance_current,
    generation_numbers,
    generation_path,
    published_generations,
    quarantine,
    read_current,
)

UNUSED = "move this generation aside; no stage searches it"
"""The cure of a damaged generation that is not needed."""


@dataclass(frozen=True)
class IndexParts:
    """What the index of a run is made of.

    Args:
        paths: of the run.
        inputs: its corpus.
        needed: the generation that the run's last stage searches; None: no stage has ended with one.
        networks: those of that stage, as its parameters were published; raises RealmError where they are damaged or were others.
        options: how blocks are embedded.
        progress: called with (blocks done, blocks).
    """

    paths: RunPaths
    inputs: BlockInputs
    needed: int | None
    networks: Callable[[], RealmModel]
    options: EmbedOptions
    progress: Progress | None = None

    @property
    def owner(self) -> dict[str, str | None]:
        """Whose index this must be."""
        manifest = self.inputs.store.manifest
        return {"corpus_id": manifest.corpus_id, "tokenizer_sha256": manifest.tokenizer_sha256}


def index_damage(parts: IndexParts) -> list[Damage]:
    """Read every byte of every generation and of its parameters. Nothing is changed."""
    directory = parts.paths.index
    if (lost := _without_current(parts)) is not None:
        return [lost]
    published = published_generations(directory)
    missing = [parts.needed] if parts.needed is not None and parts.needed not in published else []
    return [found for number in (*published, *missing) for found in _generation(parts, number)]


def _without_current(parts: IndexParts) -> Damage | None:
    directory = parts.paths.index
    numbers = generation_numbers(directory)
    if not numbers or read_current(directory) is not None:
        return None
    newest = next((number for number in reversed(numbers) if not isinstance(_snapshot(parts, number), RealmError)), None)
    newest = newest or parts.needed
    path, problem = directory / CURRENT, "missing or not a number: the published generation is unknown"
    if newest is None:
        return Damage(path, problem, "No generation can be read. Run: realm index build RUN")
    return Damage(path, problem, f"make generation {newest} the newest published one", partial(_point_at, directory, newest))


def _point_at(directory: Path, number: int) -> None:
    with publishing(directory):
        advance_current(directory, number)


def _snapshot(parts: IndexParts, number: int) -> Snapshot | RealmError:
    """A generation, every byte of it read; or what is wrong with it."""
    try:
        return read_generation(generation_path(parts.paths.index, number), number, dict(parts.owner), verify=True)
    except RealmError as error:
        if says_nothing_of_the_file(error):
            raise
        return error


def _generation(parts: IndexParts, number: int) -> Iterator[Damage]:
    path = generation_path(parts.paths.index, number)
    found = _snapshot(parts, number)
    if isinstance(found, RealmError) and number != parts.needed:
        yield Damage(found.path or path, found.problem, UNUSED, partial(quarantine, path, found))
        return
    if isinstance(found, RealmError):
        problem = "the generation that the last stage searches is missing" if not path.is_dir() else found.problem
        whose = "its parameters" if _has_parameters(parts, number) else "the networks of the last stage" if _has_networks(parts) else ""
        cure = f"embed all blocks again by {whose}, as generation {number}" if whose else _lost(parts)
        yield Damage(path if not path.is_dir() else found.path or path, problem, cure, partial(rebuild, parts) if whose else None)
        return
    if (changed := _parameter_problem(parts, number, found.manifest.document_embedder_sha256)) is not None:
        yield _parameters(parts, number, found.manifest.document_embedder_sha256, changed)
    try:
        verify_sparse(parts.paths.index, number)
    except RealmError as error:
        cure = "remove the sparse index: the next search rebuilds it"
        yield Damage(error.path or path, error.problem, cure, partial(shutil.rmtree, path / SPARSE))


def _parameter_problem(parts: IndexParts, number: int, sha256: str) -> str | None:
    directory = parameters_path(parts.paths, number)
    try:
        published = RealmModel.from_pretrained(directory) if directory.is_dir() else None
    except RealmError as error:
        if says_nothing_of_the_file(error):
            raise
        return error.problem
    if published is None:
        return "missing"
    facts = read_facts(directory)
    foreign = state_sha256(published.documents) != sha256 or (facts is not None and facts.sha256 != state_sha256(published))
    return "the parameters are not those that embedded the index" if foreign else None


def _parameters(parts: IndexParts, number: int, sha256: str, problem: str) -> Damage:
    directory = parameters_path(parts.paths, number)
    if number == parts.needed:
        try:
            if state_sha256(parts.networks().documents) == sha256:
                return Damage(directory, problem, "publish them again from the stage", partial(_publish, parts, number))
        except RealmError:
            pass
        return Damage(directory, problem, _lost(parts))
    aside = partial(quarantine, generation_path(parts.paths.index, number), SnapshotError(problem))
    return Damage(directory, problem, UNUSED, aside)


def _lost(parts: IndexParts) -> str:
    return f"Its parameters are damaged too. Remove the stages from the damaged one on and run: realm run RECIPE --out {parts.paths.root}"


def _publish(parts: IndexParts, number: int) -> None:
    snapshot = _snapshot(parts, number)
    step = snapshot.manifest.step if isinstance(snapshot, Snapshot) else 0
    publish_parameters(parts.networks(), parameters_path(parts.paths, number), step=step, exact=True)


def _has_parameters(parts: IndexParts, number: int) -> bool:
    """Whether the parameters of a generation are whole."""
    directory = parameters_path(parts.paths, number)
    facts = read_facts(directory)
    try:
        return directory.is_dir() and facts is not None and state_sha256(RealmModel.from_pretrained(directory)) == facts.sha256
    except RealmError:
        return False


def _has_networks(parts: IndexParts) -> bool:
    """Whether the last stage holds what embeds the documents."""
    try:
        parts.networks()
    except RealmError:
        return False
    return True


def rebuild(parts: IndexParts) -> bool:
    """Build the needed generation again under its number, from its parameters or from the stage's networks. The old one is moved aside.

    Returns:
        Whether there is a generation that is needed.

    Raises:
        RealmError: neither parameters nor networks are whole; another process builds the index.
    """
    number = parts.needed
    if number is None:
        return False
    directory = parameters_path(parts.paths, number)
    with publishing(parts.paths.index):
        if not _has_parameters(parts, number):
            _publish(parts, number)
        if (path := generation_path(parts.paths.index, number)).is_dir():
            quarantine(path, SnapshotError("rebuilding it"))
        model, facts = RealmModel.from_pretrained(directory), read_facts(directory)
        embedder = model.documents.eval().requires_grad_(False)
        build_generation(
            parts.paths, parts.inputs, number, embedder, facts.step if facts else 0, parts.options.lasting(embedder), parts.progress
        )
    return True
