"""Rows in actors give what one index over all rows gives, whoever dies on the way."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from realm.errors import ConfigError, PoolError
from realm.index.choice import make_index
from realm.index.delta import append_delta
from realm.index.live import FollowingIndex
from realm.index.mips import Hits, Metric, MipsIndex
from realm.index.snapshot import Snapshot, SnapshotFacts, publish_snapshot, read_generation
from realm.pool import searcher, searchers
from realm.pool.searchers import PooledIndex
from realm.storage.generations import generation_path

N, DIM = 500, 16
OWNER = {"corpus_id": "corpus", "tokenizer_sha256": "tokenizer", "document_embedder_sha256": "embedder"}
FACTS = SnapshotFacts(params_generation=1, step=1, corpus_version=1, **OWNER)
DATA = ["gaussian", "near ties", "duplicates", "all equal", "one huge row", "zeros"]


def rows(name: str, n: int = N) -> np.ndarray:
    rng = np.random.default_rng(DATA.index(name))
    gaussian = rng.standard_normal((n, DIM)).astype(np.float32)
    if name == "near ties":
        return np.float32(1) + gaussian * np.float32(2e-7)  # equal in float32 when scored, not in float64
    if name == "duplicates":
        return gaussian[rng.integers(0, 7, n)]
    if name == "all equal":
        return np.repeat(gaussian[:1], n, 0)
    if name == "one huge row":
        gaussian[n // 2] *= 1e30
    return np.zeros_like(gaussian) if name == "zeros" else gaussian


def publish(index: Path, vectors: np.ndarray) -> Snapshot:
    """A generation of two shards, opened: two thirds of the rows, and a delta."""
    ids = np.cumsum(np.random.default_rng(0).integers(1, 4, len(vectors))).astype(np.int64)
    first = 2 * len(vectors) // 3
    number = publish_snapshot(index, vectors[:first], ids[:first], FACTS).generation
    append_delta(index, number, vectors[first:], ids[first:], corpus_version=2)
    return read_generation(generation_path(index, number), number, {}, verify=True)


def assert_equal(found: Hits, expected: Hits) -> None:
    for name in ("ids", "scores", "valid"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def compare(pooled: MipsIndex, single: MipsIndex, ids: np.ndarray, seed: int = 0) -> None:
    """Hold two indexes of the same rows against each other, with and without exclusions, one result to all."""
    rng = np.random.default_rng(seed)
    queries = torch.from_numpy(rng.standard_normal((7, DIM)).astype(np.float32))
    exclude = [rng.choice(ids, size, replace=False) for size in (0, 1, 20, 300, 5, len(ids) - 2, len(ids))]
    exclude[1] = np.concatenate([exclude[1], exclude[1], [-1, 2**62]])  # repeated and unknown ids
    for k in (0, 1, 8, 200, len(ids) + 3):
        assert_equal(pooled.search(queries, k), single.search(queries, k))
        assert_equal(pooled.search(queries, k, exclude), single.search(queries, k, exclude))


class Reference:
    """What one call on an actor gives: here it is done when it is asked for."""

    def __init__(self, value: Any):
        self.value = value


class InThisProcess:
    """As much of Ray as an index needs, without any process: what is merged can be tested a thousand times."""

    exceptions = SimpleNamespace(GetTimeoutError=TimeoutError, RayTaskError=TimeoutError, RayError=TimeoutError)

    def remote(self, actor: type) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *given: self.started(actor(*given))))

    def started(self, actor: Any) -> Any:
        def call(name: str) -> Any:
            return SimpleNamespace(remote=lambda *given: Reference(getattr(actor, name)(*self.read(given))))

        return SimpleNamespace(best=call("best"), bytes=call("bytes"))

    def read(self, given: tuple[Any, ...]) -> list[Any]:
        return [one.value if isinstance(one, Reference) else one for one in given]

    def put(self, value: np.ndarray) -> Reference:
        value = value.copy()
        value.flags.writeable = False
        return Reference(value)

    def get(self, asked: Any, timeout: float = 0) -> Any:
        return [one.value for one in asked] if isinstance(asked, list) else asked.value

    def kill(self, actor: Any) -> None: ...


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = InThisProcess()
    for module in (searcher, searchers):
        monkeypatch.setattr(module, "ray", lambda: fake)


CASES = [*((name, "exact") for name in DATA), ("near ties", "compressed"), ("one huge row", "compressed")]


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_merged_as_one_index(no_ray: None, tmp_path: Path, name: str, kind: str, metric: Metric) -> None:
    vectors = rows(name)
    snapshot = publish(tmp_path, vectors)
    single = make_index(vectors, snapshot.block_ids, kind="exact", metric=metric)
    pooled = PooledIndex(tmp_path, snapshot, kind=kind, metric=metric, actors=3)
    compare(pooled, single, snapshot.block_ids)
    for seed in (1, 2):
        live = np.random.default_rng(seed).random(N) < 0.7
        pooled.set_live(live)
        single.set_live(live)
        compare(pooled, single, snapshot.block_ids, seed)
    pooled.set_live(None)
    single.set_live(None)
    compare(pooled, single, snapshot.block_ids)
    info = pooled.info()
    assert {"kind": "pool", "rows": N, "removed": 0, "dim": DIM, "metric": metric}.items() <= info.items() and info["bytes"] > 0


@pytest.mark.parametrize("n", [1, 2, 5])
def test_fewer_rows_than_actors(no_ray: None, tmp_path: Path, n: int) -> None:
    vectors = rows("gaussian", n)
    publish_snapshot(tmp_path, vectors, np.arange(n), FACTS)
    snapshot = read_generation(generation_path(tmp_path, 1), 1, {}, verify=True)
    pooled, single = PooledIndex(tmp_path, snapshot, actors=4), make_index(vectors, np.arange(n))
    queries = torch.from_numpy(rows("near ties", 3))
    assert_equal(pooled.search(queries, 4), single.search(queries, 4))


def test_bad_requests_are_those_of_any_index(no_ray: None, tmp_path: Path) -> None:
    snapshot = publish(tmp_path, rows("gaussian"))
    pooled = PooledIndex(tmp_path, snapshot)
    with pytest.raises(ValueError, match=r"\[b,16\]"):
        pooled.search(torch.ones(2, 7), 1)
    with pytest.raises(ValueError, match="1 exclusion lists for 2 queries"):
        pooled.search(torch.ones(2, DIM), 1, [np.zeros(0, np.int64)])
    with pytest.raises(ConfigError, match="actors = 0 is below 1"):
        PooledIndex(tmp_path, snapshot, actors=0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def snapshot(place: Path) -> Snapshot:
    return publish(place, rows("near ties"))


@pytest.fixture(scope="module")
def pooled(cluster: None, place: Path, snapshot: Snapshot) -> Iterator[PooledIndex]:
    """Two actors for the tests below; they are killed now and then."""
    index = PooledIndex(place, snapshot, kind="exact", actors=2)
    yield index
    index.close()


def pids(index: PooledIndex) -> list[int]:
    import ray

    return ray.get([actor.__ray_call__.remote(_pid) for actor in index._actors])


def _pid(actor: Any) -> int:
    return os.getpid()


def test_actors_merge_as_one_index(pooled: PooledIndex, snapshot: Snapshot) -> None:
    single = make_index(rows("near ties"), snapshot.block_ids, kind="exact")
    compare(pooled, single, snapshot.block_ids)
    live = np.arange(N) % 3 > 0
    pooled.set_live(live)
    single.set_live(live)
    compare(pooled, single, snapshot.block_ids)


def test_a_killed_searcher_is_asked_again(pooled: PooledIndex, snapshot: Snapshot) -> None:
    """In the middle of a search; tombstones, which it did not have when it started, included."""
    live = np.arange(N) % 5 > 1
    single = make_index(rows("near ties"), snapshot.block_ids, live, kind="exact")
    pooled.set_live(live)
    queries = torch.from_numpy(rows("gaussian", 4))
    expected = single.search(queries, 9)
    victim = pids(pooled)[1]
    os.kill(victim, signal.SIGSTOP)  # it has the question when it dies
    killer = threading.Timer(0.5, os.kill, (victim, signal.SIGKILL))
    killer.start()
    assert_equal(pooled.search(queries, 9), expected)
    killer.join()
    assert victim not in pids(pooled)


def test_a_silent_searcher_is_named(pooled: PooledIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = torch.ones(1, DIM)
    before = pooled.search(queries, 3)
    silent = pids(pooled)[0]
    os.kill(silent, signal.SIGSTOP)
    monkeypatch.setattr(pooled, "deadline", 0.3)
    started = time.monotonic()
    with pytest.raises(PoolError, match=r"searcher 1 \(rows 0 to 250\) of 2 did not answer within 0.3 s"):
        pooled.search(queries, 3)
    assert time.monotonic() - started < 60
    os.kill(silent, signal.SIGCONT)
    monkeypatch.undo()
    assert_equal(pooled.search(queries, 3), before)


def test_rows_that_are_gone(no_ray: None, tmp_path: Path) -> None:
    snapshot = publish(tmp_path, rows("gaussian"))
    (generation_path(tmp_path, 1) / "vectors-00000.npy").unlink()
    with pytest.raises(PoolError, match=r"vectors-00000.npy: missing \(in an actor on ") as caught:
        PooledIndex(tmp_path, snapshot, actors=1)
    assert len(str(caught.value).splitlines()) == 1


def test_removed_blocks_vanish_from_actors(no_ray: None, tiny_run: Path) -> None:
    """Through ``searched_by_actors``: the generation of a run, its actors, and a corpus that changes."""
    import shutil
    import tempfile

    from realm.corpus.change.updates import remove_documents
    from realm.data.blocks import open_inputs
    from realm.paths import RunPaths
    from realm.pool.searchers import searched_by_actors
    from realm.refresh import open_generation

    with tempfile.TemporaryDirectory() as root:
        paths = RunPaths(Path(shutil.copytree(tiny_run, Path(root) / "run")))
        inputs = open_inputs(paths.corpus, 32)
        generation = open_generation(paths, inputs)
        queries = torch.randn(3, generation.index.dim, generator=torch.Generator().manual_seed(0))
        with searched_by_actors(generation, paths, inputs.store, actors=2) as pooled:
            assert isinstance(pooled.index, FollowingIndex) and pooled.number == generation.number
            assert_equal(pooled.index.search(queries, 50), generation.index.search(queries, 50))
            first = int(pooled.index.search(queries, 1).ids[0, 0])
            remove_documents(paths.corpus, [inputs.store.block(int(inputs.store.rows_of(np.array([first]))[0])).doc_id])
            after = pooled.index.search(queries, 50)
            assert first not in after.ids and after.valid.sum() < 3 * len(inputs.store)
            assert_equal(after, generation.index.search(queries, 50))
