"""Published parameters: ``params/NNNNNN/``, what made generation NNNNNN of the index, or what a trainer asks a refresher to make it of.

Parameters and index share one counter: parameters with a number above ``index/CURRENT`` are a request, and only the newest counts.
"""

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from realm.errors import SnapshotError
from realm.models.model import RealmModel, state_sha256
from realm.search.publishing.locks import deciding
from realm.storage.decoding import json_value
from realm.storage.disk import is_transient, writing
from realm.storage.files import publish_directory, reached, remove_staging, write_atomic, write_json
from realm.storage.generations import (
    building_numbers,
    generation_numbers,
    next_generation,
    prune,
    published_generations,
    read_current,
    remove,
    remove_dead_builds,
    remove_doomed,
)
from realm.storage.paths import RunPaths
from realm.storage.sealed import seal

KEEP_GENERATIONS = 3
FACTS = "parameters.json"
NEXT = "NEXT"
"""Least number that may be given next: those below were requested and withdrawn, and a refresher may still be building one of them."""


@dataclass(frozen=True)
class ParameterFacts:
    """What ``parameters.json`` says.

    Attributes:
        step: optimiser steps behind these parameters.
        documents: identity of the document embedder (``state_sha256``).
        queries: of the query embedder, where that is another; else empty.
        protect: generations that the trainer and its kept checkpoints need: the refresher deletes other old ones.
        exact: this index outlives pre-training: embed as ``EmbedOptions.lasting`` says.
    """

    step: int
    documents: str
    queries: str = ""
    protect: tuple[int, ...] = ()
    exact: bool = False

    @classmethod
    def of(cls, model: RealmModel, step: int, protect: frozenset[int] = frozenset(), exact: bool = False) -> "ParameterFacts":
        """Of the embedders of a model, which are read through once."""
        queries = state_sha256(model.embedder) if model.has("document_embedder") and model.has("embedder") else ""
        return cls(step, state_sha256(model.documents), queries, tuple(sorted(protect)), exact)

    def same_networks(self, other: "ParameterFacts") -> bool:
        """Whether both are of the very same parameters."""
        return (self.documents, self.queries) == (other.documents, other.queries)


def parameters_path(paths: RunPaths, number: int) -> Path:
    """Where the parameters of a generation lie."""
    return paths.params / f"{number:06d}"


def publish_parameters(
    model: RealmModel, directory: Path, *, step: int = 0, protect: frozenset[int] = frozenset(), exact: bool = False
) -> ParameterFacts:
    """Write the document embedder of ``model``, and the query embedder where it is another, as one new parameter generation.

    Args:
        step, protect, exact: see ``ParameterFacts``.

    Raises:
        SnapshotError: the disk refuses.
    """
    facts = ParameterFacts.of(model, step, protect, exact)
    _write(model, directory, facts)
    return facts


def _write(model: RealmModel, directory: Path, facts: ParameterFacts) -> None:
    with writing(directory):
        # What is there already, no index names: a process was killed before it published the index of these parameters.
        shutil.rmtree(directory, ignore_errors=True)
        reached("parameters: replaced", directory)
        with publish_directory(directory) as staging:
            model.with_parts(encoder=None, reader=None).save_pretrained(staging, card=None)
            write_json(staging / FACTS, asdict(facts))
            seal(staging)


