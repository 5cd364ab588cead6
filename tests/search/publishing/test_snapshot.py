"""A generation is published whole or not at all, and damage is found before use."""

import hashlib
import json
import logging
import os
from pathlib import Path

import numpy as np
import pytest
from small import flip

from realm.errors import SnapshotError
from realm.search.index.exact import ExactIndex
from realm.search.publishing import snapshot as snapshot_module
from realm.search.publishing.snapshot import Snapshot, SnapshotFacts
from realm.search.publishing.writing import append_delta, publish_snapshot
from realm.storage.generations import current_generation, next_generation, prune

OWNER = {"corpus_id": "corpus-a", "tokenizer_sha256": "tok-a", "document_embedder_sha256": "emb-a"}


class Killed(BaseException):
    """Stands for a process that dies here."""


def rows(generation, ids, d=4):
    """Vectors that carry (generation, id), so that a row proves where it came from."""
    vectors = np.zeros((len(ids), d), np.float32)
    vectors[:, 0], vectors[:, 1] = generation, ids
    return vectors


def given(vectors):
    return lambda done: vectors if isinstance(vectors, list) else [vectors[done:]]


def publish(directory, n=6, **changes):
    number = changes.get("generation") or next_generation(directory)
    ids = np.arange(10, 10 + n, dtype=np.int64)
    values = {"params_generation": 3, "step": 40, "corpus_version": 1, **OWNER, **changes}
    values.pop("generation", None)
    vectors, block_ids = values.pop("vectors", rows(number, ids)), values.pop("block_ids", ids)
    return publish_snapshot(directory, given(vectors), block_ids, SnapshotFacts(**values), generation=changes.get("generation"))


def open_snapshot(directory, generation=None, **changes):
    return Snapshot.open(directory, generation, **{**OWNER, **changes})


def assert_unmixed(snapshot):
    np.testing.assert_array_equal(snapshot.vectors, rows(snapshot.manifest.generation, snapshot.block_ids))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not say which files are open")
def test_many_additions_hold_no_descriptors(tmp_path):
    """A server that takes in single documents all day has a shard for each."""
    publish(tmp_path / "index", n=6)
    before, opened = len(list(Path("/proc/self/fd").iterdir())), []
    for number in range(20, 40):
        ids = np.array([number])
        append_delta(tmp_path / "index", 1, given(rows(1, ids)), ids, number, ())
        opened.append(open_snapshot(tmp_path / "index"))
    assert len(opened[-1].shards) == 21 and len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def test_round_trip(tmp_path):
    assert current_generation(tmp_path / "index") is None and next_generation(tmp_path / "index") == 1
    manifest = publish(tmp_path / "index", segments=(("seg-0", 6),), tombstone_version=2)
    snapshot = open_snapshot(tmp_path / "index")
    assert snapshot.manifest == manifest
    assert (manifest.generation, manifest.revision, manifest.count, manifest.dim) == (1, 0, 6, 4)
    assert manifest.segments == (("seg-0", 6),) and manifest.tombstone_version == 2
    assert not isinstance(snapshot.vectors, np.memmap)  # too small to hold a descriptor for
    assert_unmixed(snapshot)
    assert sorted(path.name for path in (tmp_path / "index").iterdir()) == ["000001", "CURRENT"]
    assert ExactIndex(snapshot.vectors, snapshot.block_ids).dim == 4


def test_parts_make_one_file_and_empty_is_allowed(tmp_path):
    ids = np.arange(10, 16, dtype=np.int64)
    manifest = publish(tmp_path, vectors=[rows(1, ids[:4]), rows(1, ids[4:])])
    assert [(shard.rows, shard.first_block_id) for shard in manifest.shards] == [(6, 10)]
    np.testing.assert_array_equal(np.load(tmp_path / "000001" / "vectors-00000.npy"), rows(1, ids))
    assert_unmixed(open_snapshot(tmp_path))
    publish(tmp_path, n=0)
    assert open_snapshot(tmp_path).vectors.shape == (0, 4)


