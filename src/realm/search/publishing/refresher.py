"""Indexes of published parameters: by the trainer itself (``refresh_index``), or by a ``Refresher`` on a process or machine of its own.

Documents added since are embedded by the generation's own embedder and appended as a delta (``add_difference``)."""

import copy
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.errors import RealmError, SnapshotError
from realm.models.runtime.model import learning_model
from realm.models.types import Embedding
from realm.progress import Advance
from realm.search.blocks import BlockInputs
from realm.search.publishing import parameters
from realm.search.publishing.embedding import IN_PROCESS, EmbedOptions, PartsOf, embed_parts
from realm.search.publishing.generation import Generation, extended, open_generation
from realm.search.publishing.snapshot import SnapshotFacts, fields_of, read_manifest
from realm.search.publishing.writing import append_delta, merge_shards, publish_snapshot
from realm.storage.files import read_json, write_json
from realm.storage.generations import current_generation, generation_path, next_generation
from realm.storage.layout import RunPaths

if TYPE_CHECKING:
    from realm.models.model import RealmModel

STATUS_FILE = "refresher.json"
POLL_SECONDS = 0.2
BEAT_SECONDS = 0.5


def snapshot_facts(store: BlockStore, rows: np.ndarray, sha256: str, options: EmbedOptions, *, number: int, step: int) -> SnapshotFacts:
    """Facts of an index of ``rows`` of a corpus under a document embedder of this identity and the parameters ``number``."""
    return SnapshotFacts(
        params_generation=number,
        step=step,
        document_embedder_sha256=sha256,
        corpus_id=store.manifest.corpus_id,
        tokenizer_sha256=store.manifest.tokenizer_sha256,
        corpus_version=store.version,
        tombstone_version=store.version,
        segments=segments_of(store, rows),
        arithmetic="int8" if options.int8 else "bfloat16" if options.bf16 else "float32",
    )


def segments_of(store: BlockStore, rows: np.ndarray) -> tuple[tuple[str, int], ...]:
    """(segment, number of ``rows``) in row order; ``rows`` ascend."""
    ends = np.cumsum([segment.rows for segment in store.segments])
    counts = np.diff(np.searchsorted(rows, ends), prepend=0)
    return tuple((s.info.name, int(n)) for s, n in zip(store.segments, counts, strict=True) if n)


def build_generation(
    paths: RunPaths,
    inputs: BlockInputs,
    number: int,
    embedder: Embedding,
    published: parameters.ParameterFacts,
    options: EmbedOptions,
    progress: Advance | None = None,
    parts_of: PartsOf = embed_parts,
    again: tuple[np.ndarray, dict[str, Any]] | None = None,
) -> None:
    """Embed every live block under published parameters and publish the index of the same number, continuing a killed call.

    ``embedder`` is their document side on its device, ``published`` their facts; ``parts_of`` embeds the parts; ``again`` has the rows and
    versions of an index that is built once more. Raises SnapshotError: the disk refuses, a vector is not finite, the corpus was compacted
    meanwhile, or the request was taken back."""
    store = inputs.store
    rows, versions = again or (np.flatnonzero(store.live), {})
    facts = replace(snapshot_facts(store, rows, published.documents, options, number=number, step=published.step), **versions)
    block_ids = np.asarray(store.block_ids)[rows]
    parts = parts_of(embedder, parameters.parameters_path(paths, number), inputs, rows, options, progress)
    publish_snapshot(paths.index, parts, block_ids, facts, generation=number, visible=parameters.answering(paths, number))


def refresh_index(
    model: "RealmModel",
    inputs: BlockInputs,
    paths: RunPaths,
    *,
    step: int,
    protect: frozenset[int] = frozenset(),
    options: EmbedOptions = IN_PROCESS,
    progress: Advance | None = None,
) -> Generation:
    """Publish the parameters of the document side and the embeddings of all live blocks, unless these stand, and open the result.
    ``step`` is that of the parameters, for the staleness metric; ``protect`` lists generations needed by kept checkpoints."""
    if step == 0 and (standing := standing_index(model, inputs, paths, options)):
        return standing
    frozen = copy.deepcopy(model.with_parts(encoder=None, reader=None)).eval().requires_grad_(False)
    with parameters.publishing(paths.index):
        number = parameters.request_index(frozen, paths, step, instead=True)
        published = parameters.read_facts(parameters.parameters_path(paths, number)) or parameters.ParameterFacts.of(frozen, step)
        build_generation(paths, inputs, number, frozen.documents, published, options, progress)
        parameters.prune_run(paths, protect)
    return open_generation(paths, inputs, number, device=next(frozen.documents.parameters()).device, model=frozen, verify=False)


def standing_index(model: "RealmModel", inputs: BlockInputs, paths: RunPaths, options: EmbedOptions) -> Generation | None:
    """The newest generation, if an untrained ``model`` would give every live block the same bits: another seed's, or a killed call's."""
    number = current_generation(paths.index) or 0
    with suppress(SnapshotError):
        manifest, rows = read_manifest(generation_path(paths.index, number), number), np.flatnonzero(inputs.store.live)
        ours, theirs = parameters.ParameterFacts.of(model, step=0), parameters.read_facts(parameters.parameters_path(paths, number))
        facts = snapshot_facts(inputs.store, rows, ours.documents, options, number=number, step=0)
        same = theirs is not None and ours.same_networks(theirs) and fields_of(manifest) == fields_of(facts)
        if same and not manifest.revision:  # only then are its files read through
            return open_generation(paths, inputs, number, device=next(model.documents.parameters()).device)
    return None


