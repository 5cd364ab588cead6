"""The promises of every kind of index: exact kinds equal float64 brute force, the others keep the contract, on hostile input too."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hostile_vectors import hostile
from hypothesis import given, settings, strategies as st

from realm.errors import SnapshotError
from realm.search.index import choice, clustered, exact
from realm.search.index.choice import EXACT_ENTRIES, KINDS, chosen_kind, make_index
from realm.search.index.exact import CompressedIndex, exact_index
from realm.search.index.native.kernel import installed_kernel

EXACT = ("exact", "compressed")
"""Kinds that need no faiss."""
METRICS = ("ip", "l2")
DIMENSIONS = (1, 2, 7, 8, 40, 100, 2048)


@pytest.fixture(params=KINDS)
def kind(request, monkeypatch):
    if request.param not in EXACT:
        pytest.importorskip("faiss")
    monkeypatch.setattr(clustered, "MIN_ROWS", 500)
    monkeypatch.setattr(clustered, "MAX_SCANNED_SHARE", 2.0)  # so that lists are asked, whatever the rows are
    if request.param == "compressed" and installed_kernel() is None:
        pytest.skip("no kernel")
    return str(request.param)


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return str(request.param)


def brute_force(vectors, queries, metric):
    """The definition of a score: float64 [b,n]."""
    rows = vectors.astype(np.float64)
    if metric == "ip":
        return np.stack([(rows * query).sum(axis=1) for query in queries.astype(np.float64)])
    return np.stack([-np.square(rows - query).sum(axis=1) for query in queries.astype(np.float64)])


def check(index, hits, scores, ids, live=None, exclude=None, values=None):
    """Hold hits against the contract, and those of an exact kind against the best rows by ``scores`` [b,n], ties by id."""
    k, largest = hits.ids.shape[1], np.finfo(np.float32).max
    for i, score in enumerate(scores):
        allowed = np.ones(len(ids), bool) if live is None else live.copy()
        if exclude is not None:
            allowed &= ~np.isin(ids, exclude[i])
        count = min(k, int(allowed.sum()))
        assert hits.valid[i].tolist() == [True] * count + [False] * (k - count)
        assert (hits.ids[i, count:] == -1).all() and np.isneginf(hits.scores[i, count:]).all()
        rows = np.searchsorted(ids, hits.ids[i, :count])
        assert (ids[rows] == hits.ids[i, :count]).all() and allowed[rows].all() and len(set(rows.tolist())) == count
        np.testing.assert_array_equal(hits.scores[i, :count], score[rows].clip(-largest, largest).astype(np.float32))
        assert rows.tolist() == rows[np.lexsort((rows, -score[rows]))].tolist(), "best first, ties by id"
        if index.kind in EXACT:
            best = np.lexsort((ids, -score))
            assert rows.tolist() == best[allowed[best]][:count].tolist()
        if values is not None:
            assert hits.values is not None and hits.values.dtype == values.dtype
            np.testing.assert_array_equal(hits.values[i, :count], values[rows])
            assert not hits.values[i, count:].any()


NAMES = ["gaussian", "clusters", "all equal", "near ties", "duplicates", "one huge row", "norms of all sizes", "overflow"]
NAMES += ["denormals", "few denormals", "zeros"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("metric", METRICS)
def test_friendly_and_hostile_vectors(kind, metric, name, device):
    rng = np.random.default_rng(NAMES.index(name))
    n, d, b = 901, 24, 8
    vectors, ids = hostile(name, n, d, rng), np.sort(rng.choice(10**12, n, replace=False)).astype(np.int64)
    queries = rng.standard_normal((b, d)).astype(np.float32)
    queries[0], queries[1], queries[2], queries[3] = vectors[3], 0, queries[2] * 1e3, queries[3] * 1e-30
    live = rng.random(n) < 0.8
    exclude = [rng.choice(ids, size, replace=False) for size in (0, 1, 50, 300, 5, 890, 0, n)]
    exclude[1] = np.concatenate([exclude[1], exclude[1], [-1, 5, 2**62]])  # repeated and unknown ids
    values, scores = rng.integers(0, 30000, n).astype(np.uint16), brute_force(vectors, queries, metric)
    index = make_index(vectors, ids, live, kind=kind, metric=metric, values=values, device=device)
    for k in (1, 5, 8, 600, 2000):
        hits = index.search(queries, k, exclude)
        assert hits.ids.shape == hits.scores.shape == hits.valid.shape == (b, k)
        check(index, hits, scores, ids, live, exclude, values)
    index.set_live(None)
    check(index, index.search(queries, 8), scores, ids, values=values)
    index.set_live(np.zeros(n, bool))
    assert not index.search(queries, 8).valid.any()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(st.sampled_from(DIMENSIONS), *(st.integers(*both) for both in ((0, 200), (0, 205), (0, 5), (-30, 30))), st.sampled_from(METRICS))
def test_tiny_corpora(kind, d, n, k, b, exponent, metric):
    if kind not in EXACT and not find_spec("faiss"):
        return
    rng = np.random.default_rng([d, n, k, b, exponent + 30])
    vectors = rng.integers(-1, 2, (n, d)).astype(np.float32) * np.float32(10.0**exponent)  # few numbers: plenty of exact ties
    ids = np.cumsum(rng.integers(1, 5, n)).astype(np.int64)
    live = rng.random(n) < rng.random()
    exclude = [rng.integers(0, 250, rng.integers(0, 90)).astype(np.int64) for _ in range(b)]
    queries = rng.integers(-1, 2, (b, d)).astype(np.float32)
    index = make_index(vectors, ids, live, kind=kind, metric=metric)
    scores = brute_force(vectors, queries, metric) if b else np.zeros((0, n))
    check(index, index.search(queries, k, exclude), scores, ids, live, exclude)


@pytest.mark.parametrize("metric", METRICS)
def test_many_results(kind, metric):
    rng = np.random.default_rng(9)
    vectors, ids = hostile("clusters", 6000, 16, rng), np.arange(6000, dtype=np.int64) + 7  # consecutive ids take a way of their own
    queries, exclude = vectors[:3] + np.float32(0.01), [ids[:1000] - 10, ids[5000:] + 10, ids[::2]]
    index = make_index(vectors, ids, kind=kind, metric=metric)
    check(index, index.search(queries, 5000, exclude), brute_force(vectors, queries, metric), ids, exclude=exclude)


def test_info_and_bad_names(kind):
    vectors, ids = np.random.default_rng(0).standard_normal((800, 32)).astype(np.float32), np.arange(800, dtype=np.int64)
    facts = make_index(vectors, ids, ids % 4 > 0, kind=kind, metric="l2").info()
    assert facts.pop("bytes") > 800
    assert {"kind": kind, "rows": 800, "removed": 200, "dim": 32, "metric": "l2"}.items() <= facts.items()
    vectors, ids = np.ones((3, 8), np.float32), np.arange(3, dtype=np.int64)
    with pytest.raises(ValueError, match="metric must be ip or l2, not cosine"):
        make_index(vectors, ids, kind=kind, metric="cosine")
    with pytest.raises(ValueError, match="no index kind 'hnsw'; there are: auto, exact"):
        make_index(vectors, ids, kind="hnsw")


def test_values_of_any_plain_type(kind):
    vectors, ids = np.eye(40, dtype=np.float32), np.arange(40, dtype=np.int64) + 7
    queries = vectors[[3, 39]]
    for values in (np.arange(40, dtype=np.int32), np.arange(80.0).reshape(40, 2), np.array([f"v{i}" for i in range(40)])):
        hits = make_index(vectors, ids, kind=kind, values=values).search(queries, 50)
        assert hits.values is not None and hits.values.shape == (2, 50, *values.shape[1:])
        np.testing.assert_array_equal(hits.values[:, 0], values[[3, 39]])
        assert not hits.values[:, 40:].astype(bool).any()
    assert make_index(vectors, ids, kind=kind).search(queries, 3).values is None
    for wrong in (np.arange(39), np.array(3), np.array([None] * 40)):
        with pytest.raises(SnapshotError, match=r"values must be \[40,...\] of a plain type"):
            make_index(vectors, ids, kind=kind, values=wrong)


@pytest.mark.parametrize(("vectors", "ids", "live", "match"), [
    (np.array([[1.0, np.nan]], np.float32), [3], None, "vector 0 .*not finite"),
    (np.array([[1.0, 1.0], [np.inf, 0]], np.float32), [3, 4], None, "vector 1 .*not finite"),
    (np.array([[1.0, 1.0], [-np.inf, np.inf]], np.float32), [3, 4], None, "vector 1 .*not finite"),
    (np.array([[1.0, 1.0], [1e300, 0]]), [3, 4], None, "vector 1 .*not finite"),
    (np.ones((2, 2), np.int32), [3, 4], None, "floating point"), (np.ones(2, np.float32), [3, 4], None, r"\[n,d\]"),
    (np.ones((2, 0), np.float32), [3, 4], None, r"\[n,d\]"), (np.ones((2, 2049), np.float32), [3, 4], None, "d of 1 to 2048"),
    (np.ones((2, 2), np.float32), [3], None, r"int64 \[2\]"), (np.ones((2, 2), np.float32), [4, 4], None, "ascending"),
    (np.ones((2, 2), np.float32), [-1, 4], None, "non-negative"), (np.ones((2, 2), np.float32), [3, 4], [True], r"bool \[2\]"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:overflow")
def test_bad_input_is_refused_at_build(kind, vectors, ids, live, match):
    with pytest.raises(SnapshotError, match=match):
        make_index(vectors, np.array(ids, np.int64), None if live is None else np.array(live), kind=kind)


@pytest.mark.parametrize(("queries", "k", "exclude", "match"), [
    (np.ones((2, 7)), 1, None, r"\[b,8\]"), (np.ones(8), 1, None, r"\[b,8\]"), (np.ones((1, 2, 8)), 1, None, r"\[b,8\]"),
    (np.ones((2, 8), np.int64), 1, None, "floating point"),
    *((np.array([[0.0] * 8, [0.0] * 7 + [wrong]]), 1, None, "query 1 .*not finite") for wrong in (np.nan, np.inf, -np.inf)),
    (np.ones((2, 8)), -1, None, "k must be"), (np.ones((2, 8)), 1, [np.zeros(0, np.int64)], "1 exclusion lists for 2 queries"),
    (np.ones((2, 8)), 1, [np.zeros(0), np.ones(1)], "exclusion list 1 must be int64 block ids, not float64"),
])  # fmt: skip
def test_bad_queries_are_refused(kind, queries, k, exclude, match):
    index = make_index(np.ones((3, 8), np.float16), np.arange(3, dtype=np.int64), kind=kind)
    with pytest.raises(ValueError, match=match):
        index.search(queries, k, exclude)
    with pytest.raises(SnapshotError, match=r"block ids must be int64 \[3\], not int32"):
        make_index(np.ones((3, 8), np.float32), np.arange(3, dtype=np.int32), kind=kind)
    with pytest.raises(SnapshotError, match=r"bool \[3\]"):
        index.set_live(np.ones(3, np.int64))


@pytest.mark.parametrize("kernel", [True, False])
def test_the_rule_of_auto(kernel, monkeypatch):
    monkeypatch.setattr(choice, "installed_kernel", lambda: object() if kernel else None)
    many = EXACT_ENTRIES // 128 + 1
    assert chosen_kind("auto", EXACT_ENTRIES // 128, 128) == ("exact", "2,097,152 components: up to 2,097,152 are scanned whole")
    for kind, why in (("auto", "more than 2,097,152 components"), ("compressed", "asked for")):
        used, said = chosen_kind(kind, many, 128)
        assert (used, said.startswith(why)) == (("compressed", True) if kernel else ("exact", False))
        assert kernel or "python -m realm.search.index.native.build" in said
        assert chosen_kind(kind, 13_353_718, 128, "cuda:0") == ("exact", "the vectors are on cuda:0, which scans them whole")
    assert chosen_kind("clustered", 3, 8) == ("clustered", "asked for")
    index = make_index(np.ones((3, 8), np.float32), np.arange(3, dtype=np.int64))
    assert index.kind == "exact" and index.info()["why"] == "24 components: up to 2,097,152 are scanned whole"


def test_without_a_kernel_the_same_is_found(monkeypatch):
    vectors, ids = hostile("clusters", 900, 16, np.random.default_rng(4)), np.arange(900, dtype=np.int64)
    queries = vectors[:7] + np.float32(0.1)
    for module in (choice, exact):
        monkeypatch.setattr(module, "installed_kernel", lambda: None)
    index = make_index(vectors, ids, kind="compressed")
    assert index.info()["kind"] == "exact" and exact_index(vectors, ids).kind == "exact"
    check(index, index.search(queries, 9), brute_force(vectors, queries, "ip"), ids)
    with pytest.raises(ValueError, match="needs the native kernel"):
        CompressedIndex(vectors, ids)
