"""How large everything in ``gpu_suite.py`` is, at full size on a GPU and at toy size on a CPU."""

from dataclasses import dataclass
from pathlib import Path

import torch

from bench_step import BLOCK, QUERY

MINILM = {"hidden": 384, "layers": 6, "heads": 12, "intermediate": 1536, "projection": 384}
"""all-MiniLM-L6-v2's sizes."""
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Size:
    """How large everything is.

    Args:
        parity, trained: presets of those parts.
        steps_of: networks whose steps are measured, by name: a preset, or [model]'s sizes in its place.
        batches: queries of a step, each a row.
        blocks: embeddings searched.
        steps: of pre-training, for the slow-down and for the long run.
        documents: JSONL.xz, or None for the atlas.
        threads: of the CPU.
    """

    parity: str
    steps_of: dict[str, dict[str, int]]
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
        return Size("tiny", {"tiny": {}}, "tiny", (1, 2), 16, 32, 20_000, (40, 4), documents, threads)
    return Size(
        "mini", {"base": {}, "minilm": MINILM}, "small", (4, 8, 16, 32, 64), QUERY, BLOCK, 13_350_000, (120, 20_000), documents, threads
    )


def device_in_words() -> str:
    return torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"
