"""Rows in clusters: k-means in two levels, so that assigning millions of rows costs seconds.

Cells are learnt from a sample, then a share of the centroids inside each cell. A row is compared with the cells and then only with the
centroids of the few cells nearest to it: about 2 sqrt(c) comparisons instead of c.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

ROUNDS = 6  # of k-means, on each level
SAMPLE = 24  # rows a centroid is learnt from
NEAREST_CELLS = 2  # whose centroids a row is compared with
CHUNK = 1 << 17  # rows assigned together


@dataclass(frozen=True)
class Centroids:
    """c centroids in cells. values: float32 [c,d]. cells: float32 [e,d]. starts: int64 [e+1], cell i holds starts[i] to starts[i+1]."""

    values: torch.Tensor
    cells: torch.Tensor
    starts: np.ndarray

    def nearest(self, vectors: torch.Tensor) -> torch.Tensor:
        """The centroid of each of vectors [r,d], near to the nearest: int64 [r]."""
        ranks = distance_ranks(vectors, self.cells).numpy()
        best = torch.full((len(vectors),), -torch.inf)
        found = torch.zeros(len(vectors), dtype=torch.int64)
        for _ in range(min(NEAREST_CELLS, len(self.cells))):
            column = torch.from_numpy(ranks.argmax(axis=1))  # some times as fast as torch's topk or max
            ranks[np.arange(len(ranks)), column] = -np.inf
            order = column.argsort()
            bounds = torch.searchsorted(column[order], torch.arange(len(self.cells) + 1)).tolist()
            for cell, (start, stop) in enumerate(pairwise(bounds)):
                first, last = int(self.starts[cell]), int(self.starts[cell + 1])
                if start == stop or first == last:
                    continue
                rows = order[start:stop]
                near = distance_ranks(vectors[rows], self.values[first:last])
                number = torch.from_numpy(near.numpy().argmax(axis=1))
                rank = near.gather(1, number[:, None])[:, 0]
                better = rank > best[rows]
                best[rows[better]], found[rows[better]] = rank[better], number[better] + first
        return found

    def moved_to(self, means: torch.Tensor, sizes: np.ndarray) -> "Centroids":
        """These after a round of k-means: where their rows have their means.

        Args:
            means: float32 [c,d], of the rows of each centroid.
            sizes: int64 [c], how many rows those are; a centroid without any stays where it is.
        """
        values = torch.where(torch.from_numpy(sizes > 0)[:, None], means, self.values)
        weights = torch.from_numpy(np.maximum(sizes, 1)).float()[:, None]
        cell = torch.from_numpy(np.repeat(np.arange(len(self.cells)), np.diff(self.starts)))
        sums = torch.zeros_like(self.cells).index_add_(0, cell, values * weights)
        total = torch.zeros(len(self.cells), 1).index_add_(0, cell, weights)
        return Centroids(values, torch.where(total > 0, sums / total.clamp_min(1), self.cells), self.starts)


def distance_ranks(vectors: torch.Tensor, centroids: torch.Tensor) -> torch.Tensor:
    """[r,c], larger for nearer centroids: q.c - |c|^2 / 2."""
    return torch.addmm(-centroids.square().sum(1)[None] / 2, vectors, centroids.T)


def learn_centroids(vectors: torch.Tensor, count: int, seed: int = 0) -> Centroids:
    """About ``count`` centroids of float32 vectors [n,d], from a sample of them; n >= count >= 1."""
    generator = torch.Generator().manual_seed(seed)
    # A sorted sample is read from a memory-mapped file in one direction.
    rows = torch.randint(len(vectors), (min(len(vectors), count * SAMPLE),), generator=generator).sort().values
    sample = vectors[rows]
    cells = _k_means(sample, max(1, round(count**0.5)), generator)
    cell = _assigned(sample, cells)
    values, starts = [], [0]
    for number in range(len(cells)):
        members = sample[cell == number]
        if len(members):
            share = min(len(members), max(1, round(count * len(members) / len(sample))))
            values.append(_k_means(members, share, generator))
        starts.append(starts[-1] + (len(values[-1]) if len(members) else 0))
    return Centroids(torch.cat(values), cells, np.array(starts))


def assign(vectors: torch.Tensor, centroids: Centroids) -> np.ndarray:
    """The centroid of each row: int32 [n]."""
    found = np.empty(len(vectors), np.int32)
    for start in range(0, len(vectors), CHUNK):
        found[start : start + CHUNK] = centroids.nearest(vectors[start : start + CHUNK]).numpy()
    return found


def _k_means(sample: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    """Lloyd's rounds from randomly chosen rows; a centroid that loses all its rows stays where it was."""
    centroids = sample[torch.randperm(len(sample), generator=generator)[:count]].clone()
    for _ in range(ROUNDS if count > 1 else 1):
        nearest = _assigned(sample, centroids)
        sums = torch.zeros_like(centroids).index_add_(0, nearest, sample)
        sizes = torch.bincount(nearest, minlength=len(centroids))
        centroids = torch.where(sizes[:, None] > 0, sums / sizes.clamp_min(1)[:, None], centroids)
    return centroids


def _assigned(sample: torch.Tensor, centroids: torch.Tensor) -> torch.Tensor:
    """The nearest of a few centroids for each row: int64 [s]."""
    parts = [distance_ranks(part, centroids).argmax(1) for part in sample.split(CHUNK)]
    return torch.cat(parts)
