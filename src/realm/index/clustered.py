"""The serving index: an approximate search of the likeliest clusters, which measures its own recall and gives way to exact search.

Rows are sorted by cluster and coded in 8 bits, so that a cluster is a run of groups for the scan of the compressed index. A query goes
through the clusters in the order of the best score that a row of each may have (the centroid's score and REACH standard deviations) until it
has seen its share of the rows; the best by the scan are scored exactly.

How large that share must be is measured when the index is made: on sample queries against exact search. Where no small share reaches the
floor, all searches are exact ones.
"""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from realm.index.base import Hidden, RowIndex
from realm.index.clusters import Clusters, cluster_rows
from realm.index.compressed import CompressedIndex
from realm.index.group_scan import GroupScan, NativeScan
from realm.index.library_scan import LibraryScan
from realm.index.mips import Metric
from realm.index.native.kernel import GROUP, installed_kernel
from realm.index.quantised import QuantisedRows, array_shapes
from realm.index.scan import SAFE_PRODUCT, Best

logger = logging.getLogger(__name__)

FLOOR = 0.98
DEPTH = 8  # the k whose recall is measured
SMALLEST = 20_000  # rows below which an exact search is as fast
LARGEST_SHARE = 0.25  # of the rows that a query may have to see: beyond it, an exact search is hardly slower
SAMPLE = 128  # queries that say how many rows must be seen, and as many others that measure the recall
NOISE = 0.7  # of the sample queries, in standard deviations of the components
SPARE, LEAST_LIST = 4, 32  # rows scored exactly: SPARE * k + LEAST_LIST
PROBED_QUERIES = 16  # scanned together: bounds the memory of their scores
WIDER = 4  # how much more is seen when a search found too little
CHUNK = 1 << 16  # rows coded at a time, a multiple of GROUP


@dataclass(frozen=True)
class Quality:
    """What the index knows of itself: its recall at ``DEPTH`` (None: not measured) and the rows that each query sees."""

    recall: float | None
    seen: int


class ClusteredIndex(RowIndex):
    """Approximate search over n rows. Scores and order are exact; recall at ``DEPTH`` was at least ``floor`` on the sample, or the search is exact.

    Args:
        vectors, ids, live, metric, values: see RowIndex; on a GPU all searches are exact.
        floor: of the recall.
        sample: float32 [s,d], queries to measure with, like those to come; None: rows of the index with noise.
        seed: of clusters and sample.

    Raises:
        SnapshotError: see RowIndex.
        ValueError: a floor that is not in 0 to 1; sample queries that do not fit.
    """

    kind = "clustered"

    def __init__(
        self,
        vectors: np.ndarray | torch.Tensor,
        ids: np.ndarray,
        live: np.ndarray | None = None,
        *,
        metric: Metric = "ip",
        values: np.ndarray | None = None,
        floor: float = FLOOR,
        sample: torch.Tensor | None = None,
        seed: int = 0,
    ):
        if not 0 <= floor <= 1:
            raise ValueError(f"the floor of the recall must be in 0 to 1, not {floor}")
        self._exact: CompressedIndex | None = None
        super().__init__(vectors, ids, live, metric=metric, values=values)
        self._floor = floor
        self._exact = CompressedIndex(self._vectors, self._ids, live, metric=metric)
        self._quality = Quality(None, len(self))
        if self._vectors.device.type == "cpu" and len(self) >= SMALLEST:
            self._cluster(sample, seed)
