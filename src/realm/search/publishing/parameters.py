"""Published parameters ``params/NNNNNN/``, requests for an index of them, and the locks of publisher and requests.

Parameters and index share one counter: parameters above ``index/CURRENT`` are a request, and only the newest counts."""

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from realm.errors import SnapshotError
from realm.search.publishing.snapshot import MANIFEST, read_manifest
from realm.search.publishing.writing import PROGRESS_FILE
from realm.storage import files, generations
from realm.storage.layout import DAMAGED, RunPaths
from realm.storage.locks import LOCK_FILE, held
from realm.storage.manifests import SUMS, check_sealed, is_sealed, seal

if TYPE_CHECKING:
    from realm.models.model import RealmModel

REQUESTS_LOCK = "LOCK.requests"


@contextmanager
def publishing(index: Path) -> Iterator[None]:
    """Be the one process that publishes generations in a run's ``index/``.
    Raises SnapshotError: another process does, and did not end while we waited; or the directory may not be written to."""
    cure = "Wait for it, or stop it; only one process at a time can build the index of a run"
    with _holding(index, LOCK_FILE, "builds this index", cure):
        sweep(index)
        yield


@contextmanager
def deciding(index: Path) -> Iterator[None]:
    """Hold the requests of a run while one is answered or some are taken back: each is one or the other.

    A refresher is the publisher for its whole life, so a trainer that takes requests back cannot wait for that. Raises SnapshotError as
    ``publishing``."""
    with _holding(index, REQUESTS_LOCK, "is handling the requests for this index", "Try again; if it hangs, stop that process"):
        yield


@contextmanager
def _holding(index: Path, name: str, does: str, cure: str) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            files.make_directory(index)
            stack.enter_context(held(index, lambda named: SnapshotError(f"another process{named} {does}", path=index, cure=cure), name))
        except OSError as error:
            raise SnapshotError(f"could not be written: {error.strerror}", path=index, cure="Make the directory writable") from error
        yield


def sweep(directory: Path) -> None:
    """Delete half-written files, and shards that no manifest lists, of a run's ``index/``. The caller holds the index."""
    files.remove_staging(directory)
    for number in generations.generation_numbers(directory):
        path = generations.generation_path(directory, number)
        try:
            manifest = read_manifest(path, number)
        except SnapshotError:  # whoever opens it says so and puts it aside
            continue
        named = {name for shard in manifest.shards for name in shard.files} | {MANIFEST}
        ours = (file for file in path.iterdir() if file.name == PROGRESS_FILE or file.suffix in (".npy", files.STAGING_SUFFIX))
        generations.delete_unnamed(ours, {path / name for name in named})


KEEP_GENERATIONS = 3
FACTS_FILE = "parameters.json"
NEXT_NUMBER_FILE = "NEXT"  # least number to give next: a refresher may still be building a withdrawn request below it


@dataclass(frozen=True)
class ParameterFacts:
    """Contents of ``parameters.json``."""

    step: int  # optimiser steps behind these parameters
    documents: str  # identity of the document embedder (``state_sha256``)
    queries: str = ""  # of a separate query embedder; else empty
    protect: tuple[int, ...] = ()  # generations needed by the trainer and its kept checkpoints
    exact: bool = False  # the index outlives pre-training: embed with ``EmbedOptions.lasting``

    @classmethod
    def of(cls, model: "RealmModel", step: int, protect: frozenset[int] = frozenset(), exact: bool = False) -> "ParameterFacts":
        """Facts of a model's embedders, which are hashed once."""
        from realm.models.model import state_sha256

        queries = state_sha256(model.embedder) if model.has("document_embedder") and model.has("embedder") else ""
        return cls(step, model.documents_sha256(), queries, tuple(sorted(protect)), exact)

    def same_networks(self, other: "ParameterFacts") -> bool:
        """True if both have the very same parameters."""
        return (self.documents, self.queries) == (other.documents, other.queries)


def parameters_path(paths: RunPaths, number: int) -> Path:
    """Directory of a generation's parameters."""
    return paths.params / f"{number:06d}"


def publish_parameters(
    model: "RealmModel", directory: Path, *, step: int = 0, protect: frozenset[int] = frozenset(), exact: bool = False
) -> ParameterFacts:
    """Write the embedders of ``model`` as one new parameter generation (see ``ParameterFacts``). Raises SnapshotError: a full disk."""
    facts = ParameterFacts.of(model, step, protect, exact)
    _write(model, directory, facts)
    return facts


def _write(model: "RealmModel", directory: Path, facts: ParameterFacts) -> None:
    with files.writing(directory):
        # What is there already, no index names: a process was killed before it published the index of these parameters.
        shutil.rmtree(directory, ignore_errors=True)
        files.reached("parameters: replaced", directory)
        with files.publish_directory(directory) as staging:
            model.with_parts(encoder=None, reader=None).save_pretrained(staging, card=None)
            files.write_json(staging / FACTS_FILE, asdict(facts))
            seal(staging)


