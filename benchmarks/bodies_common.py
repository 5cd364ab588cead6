"""What the benchmarks of published bodies share: turns with both clocks, the same blocks as sentence-transformers takes them."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from realm.corpus.store.blocks import BlockStore
from realm.nn.known_bodies import body_directory


def alternated(ways: dict[str, Callable[[], Any]], rounds: int, *, warm: bool = True) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Let the ways take turns, in another order each round. Returns medians of wall and processor seconds, and each way's last result.

    Args:
        ways: name -> what is timed.
        rounds: turns of each that count.
        warm: one more round first, which does not count.
    """
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, Any] = {}
    names = list(ways)
    for turn in range(-int(warm), rounds):
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            started, worked = time.perf_counter(), time.process_time()
            found[name] = ways[name]()
            if turn >= 0:
                wall[name].append(time.perf_counter() - started)
                cpu[name].append(time.process_time() - worked)
    medians = {
        name: {"seconds": round(statistics.median(wall[name]), 4), "cpu_seconds": round(statistics.median(cpu[name]), 4)} for name in names
    }
    return medians, found


def block_texts(store: BlockStore, rows: np.ndarray) -> list[str]:
    """Blocks as one text each, of which BERT's tokenizer makes our own input to the wordpiece: [CLS] title [SEP] body [SEP]."""
    blocks = [store.block(int(row)) for row in rows]
    return [f"{block.title} [SEP] {block.text}" for block in blocks]


def sentence_transformer(source: str | Path, *, bf16: bool = False) -> Any:
    """sentence-transformers' own model of a body by name or directory, on the processor.

    Raises:
        SystemExit: sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise SystemExit(f"pip install sentence-transformers: {error}") from None
    directory = Path(source) if Path(source).is_dir() else body_directory(str(source))
    return SentenceTransformer(str(directory), device="cpu", model_kwargs={"dtype": "bfloat16" if bf16 else "float32"})


def lowest_cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Of the vectors [n, d] of the same rows."""
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return float(((ours * theirs).sum(1) / lengths).min())
