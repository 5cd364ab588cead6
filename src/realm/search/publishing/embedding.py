"""The whole corpus through the document embedder: part by part, in this process or in several, on one device or on many.

Memory of a process: the embedder, ``TOKENS_PER_BATCH`` tokens of activations, and one part of ``PART_ROWS`` x d float32; the process that
collects holds up to ``workers`` + 2 parts besides.
"""

import copy
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import current_process
from pathlib import Path

import numpy as np
import torch

from realm.documents.workers import Workers, usable_cores
from realm.errors import SnapshotError
from realm.models.bodies.precision import multiplying
from realm.models.embedder import Embedder
from realm.models.model import RealmModel
from realm.models.onnx import Int8Embedder, write_int8
from realm.models.types import Sequence
from realm.search.blocks import BlockInputs, open_inputs
from realm.search.publishing.batches import embed_blocks

PART_ROWS = 2048
"""Rows that become durable together: what a killed build loses at most. Batches are sorted by length within a part."""
TOKENS_PER_BATCH = 16384
INT8_TOKENS = 2048
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class EmbedOptions:
    """How a corpus is embedded.

    Args:
        workers: processes; 1: this one.
        devices: of the processes, in turn, such as ("cuda:0", "cuda:1"); empty: where the embedder lives. With several devices there
            is at least one process for each.
        threads: CPU threads of each process; 0: a fair share of the cores, or as this process has it if it works alone.
        bf16: multiply in bfloat16 where the device gains by it.
        int8: embed by ONNX Runtime in 8-bit integers, on CPUs only (``models/onnx.py``).
    """

    workers: int = 1
    devices: tuple[str, ...] = ()
    threads: int = 0
    bf16: bool = False
    int8: bool = False

    @property
    def processes(self) -> int:
        return max(self.workers, len(self.devices))

    def lasting(self, embedder: Embedder) -> "EmbedOptions":
        """The same for an index that outlives its training: in float32, but for vectors of length 1, of which bfloat16 takes nothing that
        a search or a softmax would notice (cosines of .9999 with float32's)."""
        return replace(self, bf16=self.bf16 and embedder.unit)


ALONE = EmbedOptions()
"""This process alone, where the embedder lives, in float32."""


@torch.inference_mode()
def embed_corpus(
    embedder: Embedder, inputs: BlockInputs, rows: np.ndarray, progress: Progress | None = None, *, bf16: bool = False
) -> np.ndarray:
    """Embeddings of rows by the document side, without gradient. float32 [n, d].

    Args:
        bf16: multiply in bfloat16 where the embedder's device does so in hardware; vectors are float32 in any case.
    """
    embedder.eval()
    with multiplying(next(embedder.parameters()).device.type, bf16=bf16):
        return embed_rows(embedder, inputs, rows, progress, TOKENS_PER_BATCH)


def embed_rows(
    embed: Callable[[list[Sequence]], torch.Tensor], inputs: BlockInputs, rows: np.ndarray, progress: Progress | None, tokens: int
) -> np.ndarray:
    """Embeddings of rows by whatever embeds them, so many tokens at a time. float32 [n, d]."""

    def of(batch: list[int]) -> torch.Tensor:
        return embed(inputs.blocks([int(rows[i]) for i in batch])).float().cpu()

    return embed_blocks(of, inputs.lengths(rows), np.arange(len(rows)), tokens_per_batch=tokens, progress=progress)


@contextmanager
def _int8(embedder: Embedder, options: EmbedOptions) -> Iterator[str]:
    """The file of an embedder's 8-bit form, there for as long as it is needed; "" where none is wanted."""
    if not options.int8:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="realm-int8-") as directory:
        path = Path(directory) / "embedder.onnx"
        write_int8(copy.deepcopy(embedder).cpu(), path)
        yield str(path)


Parts = Callable[[int], Iterator[np.ndarray]]
PartsOf = Callable[[Embedder, Path, BlockInputs, np.ndarray, EmbedOptions, Progress | None], Parts]
"""Signature of ``embed_parts``, and of whatever else embeds a corpus, such as a pool of machines."""