def test_smaller_rows_are_near(tmp_path):
    """Rows of very different sizes, one of zeros: no component is further off than half a step of its own row."""
    vectors = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32) * np.float32(10.0) ** np.arange(-3, 3)[:, None]
    vectors[2] = 0
    publish(tmp_path, vectors=vectors.astype(np.float32), dtype="float16")
    found = open_snapshot(tmp_path).vectors
    assert found.dtype == np.float32 and found.shape == (6, 4) and not found[2].any()
    assert (np.abs(found - vectors) <= 1.01 * 2.0**-11 * np.abs(vectors).max(1, keepdims=True)).all()


def test_a_generation_that_current_never_reached_is_replaced(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("realm.storage.generations.advance_current", lambda *args: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            publish(tmp_path, generation=1, step=7)
    assert (tmp_path / "000001").is_dir() and current_generation(tmp_path) is None
    with pytest.raises(SnapshotError, match="no index generation has been published"):
        open_snapshot(tmp_path)
    publish(tmp_path, generation=1, step=8)
    assert open_snapshot(tmp_path).manifest.step == 8
    with pytest.raises(SnapshotError, match="never rewritten"):
        publish(tmp_path, generation=1)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink], ids=["flipped", "truncated", "missing"])
@pytest.mark.parametrize("file", ["vectors-00000.npy", "block_ids-00000.npy", "manifest.json"])
def test_damage_is_quarantined_and_the_older_one_used(file, damage, tmp_path, caplog):
    publish(tmp_path)
    publish(tmp_path)
    damage(tmp_path / "000002" / file)
    with caplog.at_level(logging.WARNING):
        snapshot = open_snapshot(tmp_path)
    assert snapshot.manifest.generation == 1 == current_generation(tmp_path)
    assert_unmixed(snapshot)
    assert (tmp_path / "000002.quarantined").is_dir() and "000002" in caplog.text and file in caplog.text
    assert publish(tmp_path).generation == 3, "the number of a quarantined generation is not used again"
    damage(tmp_path / "000003" / file)
    damage(tmp_path / "000001" / file)
    with pytest.raises(SnapshotError, match=r"no index generation is valid.*realm index build"):
        open_snapshot(tmp_path)


def test_without_verify_a_short_file_is_still_found(tmp_path):
    publish(tmp_path)
    truncate(tmp_path / "000001" / "vectors-00000.npy")
    with pytest.raises(SnapshotError, match=r"not a complete \.npy file"):
        open_snapshot(tmp_path, verify=False)


def test_an_asked_for_generation_has_no_substitute(tmp_path):
    publish(tmp_path)
    publish(tmp_path)
    assert open_snapshot(tmp_path, 1).manifest.generation == 1
    flip(tmp_path / "000002" / "vectors-00000.npy")
    with pytest.raises(SnapshotError, match="generation 2 is damaged"):
        open_snapshot(tmp_path, 2)
    with pytest.raises(SnapshotError, match="generation 2 does not exist"):
        open_snapshot(tmp_path, 2)


def test_ids_or_directories_swapped_between_generations_are_caught(tmp_path):
    publish(tmp_path)
    publish(tmp_path)
    publish(tmp_path, block_ids=np.arange(20, 26, dtype=np.int64))
    (tmp_path / "000003" / "block_ids-00000.npy").write_bytes((tmp_path / "000001" / "block_ids-00000.npy").read_bytes())
    assert open_snapshot(tmp_path).manifest.generation == 2
    os.rename(tmp_path / "000002", tmp_path / "elsewhere")
    os.rename(tmp_path / "000001", tmp_path / "000002")
    with pytest.raises(SnapshotError, match="this is generation 1"):
        open_snapshot(tmp_path)


@pytest.mark.parametrize(
    ("field", "what"), [("corpus_id", "corpus"), ("tokenizer_sha256", "tokenizer"), ("document_embedder_sha256", "document")]
)
def test_foreign_is_refused_and_left_alone(field, what, tmp_path):
    publish(tmp_path)
    with pytest.raises(SnapshotError, match=f"another {what}.*realm index build"):
        open_snapshot(tmp_path, None, **{field: "other"})
    assert (tmp_path / "000001").is_dir()
    assert open_snapshot(tmp_path, document_embedder_sha256=None).manifest.generation == 1
    publish(tmp_path, **{field: "other"})
    assert open_snapshot(tmp_path).manifest.generation == 1, "a foreign one is passed over for an older one"