def read_facts(directory: Path) -> ParameterFacts | None:
    """What ``publish_parameters`` said; None if there is no such file, or half of one. Raises OSError: descriptors or memory ran out."""
    try:
        values = json_value((directory / FACTS).read_text("utf-8"))
        known = {key: value for key, value in values.items() if key in ParameterFacts.__dataclass_fields__}
        return ParameterFacts(**{**known, "protect": tuple(known["protect"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        if is_transient(error):
            raise
        return None


def next_number(paths: RunPaths) -> int:
    """A number that neither parameters nor an index ever had in this run, one that is being built or was taken back included."""
    used = [*generation_numbers(paths.params), *building_numbers(paths.index)]
    noted = 1
    with contextlib.suppress(FileNotFoundError, ValueError):
        noted = int((paths.params / NEXT).read_text("ascii"))
    return max(next_generation(paths.index), 1 + max(used, default=0), noted)


def requested(paths: RunPaths) -> int | None:
    """The newest parameters that have no index yet; None if there are none newer than CURRENT."""
    newest = max(generation_numbers(paths.params), default=0)
    return newest if newest > (read_current(paths.index) or 0) else None


def request_index(
    model: RealmModel,
    paths: RunPaths,
    step: int,
    *,
    protect: frozenset[int] = frozenset(),
    exact: bool = False,
    spare: int | None = None,
    instead: bool = False,
) -> int:
    """Publish parameters as a request for an index of them; older requests without an answer are withdrawn: skip, do not queue.

    Args:
        step, protect, exact: see ``ParameterFacts``.
        spare: a request that is being answered right now.
        instead: the caller answers it himself and holds the index: what killed calls left is taken over if the parameters are the very
            same, and otherwise removed.

    Returns:
        Its number.
    """
    facts, unanswered = ParameterFacts.of(model, step, protect, exact), requested(paths)
    if instead and unanswered is not None:
        known = read_facts(parameters_path(paths, unanswered))
        if known is not None and known.same_networks(facts) and known.step == step:
            return unanswered
    if instead:
        withdraw_requests(paths, above=0)
        remove_dead_builds(paths.index)
    number = next_number(paths)
    _write(model, parameters_path(paths, number), facts)
    with deciding(paths.index):
        current = read_current(paths.index) or 0
        for old in generation_numbers(paths.params):
            if current < old < number and old != spare:
                _remove(paths, old)
    return number


@contextmanager
def answering(paths: RunPaths, number: int) -> Iterator[None]:
    """Around the moment in which the generation of a request becomes visible: its parameters are there, and stay until it is.

    Raises:
        SnapshotError: the request was taken back while it was answered.
    """
    with deciding(paths.index):
        directory = parameters_path(paths, number)
        if not directory.is_dir():
            raise SnapshotError("the trainer took this request back", path=directory, cure="Start the same command again")
        yield


def _remove(paths: RunPaths, number: int) -> None:
    """Delete parameters so that a refresher finds all of them or none, and never a request of which half is gone."""
    with contextlib.suppress(FileNotFoundError):  # another process was faster
        remove(parameters_path(paths, number))


def prune_run(paths: RunPaths, protect: frozenset[int]) -> None:
    """Delete old generations and parameters: what stays are the newest three, what ``protect`` names, and requests not yet answered.

    Args:
        protect: generations that kept checkpoints still need, and one that is being built.
    """
    prune(paths.index, KEEP_GENERATIONS, set(protect))
    kept = {*published_generations(paths.index), *protect}
    newest = max(generation_numbers(paths.params), default=0)
    for number in generation_numbers(paths.params):
        if number not in kept and number < newest:
            _remove(paths, number)
    remove_doomed(paths.params)


def withdraw_requests(paths: RunPaths, above: int) -> None:
    """Take back unanswered requests above a number: their trainer was killed, and what it had learnt since is forgotten."""
    with deciding(paths.index):
        current = read_current(paths.index) or 0
        for number in generation_numbers(paths.params):
            if number > max(above, current):
                _remove(paths, number)
    if paths.params.is_dir():
        remove_staging(paths.params)


def forget_requests(paths: RunPaths, above: int) -> range:
    """``withdraw_requests`` of a trainer that starts again. Returns the numbers above ``above`` that were ever given: none is given again,
    so what a refresher still publishes under one cannot be taken for an answer to a later request.
    """
    forgotten = range(above + 1, next_number(paths))
    if forgotten:
        write_atomic(paths.params / NEXT, f"{forgotten.stop}\n")
    withdraw_requests(paths, above)
    return forgotten
