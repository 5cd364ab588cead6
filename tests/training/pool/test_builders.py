"""A pool makes the bytes that one process makes, whoever dies on the way."""

import json
import os
import signal
import sys
import threading

import numpy as np
import pytest
import torch

from realm.documents.ingest.builder import build_corpus
from realm.errors import ConfigError, PoolError
from realm.models.model import RealmModel
from realm.models.spec import BodySpec, bert_spec, one_body
from realm.search.blocks import open_inputs
from realm.search.publishing import embedding
from realm.search.publishing.embedding import EmbedOptions
from realm.search.publishing.generation import open_generation
from realm.search.publishing.parameters import parameters_path, publishing, request_index
from realm.search.publishing.refresher import Refresher, refresh_index
from realm.storage.files import sha256_file
from realm.storage.generations import generation_path
from realm.storage.paths import RunPaths
from realm.training.pool import builders
from realm.training.pool.builders import Builder, BuilderPool

ONE = EmbedOptions(threads=1)
DOCUMENTS, PART = 60, 7


class Fatal(Builder):
    """Dies over every part that holds the first block."""

    def embed(self, request, block_ids):
        if block_ids[0] == 0:
            os._exit(3)
        return super().embed(request, block_ids)


class FatalPool(BuilderPool):
    actor = Fatal


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(embedding, "PART_ROWS", PART)


@pytest.fixture
def run(tmp_path):
    """A corpus of nine parts, its model, and generation 1 made without a pool."""
    paths, text = RunPaths(tmp_path / "run"), "The town lies at the river. Its {} bridges are old. "
    rows = [{"id": f"d{i}", "title": f"Town {i}", "text": text.format(i) * (1 + i % 5)} for i in range(DOCUMENTS)]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    build_corpus([tmp_path / "docs.jsonl"], paths.corpus, vocab_size=300)
    inputs = open_inputs(paths.corpus, 32)
    torch.manual_seed(0)
    sizes = {"hidden": 32, "layers": 1, "heads": 2, "intermediate": 64}
    body = bert_spec(vocab_size=inputs.store.tokenizer.vocab_size, max_length=352, dropout=0.1, attention_dropout=0.0, **sizes)
    model = RealmModel(one_body(BodySpec(body.config), projection=16))
    refresh_index(model, inputs, paths, step=1)
    return paths, inputs, model


@pytest.fixture(scope="module")
def pool(cluster):
    """Two actors for all tests of this file; they are killed now and then."""
    with BuilderPool(2) as pool:
        yield pool


def tick(run, pool, seen, options=ONE):
    """Ask for an index of the same parameters and let the pool answer. ``seen`` gets the rows done."""
    paths, inputs, _ = run
    refresher = Refresher(paths, inputs, options, lambda done, total: seen.append(done), pool.parts)
    with publishing(paths.index):
        return refresher.tick()


def same_bytes(paths, first, second):
    """Whether two generations of the same parameters differ in nothing but number, step and time."""
    one, other = (generation_path(paths.index, number) for number in (first, second))
    manifests = [json.loads((place / "manifest.json").read_text("utf-8")) for place in (one, other)]
    for manifest in manifests:
        for name in ("generation", "params_generation", "step", "seconds", "manifest_sha256"):
            manifest.pop(name)
    files = sorted(path.name for path in one.iterdir())
    assert files == sorted(path.name for path in other.iterdir()) and manifests[0] == manifests[1]
    return all(sha256_file(one / name) == sha256_file(other / name) for name in files if name.endswith(".npy"))


def pids(pool):
    import ray

    return [pid for _, pid in ray.get([actor.ready.options(max_task_retries=-1).remote() for actor in pool._actors])]


def test_the_bytes_of_one_process(run, pool):
    paths, inputs, model = run
    request_index(model, paths, 2)
    seen = []
    assert tick(run, pool, seen) == 2
    assert seen == [*range(PART, DOCUMENTS, PART), DOCUMENTS]
    assert same_bytes(paths, 1, 2) and open_generation(paths, inputs).number == 2


def test_an_actor_killed_over_a_part(run, pool):
    """It is stopped first, so that it has a part when it dies."""
    paths, _, model = run
    request_index(model, paths, 2)
    assert tick(run, pool, []) == 2
    victim = pids(pool)[0]
    os.kill(victim, signal.SIGSTOP)
    killer = threading.Timer(0.5, os.kill, (victim, signal.SIGKILL))
    killer.start()
    request_index(model, paths, 3)
    assert tick(run, pool, []) == 3
    killer.join()
    assert same_bytes(paths, 1, 3)
    after = pids(pool)
    assert victim not in after and len(after) == 2, "Ray has started it again"


def test_taken_up_at_whole_parts(run, pool):
    """A coordinator that dies after two parts; the next one begins with the third, and the pool is fit for it."""
    paths, inputs, model = run
    request_index(model, paths, 2)
    seen = []

    class Killed(BaseException):
        """Stands for a coordinator that dies here."""

    def die(done, total):
        if done == 3 * PART:
            raise Killed

    with pytest.raises(Killed), publishing(paths.index):
        Refresher(paths, inputs, ONE, die, pool.parts).tick()
    assert tick(run, pool, seen) == 2
    assert seen[0] == 3 * PART and same_bytes(paths, 1, 2)


def test_a_part_that_kills_every_actor(run, cluster, monkeypatch):
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # actors do not stand where the tests do
    paths, _, model = run
    monkeypatch.setattr(builders, "MAX_DEATHS", 1)
    request_index(model, paths, 2)
    with FatalPool(1) as pool, pytest.raises(PoolError, match=r"2 actors died over rows 0 to 7\. .*run the same command again"):
        tick(run, pool, [])
    assert not (paths.index / "000002").exists()


def test_what_an_actor_cannot_open(run, pool, tmp_path):
    paths, inputs, _ = run
    rows, embedder = np.arange(DOCUMENTS), open_generation(paths, inputs).embedder
    missing = parameters_path(paths, 9)
    with pytest.raises(PoolError, match=r"000009.*\(in an actor on .+\)") as caught:
        list(pool.parts(embedder, missing, inputs, rows, ONE, None)(0))
    assert len(str(caught.value).splitlines()) == 1


def test_actors_that_do_not_fit(run, cluster, monkeypatch):
    paths, _, model = run
    monkeypatch.setattr(builders, "START_SECONDS", 0.1)
    request_index(model, paths, 2)
    with BuilderPool(2) as pool, pytest.raises(PoolError, match=r"none of 2 actors is up \(the cluster has CPU 8\)"):
        tick(run, pool, [], EmbedOptions(threads=64))


def test_no_actors():
    with pytest.raises(ConfigError, match="actors = 0 is below 1"):
        BuilderPool(0)
