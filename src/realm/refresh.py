"""The index refreshed from new parameters: publish parameters, embed the corpus, publish the generation, open it.

``refresh_index`` is the inline form, which runs in the trainer's process and is bit-reproducible. Everything goes through published
files, so that another process or machine can take the same steps (design: processes talk through generations).
"""

import copy
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from realm.config import run_index_kind
from realm.data.blocks import BlockInputs
from realm.errors import SnapshotError
from realm.index.embed import embed_blocks
from realm.index.live import LiveIndex
from realm.index.mips import MipsIndex
from realm.index.snapshot import Snapshot, append_delta, current_generation, next_generation, prune, publish_snapshot
from realm.nn.embedder import Embedder
from realm.nn.model import RealmModel, state_sha256
from realm.paths import RunPaths, publish_directory

KEEP_GENERATIONS = 3
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Generation:
    """An opened generation: the published document embedder, in evaluation mode and frozen, and the index it made.

    ``query_embedder`` is there when queries have an embedder of their own.
    """

    snapshot: Snapshot
    embedder: Embedder
    index: MipsIndex
    query_embedder: Embedder | None = None

    @property
    def queries(self) -> Embedder:
        """The embedder of the query side: the document side's own, unless there are two."""
        return self.query_embedder or self.embedder

    @property
    def number(self) -> int:
        return self.snapshot.manifest.generation


def embed_corpus(embedder: Embedder, inputs: BlockInputs, rows: np.ndarray, progress: Progress | None = None) -> np.ndarray:
    """Embeddings of rows by the document side, without gradient. float32 [n, d]."""
    embedder.eval()

    def embed(batch: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return embedder(inputs.blocks([int(rows[i]) for i in batch])).float().cpu()

    return embed_blocks(embed, inputs.lengths(rows), np.arange(len(rows)), progress=progress)


def publish_parameters(model: RealmModel, directory: Path) -> None:
    """Write the document embedder of ``model``, and the query embedder where it is another, as one new parameter generation."""
    # What is there already, no index names: a process was killed before it published the index of these parameters.
    shutil.rmtree(directory, ignore_errors=True)
    with publish_directory(directory) as staging:
        model.with_parts(encoder=None, reader=None).save_pretrained(staging)


def refresh_index(
    model: RealmModel,
    inputs: BlockInputs,
    paths: RunPaths,
    *,
    step: int,
    protect: frozenset[int] = frozenset(),
    progress: Progress | None = None,
) -> Generation:
    """Publish the parameters of the document side, the embeddings of every live block under them, and open the result.

    Args:
        step: optimiser step of the parameters, for the staleness metric.
        protect: generations that kept checkpoints still need.
    """
    embedder = copy.deepcopy(model.documents).eval().requires_grad_(False)
    number = next_generation(paths.index)
    publish_parameters(model, paths.params / f"{number:06d}")
    store = inputs.store
    rows = np.flatnonzero(store.live)
    vectors = embed_corpus(embedder, inputs, rows, progress)
    publish_snapshot(
        paths.index,
        vectors,
        np.asarray(store.block_ids)[rows],
        params_generation=number,
        step=step,
        document_embedder_sha256=state_sha256(embedder),
        corpus_id=store.manifest.corpus_id,
        tokenizer_sha256=store.manifest.tokenizer_sha256,
        corpus_version=store.version,
        generation=number,
    )
    _prune(paths, protect)
    return open_generation(paths, inputs, number, device=next(embedder.parameters()).device)


def _prune(paths: RunPaths, protect: frozenset[int]) -> None:
    for number in prune(paths.index, KEEP_GENERATIONS, set(protect)):
        shutil.rmtree(paths.params / f"{number:06d}", ignore_errors=True)


def open_generation(
    paths: RunPaths,
    inputs: BlockInputs,
    number: int | None = None,
    *,
    document_embedder_sha256: str | None = None,
    device: torch.device | str = "cpu",
) -> Generation:
    """Open a published generation (the newest valid one by default) with the embedder that made it.

    Raises:
        SnapshotError: none is there, or it belongs to another corpus, tokenizer or embedder.
    """
    store = inputs.store
    snapshot = Snapshot.open(
        paths.index,
        number,
        corpus_id=store.manifest.corpus_id,
        tokenizer_sha256=store.manifest.tokenizer_sha256,
        document_embedder_sha256=document_embedder_sha256,
    )
    directory = paths.params / f"{snapshot.manifest.params_generation:06d}"
    published = RealmModel.from_pretrained(directory).to(torch.device(device)).eval().requires_grad_(False)
    embedder = published.documents
    if state_sha256(embedder) != snapshot.manifest.document_embedder_sha256:
        raise SnapshotError("the parameters are not those that embedded the index", path=directory, cure="Run: realm index build RUN")
    vectors = snapshot.vectors if torch.device(device).type == "cpu" else torch.from_numpy(np.asarray(snapshot.vectors)).to(device)
    queries = None if published.document_embedder is None else published.embedder
    index = LiveIndex(vectors, np.asarray(snapshot.block_ids), store, kind=run_index_kind(paths.config))
    return Generation(snapshot, embedder, index, queries)


def missing_rows(generation: Generation, inputs: BlockInputs) -> np.ndarray:
    """Live rows of the corpus that the generation does not hold yet: documents added since. int64 [n]."""
    store = inputs.store
    held = np.isin(np.asarray(store.block_ids), generation.snapshot.block_ids)
    return np.flatnonzero(store.live & ~held)


def embed_difference(
    paths: RunPaths, inputs: BlockInputs, progress: Progress | None = None, *, number: int | None = None
) -> tuple[Generation, int]:
    """Embed blocks added since a generation (the newest by default) with its own embedder, as a delta of the same generation.

    Returns:
        The generation with them, and how many blocks were embedded.
    """
    if current_generation(paths.index) is None:
        raise SnapshotError("no index yet", path=paths.index, cure="Train first: realm run RECIPE.toml")
    generation = open_generation(paths, inputs, number)
    rows = missing_rows(generation, inputs)
    if len(rows):
        vectors = embed_corpus(generation.embedder, inputs, rows, progress)
        ids = np.asarray(inputs.store.block_ids)[rows]
        append_delta(paths.index, generation.number, vectors, ids, inputs.store.version)
        generation = open_generation(paths, inputs, generation.number)
    return generation, len(rows)
