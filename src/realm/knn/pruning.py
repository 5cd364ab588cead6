"""Smaller datastores: a new one with some of the pairs, or with near keys of one token merged; the old one is not touched.

``random`` keeps pairs by a hash of seed and number. ``known`` drops what the model predicts best by itself. ``merge`` cuts frequent tokens
down: every token keeps as many keys as fit under one common cap, and where it has more, near keys become their mean, which counts for all.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from realm.errors import ConfigError, DataError, SnapshotError
from realm.knn.building import Progress, publish_datastore
from realm.knn.datastore import COUNTS, WINDOWS, Datastore
from realm.knn.network import Network
from realm.knn.scoring import score_windows
from realm.knn.windows import PART_ROWS, WindowSet
from realm.storage.arrays import publish_array
from realm.storage.files import publish_directory

Method = Literal["random", "known", "merge"]
METHODS = ("random", "known", "merge")
MERGED_TOGETHER = 4096
"""Keys of one token that are clustered together: bounds the matrix of distances."""
ROUNDS = 4


def prune(
    source: Datastore,
    directory: Path,
    method: Method,
    keep: float,
    *,
    network: Network | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Datastore:
    """Publish a smaller datastore as ``directory``, which must not exist.

    Args:
        keep: share of its keys, above 0 to 1.
        network: the model that made it; needed by "known".
        seed: of "random", and of the first centres of "merge".
        progress: called with (tokens done, tokens in all) where the model runs again.

    Raises:
        ConfigError: an unknown method, a share out of range, or "known" without a model.
        SnapshotError: the directory exists; or "known" of keys that were merged.
    """
    if method not in METHODS:
        raise ConfigError(f"no way to prune named '{method}'", cure=f"It is one of: {', '.join(METHODS)}")
    if not 0 < keep <= 1:
        raise ConfigError(f"keep = {keep} is outside 0 to 1", cure="Give the share of the keys to keep.")
    if directory.exists():
        raise SnapshotError("exists already", path=directory, cure="Choose another directory")
    wanted = max(1, round(keep * len(source)))
    counts: np.ndarray | None = source.counts
    if method == "merge":
        rows, keys, counts = merged(np.asarray(source.snapshot.vectors), source.tokens, wanted, seed, counts)
    else:
        shuffled = np.random.default_rng(seed).permutation(len(source))
        rows = np.sort(shuffled[:wanted]) if method == "random" else _unknown_rows(source, network, wanted, progress)
        keys = source.snapshot.vectors
        counts = None if counts is None else counts[rows]
    chosen = np.arange(len(rows)) if method == "merge" else rows  # of ``keys``
    note: dict[str, Any] = {"method": method, "keep": keep, "from": len(source), **({} if method == "known" else {"seed": seed})}

    def parts(first_row: int) -> Iterator[np.ndarray]:
        for start in range(first_row, len(chosen), PART_ROWS):
            yield keys[chosen[start : start + PART_ROWS]]

    with publish_directory(directory) as staging:
        shutil.copytree(source.windows.path, staging / WINDOWS)
        counted = None if counts is None else publish_array(staging / COUNTS, counts.astype(np.int32))
        facts = replace(source.facts, keys=len(rows), seconds=0.0, pruned=(*source.facts.pruned, note), counts_sha256=counted)
        publish_datastore(staging, facts, WindowSet(staging / WINDOWS), parts, source.snapshot.block_ids[rows])
    return Datastore.open(directory)


def _unknown_rows(source: Datastore, network: Network | None, wanted: int, progress: Progress | None) -> np.ndarray:
    """The rows whose tokens the model finds least probable; of equals the first."""
    if network is None:
        raise ConfigError("what the model knows needs the model", cure="Name it.")
    if source.counts is not None:
        raise SnapshotError(
            "its keys were merged: the pairs that the model knows can no longer be found", path=source.path, cure="Prune by known first"
        )
    scored = score_windows(network, source.windows, None, 0, progress)
    known = scored.log_probs[source.snapshot.block_ids]
    if not np.isfinite(known).all():
        raise DataError("the model gives probabilities that are not finite", cure="Its weights are damaged or overflow.")
    return np.sort(np.argsort(known, kind="stable")[:wanted])


def merged(
    keys: np.ndarray, tokens: np.ndarray, wanted: int, seed: int, counts: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Near keys of the same token merged into their mean, so that about ``wanted`` are left.

    Args:
        keys: float [n,d].
        tokens: integer [n].
        wanted: keys to be left; one for each token at least.
        counts: pairs that each key stands for already, integer [n]; None: one.

    Returns:
        rows [m], ascending: of each merged key the first row in it; keys float32 [m,d]; counts int32 [m], which add up to those given.
    """
    rng, weight = np.random.default_rng(seed), np.ones(len(keys), np.int64) if counts is None else counts.astype(np.int64)
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
    row = np.concatenate(rows)
    back = np.argsort(row)
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
