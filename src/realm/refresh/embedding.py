"""The whole corpus through the document embedder: part by part, in this process or in several, on one device or on many.

Memory of a process: the embedder, ``TOKENS_PER_BATCH`` tokens of activations, and one part of ``PART_ROWS`` x d float32; the process that
collects holds up to ``workers`` + 2 parts besides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import current_process
from pathlib import Path

import numpy as np
import torch

from realm.corpus.workers import Workers, usable_cores
from realm.data.blocks import BlockInputs, open_inputs
from realm.errors import SnapshotError
from realm.index.embed import embed_blocks
from realm.nn.embedder import Embedder
from realm.nn.model import RealmModel
from realm.nn.precision import multiplying

PART_ROWS = 2048
"""Rows that become durable together: what a killed build loses at most. Batches are sorted by length within a part."""
TOKENS_PER_BATCH = 16384
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
    """

    workers: int = 1
    devices: tuple[str, ...] = ()
    threads: int = 0
    bf16: bool = False

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
        bf16: multiply in bfloat16 where the embedder's device does so in hardware; vectors are float32 all the same.
    """
    embedder.eval()
    device = next(embedder.parameters()).device.type

    def embed(batch: list[int]) -> torch.Tensor:
        with multiplying(device, bf16=bf16):
            return embedder(inputs.blocks([int(rows[i]) for i in batch])).float().cpu()

    return embed_blocks(embed, inputs.lengths(rows), np.arange(len(rows)), tokens_per_batch=TOKENS_PER_BATCH, progress=progress)


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
            return embed_corpus(embedder, inputs, inputs.store.rows_of(part), told, bf16=options.bf16)

        arguments = (str(params), str(inputs.store.path), inputs.featurizer.query_length, options)
        with Workers(options.processes) as workers:
            for (at, part), vectors in workers.in_order(items, here, _worker, arguments):
                if progress is not None:
                    progress(at + len(part), len(rows))
                yield vectors

    return parts


def _worker(params: str, corpus: str, query_length: int, options: EmbedOptions) -> Callable[[tuple[int, np.ndarray]], np.ndarray]:
    """In another process: what embeds one part."""
    number = int(current_process().name.rpartition("-")[2])  # "SpawnProcess-3": processes of a pool are numbered one after another
    threads = options.threads or max(1, usable_cores() // options.processes)
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
        try:
            rows = inputs.store.rows_of(block_ids)
        except KeyError as error:  # compacted meanwhile
            raise SnapshotError(f"the corpus changed while it was embedded: {error.args[0]}", path=corpus, cure="Start again") from error
        return embed_corpus(embedder, inputs, rows, bf16=bf16)

    return embed