def index_documents(model: Any, inputs: BlockInputs, paths: RunPaths, *, bf16: bool, progress: Advance | None = None) -> None:
    """Publish the embeddings of every live block under a body that lies elsewhere, continuing a killed call.
    ``model`` is a RuntimeModel or a RealmModel. Raises SnapshotError: as for ``build_generation``."""
    store, rows = inputs.store, np.flatnonzero(inputs.store.live)
    options = EmbedOptions(bf16=bf16).lasting(model.documents)
    with parameters.publishing(paths.index):
        facts = snapshot_facts(store, rows, model.documents_sha256(), options, number=next_generation(paths.index), step=0)
        parts = embed_parts(model.documents, paths.params, inputs, rows, options, progress)
        publish_snapshot(paths.index, parts, np.asarray(store.block_ids)[rows], facts)


def missing_rows(generation: Generation, inputs: BlockInputs) -> np.ndarray:
    """Live rows of the corpus that are not in the generation: documents added or changed since. int64 [n]."""
    store = inputs.store
    held_already = np.isin(np.asarray(store.block_ids), generation.snapshot.block_ids)
    return np.flatnonzero(store.live & ~held_already)


def add_difference(
    generation: Generation, paths: RunPaths, inputs: BlockInputs, progress: Advance | None = None, *, options: EmbedOptions = IN_PROCESS
) -> tuple[Generation, int]:
    """Embed blocks added since a generation with its own embedder, as a delta of it, continuing a killed call.

    A changed document is removed blocks, which every search hides, and added ones. Returns the extended generation, and the number of
    embedded blocks."""
    if not len(missing_rows(generation, inputs)):
        return generation, 0
    with parameters.publishing(paths.index):
        generation = extended(generation, paths, inputs)  # somebody else may have added the same blocks before we held the index
        store, rows = inputs.store, missing_rows(generation, inputs)
        if len(rows):
            parts = embed_parts(generation.embedder, parameters.parameters_path(paths, generation.number), inputs, rows, options, progress)
            ids = np.asarray(store.block_ids)[rows]
            append_delta(paths.index, generation.number, parts, ids, store.version, segments_of(store, rows))
            merge_shards(paths.index, generation.number)
            generation = extended(generation, paths, inputs)
    return generation, len(rows)


@dataclass(frozen=True)
class Status:
    """State of a refresher."""

    pid: int
    host: str
    beat: int  # grows while it makes progress
    generation: int | None  # under construction; None while it waits
    done: int  # blocks of that generation
    total: int
    blocks_per_second: float  # since it began
    seconds_left: float | None  # at that speed


def read_status(index: Path) -> Status | None:
    """Last state written by the refresher of a run; None if there never was one."""
    try:
        return Status(**read_json(index / STATUS_FILE))
    except TypeError:
        return None


@dataclass
class Refresher:
    """Answers requests for an index, newest first, and reports (blocks done, blocks); an overtaken request is never built."""

    paths: RunPaths
    inputs: BlockInputs
    options: EmbedOptions
    progress: Advance | None = None
    parts_of: PartsOf = embed_parts
    _beat: int = field(default=0, init=False)
    _told: float = field(default=0.0, init=False)

    def serve(self, ended: Callable[[], bool], sleep: Callable[[float], None] = time.sleep) -> None:
        """Tick until ``ended`` is true. Raises SnapshotError: another process builds this index, or the disk refuses."""
        with parameters.publishing(self.paths.index):
            while not ended():
                if self.tick() is None:
                    self._say(None, 0, 0, 0.0)
                    sleep(POLL_SECONDS)

    def tick(self) -> int | None:
        """Build the newest requested generation and return its number; None without a request. The caller holds the index."""
        number = parameters.requested(self.paths)
        if number is None:
            return None
        self._say(number, 0, 0, 0.0, now=True)
        try:
            self._build(number)
        except (RealmError, FileNotFoundError):
            # The trainer withdraws a request when it makes a newer one: then that one is next.
            if parameters.requested(self.paths) == number:
                raise
        return number

    def _build(self, number: int) -> None:
        directory = parameters.parameters_path(self.paths, number)
        model = learning_model(directory)
        facts = parameters.read_facts(directory) or parameters.ParameterFacts.of(model, step=0)
        embedder = model.documents.eval().requires_grad_(False)
        embedder.to(self.options.devices[0] if self.options.devices else "cpu")
        self.inputs = BlockInputs(self.inputs.store.newest(), self.inputs.featurizer)
        started = time.perf_counter()
        first: list[int] = []  # rows that a killed process had done

        def tell(done: int, total: int) -> None:
            first.append(done) if not first else None
            self._say(number, done, total, (done - first[0]) / max(1e-9, time.perf_counter() - started))
            if self.progress is not None:
                self.progress(done, total)

        options = self.options.lasting(embedder) if facts.exact else self.options
        build_generation(self.paths, self.inputs, number, embedder, facts, options, tell, self.parts_of)
        parameters.prune_run(self.paths, frozenset(facts.protect))

    def _say(self, generation: int | None, done: int, total: int, speed: float, *, now: bool = False) -> None:
        if not now and time.monotonic() - self._told < BEAT_SECONDS:
            return
        self._told = time.monotonic()
        self._beat += 1
        left = round((total - done) / speed, 1) if speed else None
        status = Status(os.getpid(), socket.gethostname(), self._beat, generation, done, total, round(speed, 1), left)
        write_json(self.paths.index / STATUS_FILE, asdict(status))
