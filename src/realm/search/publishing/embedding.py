"""Embeddings of a corpus by the document embedder: part by part, in one process or several, on one device or many.

Batches have blocks of similar length, for little padding. Memory of a process: the embedder, ``TOKENS_PER_BATCH`` tokens of activations,
and one part of ``PART_ROWS`` x d float32; the collecting process holds up to ``workers`` + 2 parts besides."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import current_process
from pathlib import Path

import numpy as np

from realm.documents.workers import Workers
from realm.errors import MissingExtra, SnapshotError
from realm.models.runtime.model import learning_model, runtime_model
from realm.models.types import Embedding
from realm.progress import Advance
from realm.search.blocks import BlockInputs, open_inputs
from realm.search.publishing.writing import Parts
from realm.storage.processes import usable_cores


def length_batches(lengths: np.ndarray, tokens_per_batch: int) -> Iterator[np.ndarray]:
    """Positions [m] in ``lengths``, each batch of at most so many padded tokens, or one longer block. The longest come first: a batch that
    does not fit into memory fails at once, not after an hour."""
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = start + max(1, tokens_per_batch // longest)
        yield order[start:stop]
        start = stop


PART_ROWS = 2048  # rows that become durable together, the loss of a killed build; batches are sorted within a part
TOKENS_PER_BATCH = 16384


@dataclass(frozen=True)
class EmbedOptions:
    """Options of embedding a corpus.

    >>> EmbedOptions(devices=("cuda:0", "cuda:1")).processes
    2
    """

    workers: int = 1  # processes; 1: this one
    devices: tuple[str, ...] = ()  # of the processes, in turn, each used at least once; empty: the embedder's own
    threads: int = 0  # CPU threads per process; 0: a fair share of the cores, or unchanged if it works alone
    bf16: bool = False  # multiply in bfloat16 if the device gains by it
    int8: bool = False  # embed by ONNX Runtime in 8-bit integers, on CPUs only (``models/runtime``)

    @property
    def processes(self) -> int:
        return max(self.workers, len(self.devices))

    def lasting(self, embedder: Embedding) -> "EmbedOptions":
        """Options for an index that outlives its training: float32, but for vectors of length 1.
        Their bfloat16 errors (cosines of .9999 with float32's) change neither search nor softmax noticeably."""
        return replace(self, bf16=self.bf16 and embedder.unit)


IN_PROCESS = EmbedOptions()  # this process, the embedder's device, float32


def embed_corpus(
    embedder: Embedding, inputs: BlockInputs, rows: np.ndarray, progress: Advance | None = None, *, bf16: bool = False
) -> np.ndarray:
    """Embed rows by the document side: float32 [n, d], also with products in bfloat16, or [0, 0] without rows, where d is unknown.
    Batches depend on the arguments only, so the same call gives the same bits. Raises SnapshotError: an embedding is not finite."""
    found = np.zeros((0, 0), np.float32)
    done = 0
    for batch in length_batches(inputs.lengths(rows), TOKENS_PER_BATCH):
        vectors = embedder.embed_blocks(inputs.blocks(rows[batch].tolist()), bf16=bf16)
        if not np.isfinite(vectors).all():
            row = int(rows[batch][~np.isfinite(vectors).all(axis=1)][0])
            raise SnapshotError(f"the embedding of row {row} is not finite", cure="Go back to an earlier checkpoint")
        if not done:
            found = np.empty((len(rows), vectors.shape[1]), np.float32)
        found[batch] = vectors
        done += len(batch)
        if progress is not None:
            progress(done, len(rows))
    return found


def eight_bit(params: Path, threads: int) -> Embedding:
    """The published document embedder in 8-bit integers. Raises MissingExtra: its body needs torch."""
    if (found := runtime_model(params, eight_bit=True, threads=threads)) is None:
        raise MissingExtra("embedding with this body", "train")
    return found.documents


PartsOf = Callable[[Embedding, Path, BlockInputs, np.ndarray, EmbedOptions, Advance | None], Parts]
"""Signature of ``embed_parts``, and of other embedders of a corpus, such as a pool of machines."""


def embed_parts(
    embedder: Embedding, params: Path, inputs: BlockInputs, rows: np.ndarray, options: EmbedOptions, progress: Advance | None
) -> Parts:
    """Argument of ``publish_snapshot``: from a number of finished rows on, the embeddings of the next ``PART_ROWS`` rows, float32 [r, d].

    ``embedder`` embeds rows int64 [n] in this process, and the same one as published in ``params`` in others; ``progress`` gets (rows done,
    n)."""

    def parts(start: int) -> Iterator[np.ndarray]:
        ids = np.asarray(inputs.store.block_ids)[rows]
        items = ((at, ids[at : at + PART_ROWS]) for at in range(start, len(rows), PART_ROWS))

        def here(item: tuple[int, np.ndarray]) -> np.ndarray:
            at, part = item
            told = None if progress is None else lambda done, _: progress(at + done, len(rows))
            here_rows = inputs.store.rows_of(part)
            return embed_corpus(alone, inputs, here_rows, told, bf16=options.bf16)

        with Workers(options.processes) as workers:
            alone = eight_bit(params, options.threads) if options.int8 else embedder
            arguments = (str(params), str(inputs.store.path), inputs.featurizer.query_length, options)
            for (at, part), vectors in workers.in_order(items, here, _worker, arguments):
                if progress is not None:
                    progress(at + len(part), len(rows))
                yield vectors

    return parts


def _worker(params: str, corpus: str, query_length: int, options: EmbedOptions) -> Callable[[tuple[int, np.ndarray]], np.ndarray]:
    """Embedder of one part, built in another process."""
    number = int(current_process().name.rpartition("-")[2])  # "SpawnProcess-3": processes of a pool are numbered one after another
    threads = options.threads or max(1, usable_cores() // options.processes)
    if options.int8:
        reduced, inputs = eight_bit(Path(params), threads), open_inputs(Path(corpus), query_length)
        return lambda item: embed_corpus(reduced, inputs, rows_still_there(inputs, item[1]))
    device = options.devices[number % len(options.devices)] if options.devices else "cpu"
    embed = part_embedder(params, corpus, query_length, threads, device, options.bf16)
    return lambda item: embed(item[1])


def part_embedder(params: str, corpus: str, query_length: int, threads: int, device: str, bf16: bool) -> Callable[[np.ndarray], np.ndarray]:
    """Embedder of parts in a process of its own, of ``threads``: block ids int64 [r] -> float32 [r, d]. Raises RealmError."""
    import torch

    torch.set_num_threads(threads)
    embedder = learning_model(Path(params)).documents.to(torch.device(device)).eval().requires_grad_(False)
    inputs = open_inputs(Path(corpus), query_length)

    def embed(block_ids: np.ndarray) -> np.ndarray:
        return embed_corpus(embedder, inputs, rows_still_there(inputs, block_ids), bf16=bf16)

    return embed


def rows_still_there(inputs: BlockInputs, block_ids: np.ndarray) -> np.ndarray:
    """Rows of blocks. Raises SnapshotError: the corpus was compacted, and they are gone."""
    try:
        return inputs.store.rows_of(block_ids)
    except KeyError as error:
        problem = f"the corpus changed while it was embedded: {error.args[0]}"
        raise SnapshotError(problem, path=inputs.store.path, cure="Start again") from error
