"""How large everything in ``gpu_suite.py`` is, at full size on a GPU and at toy size on a CPU."""

from dataclasses import dataclass
from pathlib import Path

import torch

from bench_step import BLOCK, QUERY

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Size:
    """How large everything is.

    Args:
        parity, step, trained: presets of those parts.
        batches: queries of a step, each a row.
        blocks: embeddings searched.
        steps: of pre-training, for the slow-down and for the long run.
        documents: JSONL.xz, or None for the atlas.
        threads: of the CPU.
    """

    parity: str
    step: str
    trained: str
    batches: tuple[int, ...]
    query: int
    block: int
    blocks: int
    steps: tuple[int, int]
    documents: Path | None
    threads: int


def size_of(toy: bool, documents: Path | None, threads: int) -> Size:
    torch.set_num_threads(threads)
    if toy:
        return Size("tiny", "tiny", "tiny", (1, 2), 16, 32, 20_000, (40, 4), documents, threads)
    return Size("mini", "base", "small", (4, 8, 16, 32, 64), QUERY, BLOCK, 13_350_000, (120, 20_000), documents, threads)


def device_in_words() -> str:
    return torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"