def embed_parts(
    embedder: Embedder, params: Path, inputs: BlockInputs, rows: np.ndarray, options: EmbedOptions, progress: Progress | None
) -> Parts:
    """What ``publish_snapshot`` takes: from a number of finished rows on, the embeddings of the next ``PART_ROWS`` rows, float32 [r, d].

    Args:
        embedder: the document embedder, for what is done in this process.
        params: the same one as published, for other processes.
        inputs: the corpus.
        rows: int64 [n], the rows to embed.
        options: where and by how many.
        progress: called with (rows done, n).
    """

    def parts(start: int) -> Iterator[np.ndarray]:
        ids = np.asarray(inputs.store.block_ids)[rows]
        items = ((at, ids[at : at + PART_ROWS]) for at in range(start, len(rows), PART_ROWS))

        def here(item: tuple[int, np.ndarray]) -> np.ndarray:
            at, part = item
            told = None if progress is None else lambda done, _: progress(at + done, len(rows))
            here_rows = inputs.store.rows_of(part)
            if alone is not None:
                return embed_rows(alone, inputs, here_rows, told, INT8_TOKENS)
            return embed_corpus(embedder, inputs, here_rows, told, bf16=options.bf16)

        with _int8(embedder, options) as int8, Workers(options.processes) as workers:
            alone = Int8Embedder(Path(int8), torch.get_num_threads()) if int8 else None
            arguments = (str(params), str(inputs.store.path), inputs.featurizer.query_length, options, int8)
            for (at, part), vectors in workers.in_order(items, here, _worker, arguments):
                if progress is not None:
                    progress(at + len(part), len(rows))
                yield vectors

    return parts


def _worker(
    params: str, corpus: str, query_length: int, options: EmbedOptions, int8: str
) -> Callable[[tuple[int, np.ndarray]], np.ndarray]:
    """In another process: what embeds one part."""
    number = int(current_process().name.rpartition("-")[2])  # "SpawnProcess-3": processes of a pool are numbered one after another
    threads = options.threads or max(1, usable_cores() // options.processes)
    if int8:
        reduced, inputs = Int8Embedder(Path(int8), threads), open_inputs(Path(corpus), query_length)
        return lambda item: embed_rows(reduced, inputs, rows_still_there(inputs, item[1]), None, INT8_TOKENS)
    device = options.devices[number % len(options.devices)] if options.devices else "cpu"
    embed = part_embedder(params, corpus, query_length, threads, device, options.bf16)
    return lambda item: embed(item[1])


def part_embedder(params: str, corpus: str, query_length: int, threads: int, device: str, bf16: bool) -> Callable[[np.ndarray], np.ndarray]:
    """What embeds parts in a process of its own, from plain values: block ids int64 [r] -> float32 [r, d].

    Block ids name the rows, whatever version of the corpus is in force by now. The process computes with ``threads`` from here on.

    Raises:
        RealmError: the parameters or the corpus cannot be opened here.
    """
    torch.set_num_threads(threads)
    embedder = RealmModel.from_pretrained(Path(params)).documents.to(torch.device(device)).eval().requires_grad_(False)
    inputs = open_inputs(Path(corpus), query_length)

    def embed(block_ids: np.ndarray) -> np.ndarray:
        return embed_corpus(embedder, inputs, rows_still_there(inputs, block_ids), bf16=bf16)

    return embed


def rows_still_there(inputs: BlockInputs, block_ids: np.ndarray) -> np.ndarray:
    """The rows of blocks.

    Raises:
        SnapshotError: the corpus was compacted, and they are gone.
    """
    try:
        return inputs.store.rows_of(block_ids)
    except KeyError as error:
        problem = f"the corpus changed while it was embedded: {error.args[0]}"
        raise SnapshotError(problem, path=inputs.store.path, cure="Start again") from error