def lend_index(theirs: RunPaths, ours: RunPaths, number: int) -> None:
    """Copy an index and its parameters for another run of the same corpus. Raises SnapshotError: a full disk."""
    for there, here in ((theirs.params, ours.params), (theirs.index, ours.index)):
        with files.writing(here), files.publish_directory(generations.generation_path(here, number)) as staging:
            shutil.copytree(generations.generation_path(there, number), staging, dirs_exist_ok=True)
    generations.advance_current(ours.index, number)


def check_parameters(directory: Path) -> None:
    """Read every file of published parameters. Raises RunError: one is missing or damaged, or their checksums are lost."""
    if directory.is_dir() and not is_sealed(directory):
        raise DAMAGED.damaged("missing", path=directory / SUMS)
    check_sealed(directory, DAMAGED)


def read_facts(directory: Path) -> ParameterFacts | None:
    """Read ``parameters.json``; None without a whole one. Raises OSError: descriptors or memory ran out."""
    values = files.read_json(directory / FACTS_FILE)
    try:
        known = {key: value for key, value in values.items() if key in ParameterFacts.__dataclass_fields__}
        return ParameterFacts(**{**known, "protect": tuple(known["protect"])})
    except (TypeError, KeyError, AttributeError):
        return None


def next_number(paths: RunPaths) -> int:
    """A number that neither parameters nor an index ever had in this run, including unfinished and withdrawn ones."""
    used = [*generations.generation_numbers(paths.params), *generations.building_numbers(paths.index)]
    noted = 1
    with contextlib.suppress(FileNotFoundError, ValueError):
        noted = int((paths.params / NEXT_NUMBER_FILE).read_text("ascii"))
    return max(generations.next_generation(paths.index), 1 + max(used, default=0), noted)


def requested(paths: RunPaths) -> int | None:
    """The newest parameters without an index; None if there are none newer than CURRENT."""
    newest = max(generations.generation_numbers(paths.params), default=0)
    return newest if newest > (generations.read_current(paths.index) or 0) else None


def request_index(
    model: "RealmModel",
    paths: RunPaths,
    step: int,
    *,
    protect: frozenset[int] = frozenset(),
    exact: bool = False,
    spare: int | None = None,
    instead: bool = False,
) -> int:
    """Publish parameters as a request for an index of them, withdraw older unanswered ones, and return its number.

    Args:
        step, protect, exact: see ``ParameterFacts``.
        spare: a request that is being answered right now.
        instead: the caller holds the index and answers it: leftovers of killed calls are continued if the parameters are the very same."""
    facts, unanswered = ParameterFacts.of(model, step, protect, exact), requested(paths)
    if instead and unanswered is not None:
        known = read_facts(parameters_path(paths, unanswered))
        if known is not None and known.same_networks(facts) and known.step == step:
            return unanswered
    if instead:
        withdraw_requests(paths, above=0)
        generations.remove_dead_builds(paths.index)
    number = next_number(paths)
    _write(model, parameters_path(paths, number), facts)
    with deciding(paths.index):
        current = generations.read_current(paths.index) or 0
        for old in generations.generation_numbers(paths.params):
            if current < old < number and old != spare:
                _remove(paths, old)
    return number


@contextmanager
def answering(paths: RunPaths, number: int) -> Iterator[None]:
    """Hold a request, whose parameters stay, while its generation becomes visible. Raises SnapshotError: it was taken back."""
    with deciding(paths.index):
        directory = parameters_path(paths, number)
        if not directory.is_dir():
            raise SnapshotError("the trainer took this request back", path=directory, cure="Start the same command again")
        yield


def _remove(paths: RunPaths, number: int) -> None:
    """Delete parameters so that a refresher finds all of them or none, and never half a request."""
    with contextlib.suppress(FileNotFoundError):  # another process was faster
        generations.remove(parameters_path(paths, number))


def prune_run(paths: RunPaths, protect: frozenset[int]) -> None:
    """Delete old generations and parameters except the newest three, those in ``protect`` (needed by checkpoints), and open requests."""
    generations.prune(paths.index, KEEP_GENERATIONS, set(protect))
    kept = {*generations.published_generations(paths.index), *protect}
    newest = max(generations.generation_numbers(paths.params), default=0)
    for number in generations.generation_numbers(paths.params):
        if number not in kept and number < newest:
            _remove(paths, number)
    generations.remove_doomed(paths.params)


def withdraw_requests(paths: RunPaths, above: int) -> None:
    """Withdraw unanswered requests above a number, after their trainer was killed."""
    with deciding(paths.index):
        current = generations.read_current(paths.index) or 0
        for number in generations.generation_numbers(paths.params):
            if number > max(above, current):
                _remove(paths, number)
    if paths.params.is_dir():
        files.remove_staging(paths.params)


def forget_requests(paths: RunPaths, above: int) -> range:
    """``withdraw_requests`` of a restarted trainer. Returns the numbers above ``above`` that were ever given.
    None of them is given again, so that a refresher's late index cannot be taken for an answer to a later request."""
    forgotten = range(above + 1, next_number(paths))
    if forgotten:
        files.write_atomic(paths.params / NEXT_NUMBER_FILE, f"{forgotten.stop}\n")
    withdraw_requests(paths, above)
    return forgotten
