"""Smaller datastores: a new one with some of the pairs, or with near keys of one token merged; the old one is not touched.

``random`` keeps a random share. ``merge`` cuts frequent tokens down: every token keeps as many keys as fit under one common cap, and where
it has more, near keys become their mean, which counts for all.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from realm.errors import ConfigError, SnapshotError
from realm.knn.datastore import Datastore, publish_datastore
from realm.knn.windows import PART_ROWS
from realm.storage.files import publish_directory

Method = Literal["random", "merge"]
METHODS = get_args(Method)
MERGED_TOGETHER = 4096
"""Keys of one token that are clustered together: bounds the matrix of distances."""
ROUNDS = 4


def prune(source: Datastore, directory: Path, method: Method, keep: float, seed: int = 0) -> Datastore:
    """Publish a smaller datastore as ``directory``, which must not exist.

    Args:
        keep: share of its keys, above 0 to 1.
        seed: of "random", and of the first centres of "merge".

    Raises ConfigError: an unknown method, or a share out of range. SnapshotError: the directory exists.
    """
    if method not in METHODS:
        raise ConfigError(f"no way to prune named '{method}'", cure=f"It is one of: {', '.join(METHODS)}")
    if not 0 < keep <= 1:
        raise ConfigError(f"keep = {keep} is outside 0 to 1", cure="Give the share of the keys to keep.")
    if directory.exists():
        raise SnapshotError("exists already", path=directory, cure="Choose another directory")
    wanted = max(1, round(keep * len(source)))
    keys, values, note = source.snapshot.vectors, source.values, {"method": method, "keep": keep, "from": len(source), "seed": seed}
    if method == "merge":
        rows, keys, counts = merged(np.asarray(keys), values, wanted, seed)
        chosen, values = np.arange(len(rows)), np.stack([source.tokens[rows], counts], 1)
    else:
        chosen = rows = np.sort(np.random.default_rng(seed).permutation(len(source))[:wanted])
        values = values[rows]

    def parts(first_row: int) -> Iterator[np.ndarray]:
        for start in range(first_row, len(chosen), PART_ROWS):
            yield keys[chosen[start : start + PART_ROWS]]

    with publish_directory(directory) as staging:
        facts = replace(source.facts, keys=len(rows), pruned=(*source.facts.pruned, note))
        publish_datastore(staging, facts, parts, source.snapshot.block_ids[rows], values)
    return Datastore.open(directory)


def merged(keys: np.ndarray, values: np.ndarray, wanted: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Near keys of the same token merged into their mean, so that about ``wanted`` are left, one for each token at least.

    Args:
        keys: float [n,d].
        values: integer [n,2]: token, and number of pairs that the key stands for already.

    Returns:
        rows [m], ascending: of each merged key the first row in it; keys float32 [m,d]; counts int32 [m], which add up to those given.
    """
    rng, tokens, weight = np.random.default_rng(seed), values[:, 0], values[:, 1].astype(np.int64)
    order = np.argsort(tokens, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(tokens[order])) + 1)
    cap = _cap(np.array([len(group) for group in groups]), wanted)
    rows, means, numbers = [], [], []
    for group in groups:
        left = min(len(group), cap)
        if left == len(group):
            rows.append(group)
            means.append(keys[group].astype(np.float32))
            numbers.append(weight[group])
            continue
        pieces = np.array_split(group, -(-len(group) // MERGED_TOGETHER))
        ends = np.round(np.cumsum([len(piece) for piece in pieces]) * left / len(group)).astype(np.int64)
        for piece, target in zip(pieces, np.diff(ends, prepend=0), strict=True):
            cluster = _clusters(keys[piece].astype(np.float32), max(1, int(target)), rng)
            named, first, inverse = np.unique(cluster, return_index=True, return_inverse=True)
            total = np.bincount(inverse, weights=weight[piece])
            sums = np.zeros((len(named), keys.shape[1]))
            np.add.at(sums, inverse, keys[piece].astype(np.float64) * weight[piece, None])
            rows.append(piece[first])
            means.append((sums / total[:, None]).astype(np.float32))
            numbers.append(total.astype(np.int64))
    back = np.argsort(row := np.concatenate(rows))
    return row[back], np.concatenate(means)[back], np.concatenate(numbers)[back].astype(np.int32)


def _cap(sizes: np.ndarray, wanted: int) -> int:
    """The largest cap for which min(size, cap) adds up to at most ``wanted``; at least 1."""
    low, high = 1, int(sizes.max())
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if int(np.minimum(sizes, middle).sum()) <= wanted else (low, middle - 1)
    return low


def _clusters(points: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """The cluster of each point [r,d], 0 to count - 1, by a few rounds of k-means; some may stay empty."""
    centres = points[np.sort(rng.choice(len(points), count, replace=False))]
    nearest = np.zeros(len(points), np.int64)
    for _ in range(ROUNDS):
        distance = np.square(centres).sum(1) - 2 * points @ centres.T  # less the points' own squares, which order nothing
        nearest = distance.argmin(1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        filled = np.bincount(nearest, minlength=count)
        centres = np.where(filled[:, None] > 0, sums / np.maximum(filled, 1)[:, None], centres).astype(np.float32)
    return nearest
