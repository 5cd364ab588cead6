"""Embedding many blocks with little padding: sort by length, fill batches up to a number of tokens, put the results back in order."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from realm.errors import SnapshotError


def embed_blocks(
    embed: Callable[[list[int]], torch.Tensor],
    lengths: np.ndarray,
    rows: np.ndarray,
    *,
    tokens_per_batch: int = 16384,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Embed the blocks ``rows``. The batches depend on the arguments only, so the same call gives the same bits.

    Args:
        embed: row numbers of one batch -> [m,d], any floating type and device; called without gradients.
        lengths: [n], tokens of every block of the corpus, as ``embed`` will pad them.
        rows: integer [r], positions in ``lengths``, any order.
        tokens_per_batch: bound on m * longest, in tokens; a single block may exceed it.

    Returns:
        float32 [r,d], in the order of ``rows``; [0,0] without rows, where d is unknown.

    Raises:
        SnapshotError: an embedding that is not finite.
        ValueError: ``embed`` returned another shape than [m,d].
    """
    result: np.ndarray | None = None
    done = 0
    for batch in length_batches(lengths[rows], tokens_per_batch):
        with torch.no_grad():
            vectors = embed(rows[batch].tolist()).detach().float().cpu().numpy()
        if vectors.ndim != 2 or len(vectors) != len(batch):
            raise ValueError(f"embed returned {list(vectors.shape)} for {len(batch)} blocks")
        if not np.isfinite(vectors).all():
            row = int(rows[batch][~np.isfinite(vectors).all(axis=1)][0])
            raise SnapshotError(f"the embedding of row {row} is not finite", cure="Go back to an earlier checkpoint")
        if result is None:
            result = np.empty((len(rows), vectors.shape[1]), np.float32)
        result[batch] = vectors
        done += len(batch)
        if progress is not None:
            progress(done, len(rows))
    return np.zeros((0, 0), np.float32) if result is None else result


def length_batches(lengths: np.ndarray, tokens_per_batch: int) -> Iterator[np.ndarray]:
    """Positions [m] in ``lengths``, each batch at most tokens_per_batch when padded to its longest.

    The longest come first: a batch that does not fit into memory fails at once, not after an hour.

    Raises:
        ValueError: tokens_per_batch is not positive.
    """
    if tokens_per_batch < 1:
        raise ValueError(f"tokens_per_batch must be positive, not {tokens_per_batch}")
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = start + max(1, tokens_per_batch // longest)
        yield order[start:stop]
        start = stop
