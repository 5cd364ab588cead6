"""A datastore holds the keys of its text in order, is built in parts that survive SIGKILL, and refuses models that did not make it."""

import itertools
import os
import shutil
import signal
from functools import partial

import numpy as np
import pytest
import torch
from knn_models import OPTIONS
from processes import ended, forked
from small import tree

from realm.errors import DataError, SnapshotError
from realm.knn.datastore import Datastore, build_from_texts, find_neighbours
from realm.knn.network import HubNetwork, load_network
from realm.knn.windows import TextOptions, windows_of_texts
from realm.storage import files


def parts_of(root):
    """All files but those that tell when and how long."""
    return {name: data for name, data in tree(root).items() if not name.endswith(("manifest.json", "datastore.json"))}


def test_keys_are_the_model_s(kind, built, networks, source_of):
    """Recomputed window by window, without batches: the key of every wanted token."""
    datastore, windows = built(kind), windows_of_texts(networks[kind], [source_of[kind]], OPTIONS)
    assert len(datastore) == windows.count > 400
    start = 0
    for number in range(len(windows)):
        window = windows.window(number)
        keys = networks[kind].read([window], log_probs=False).keys.numpy()
        rows = slice(start, start := start + len(window.places))
        np.testing.assert_allclose(datastore.snapshot.vectors[rows], keys, atol=1e-5)
        np.testing.assert_array_equal(datastore.tokens[rows], window.targets)
    assert start == len(datastore)


def test_smaller_keys_are_near(built):
    exact, small = built("causal").snapshot.vectors, built("causal", "float16").snapshot.vectors
    assert small.dtype == np.float32
    assert np.abs(exact - small).max() <= 2e-3 * np.abs(exact).max() and np.abs(exact - small).max() > 0


def test_neighbours_have_their_tokens_and_scores(built):
    datastore = built("causal")
    keys = datastore.snapshot.vectors.astype(np.float64)
    queries = torch.from_numpy(datastore.snapshot.vectors[5:25] + np.float32(0.01))
    found = find_neighbours(datastore.index("exact"), queries, 6)
    scores = -np.square(queries.numpy().astype(np.float64)[:, None] - keys[None]).sum(2)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :6]
    assert found.valid.all()
    np.testing.assert_allclose(found.scores, np.take_along_axis(scores, order, 1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found.tokens, datastore.tokens[order])


@pytest.mark.usefixtures("small_parts")
def test_a_finished_build_is_only_opened(tmp_path, networks, source_of):
    build = partial(build_from_texts, tmp_path / "d", networks["causal"], [source_of["causal"]])
    first = build(OPTIONS)
    before, seen = parts_of(tmp_path / "d"), []
    again = build(OPTIONS, progress=lambda *at: seen.append(at))
    assert parts_of(tmp_path / "d") == before and again.facts == first.facts and not seen
    with pytest.raises(SnapshotError, match="other sources"):
        build(TextOptions(context=16, stride=4))
    with pytest.raises(SnapshotError, match="keys of dtype float16"):
        build(OPTIONS, dtype="float32")


def killed_at(work, point, which):
    """Run ``work`` in a process that kills itself when ``point`` is reached for the ``which``-th time. Whether it did."""
    count = itertools.count(1)

    def killed():
        files.listener = lambda name, path: name == point and next(count) == which and os.kill(os.getpid(), signal.SIGKILL)
        work()

    code = ended(forked(killed))
    assert code in (0, -signal.SIGKILL), "the build itself failed"
    return code != 0


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(("kind", "dtype"), [("causal", "float32"), ("translation", "float16")])
def test_killed_at_every_point_and_taken_up(tmp_path, kind, dtype, networks, source_of):
    """SIGKILL at every write point, in a later part too: nothing unfinished can be opened, the next build equals one never killed."""

    def build(name):
        return build_from_texts(tmp_path / name, networks[kind], [source_of[kind]], OPTIONS, dtype=dtype)

    whole, expected, seen = build("whole"), parts_of(tmp_path / "whole"), 0
    for point in ("build: begun", "build: written", "build: synced", "build: whole", "file: staged", "file: renamed"):
        for which in (1, 3) if point == "build: synced" else (1,):
            name = f"{point}-{which}".replace(": ", "-")
            seen += killed_at(lambda name=name: build(name), point, which)
            with pytest.raises(SnapshotError, match=r"not finished|no datastore here"):
                Datastore.open(tmp_path / name)
            assert build(name).facts.keys == whole.facts.keys and parts_of(tmp_path / name) == expected
            shutil.rmtree(tmp_path / name)
    assert seen == 7


@pytest.fixture
def copy(tmp_path, built):
    return shutil.copytree(built("causal").path, tmp_path / "copy")


def test_lost_facts_are_found_and_written_again(copy, networks, source_of, refused, say):
    (copy / "datastore.json").unlink()
    for verb in ("verify", "repair"):
        assert "1 damaged" in refused(verb, copy)
    build_from_texts(copy, networks["causal"], [source_of["causal"]], OPTIONS, dtype="float32")
    say("verify", copy)


def test_another_model_is_refused(copy, model_directories, networks):
    other = load_network(model_directories["causal"])
    assert len(Datastore.open(copy, other)) > 0
    with torch.no_grad():
        next(other.model.parameters()).add_(1.0)
    with pytest.raises(SnapshotError, match="made by another model"):
        Datastore.open(copy, HubNetwork(other.model, other.tokenizer))
    with pytest.raises(SnapshotError, match=r"the layer 'transformer\.h\.1\.mlp', not 'transformer\.h\.0\.mlp'"):
        Datastore.open(copy, load_network(model_directories["causal"], layer="transformer.h.0.mlp"))
    with pytest.raises(SnapshotError, match="made by a causal model"):
        Datastore.open(copy, networks["translation"])


def test_another_tokenizer_or_dimension_is_refused(copy, model_directories):
    other = load_network(model_directories["causal"])
    other.tokenizer.add_tokens(["more"])
    with pytest.raises(SnapshotError, match="another tokenizer"):
        Datastore.open(copy, HubNetwork(other.model, other.tokenizer))
    with pytest.raises(SnapshotError, match="keys of 24 dimensions, the model's have 7"):
        find_neighbours(Datastore.open(copy).index(), torch.zeros(2, 7), 3)


def test_a_key_that_is_not_finite_is_refused(tmp_path, model_directories, source_of):
    broken = load_network(model_directories["causal"])
    with torch.no_grad():
        broken.model.transformer.h[1].ln_2.weight[3] = torch.nan
    with pytest.raises(DataError, match=r"the key of token 0 at the layer 'transformer.h.1.mlp' is not finite"):
        build_from_texts(tmp_path / "d", broken, [source_of["causal"]], OPTIONS)
    with pytest.raises(SnapshotError, match="not finished"):
        Datastore.open(tmp_path / "d")


def test_what_is_no_query_or_no_datastore_is_refused(built, tmp_path):
    with pytest.raises(DataError, match="not finite"):
        find_neighbours(built("causal").index(), torch.full((1, 24), torch.nan), 2)
    with pytest.raises(SnapshotError, match="no datastore here"):
        Datastore.open(tmp_path)