def test_another_format_is_refused_and_left_alone(tmp_path, monkeypatch):
    publish(tmp_path)
    monkeypatch.setattr(snapshot_module, "FORMAT_VERSION", 2)
    with pytest.raises(SnapshotError, match="format 1, this version reads format 2"):
        open_snapshot(tmp_path)
    assert (tmp_path / "000001").is_dir()


def rewritten(path, change):
    value = json.loads(path.read_text())
    del value["manifest_sha256"]
    change(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**value, "manifest_sha256": hashlib.sha256(text.encode()).hexdigest()}))


def test_manifests_of_an_earlier_version_open_unless_several_parameters_made_the_rows(tmp_path):
    publish(tmp_path)
    manifest = tmp_path / "000001" / "manifest.json"

    def whole(value):
        value.update(kind="whole", mixture=[])
        value["shards"][0].update(params_file=None, params_sha256=None)

    rewritten(manifest, whole)
    assert_unmixed(open_snapshot(tmp_path, 1))
    rewritten(manifest, lambda value: value.update(kind="mixed"))
    with pytest.raises(SnapshotError, match="made by an earlier version of realm"):
        open_snapshot(tmp_path, 1)
    assert manifest.is_file(), "refused, not put aside"


def test_prune_keeps_the_newest_and_the_protected(tmp_path):
    for _ in range(6):
        publish(tmp_path)
    flip(tmp_path / "000006" / "vectors-00000.npy")
    held = open_snapshot(tmp_path, 1)
    assert open_snapshot(tmp_path).manifest.generation == 5
    assert prune(tmp_path, 2, {2}) == [1, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000002", "000004", "000005", "000006.quarantined", "CURRENT"]
    assert_unmixed(held)
    assert next_generation(tmp_path) == 7
    publish(tmp_path)
    assert prune(tmp_path, 1, set()) == [2, 4, 5]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000007", "CURRENT"]
    with pytest.raises(ValueError, match="keep"):
        prune(tmp_path, 0, set())


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_delta_extends_the_same_generation(dtype, tmp_path):
    publish(tmp_path, dtype=dtype)
    before, added = open_snapshot(tmp_path), np.array([30, 50], np.int64)
    manifest = append_delta(tmp_path, 1, given(rows(1, added)), added, 2, (("seg-1", 2),))
    assert (manifest.generation, manifest.revision, manifest.count) == (1, 1, 8)
    assert (manifest.corpus_version, manifest.tombstone_version, manifest.segments) == (2, 2, (("seg-1", 2),))
    snapshot = open_snapshot(tmp_path)
    assert snapshot.manifest == manifest and snapshot.block_ids.tolist() == [*range(10, 16), 30, 50]
    assert_unmixed(snapshot)
    assert len(before.block_ids) == 6 and before.manifest.revision == 0
    assert_unmixed(before)


def test_what_may_not_be_published(tmp_path):
    ids = np.arange(10, 16, dtype=np.int64)
    bad = rows(1, ids)
    bad[2, 3] = np.nan
    wrong = rows(1, ids[:5]), [rows(1, ids), rows(1, ids)], [rows(1, ids[:3]), rows(1, ids[3:], 5)], [], np.ones((6, 4), np.int32)
    for error, said, changes in (
        (SnapshotError, "vector 2 .*not finite", {"vectors": [bad[:1], bad[1:]]}),
        (SnapshotError, "not finite in float16", {"vectors": np.full((6, 4), 1e5, np.float32), "dtype": "float16"}),
        (SnapshotError, "ascending", {"block_ids": ids[::-1].copy()}),
        (ValueError, "dtype", {"dtype": "float64"}),
        *((ValueError, "ids", {"vectors": vectors}) for vectors in wrong),
    ):
        with pytest.raises(error, match=said):
            publish(tmp_path, **changes)
    assert current_generation(tmp_path) is None
    publish(tmp_path)
    with pytest.raises(SnapshotError, match="ascending"):
        append_delta(tmp_path, 1, given(rows(1, ids[:1])), ids[:1], 2, ())
    with pytest.raises(ValueError, match="dimension 4"):
        append_delta(tmp_path, 1, given(np.ones((1, 5), np.float32)), np.array([99]), 2, ())
    assert open_snapshot(tmp_path).manifest.revision == 0
