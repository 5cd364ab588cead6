"""Shards of single additions become few; readers and damage. A merge that is killed is in tests/faults."""

import numpy as np
import pytest
from small import flip

from realm.search.publishing import snapshot as snapshots
from realm.search.publishing.parameters import sweep
from realm.search.publishing.snapshot import DamagedSnapshot, read_manifest
from realm.search.publishing.writing import append_delta, merge_shards
from realm.storage import generations

from .test_snapshot import given, open_snapshot, publish, rows


@pytest.fixture(params=["float32", "float16"])
def index(tmp_path, request, monkeypatch):
    monkeypatch.setattr(generations, "MAX_SMALL_FILES", 4)
    publish(tmp_path / "index", n=9, dtype=request.param)
    for number in range(20, 26):
        add(tmp_path / "index", number)
    return tmp_path / "index"


def add(index, block_id):
    ids = np.array([block_id])
    append_delta(index, 1, given(rows(1, ids)), ids, block_id, ())


def content(index):
    found = open_snapshot(index)
    return found.vectors.tolist(), found.block_ids.tolist()


def test_small_shards_become_one(index):
    """Bit for bit the same rows; files go with the next who holds the index; additions go on under new names."""
    before, opened, manifest = content(index), open_snapshot(index), merge_shards(index, 1)
    assert (manifest.revision, manifest.count, len(manifest.shards)) == (7, 15, 2) and content(index) == before
    assert merge_shards(index, 1) == manifest  # nothing to do
    sweep(index)
    named = {name for shard in manifest.shards for name in shard.files}
    assert {path.name for path in (index / "000001").iterdir()} == {*named, "manifest.json"}
    assert (opened.vectors.tolist(), opened.block_ids.tolist()) == before
    add(index, 30)
    assert content(index)[1] == [*before[1], 30] and len({shard.file for shard in open_snapshot(index).manifest.shards}) == 3
    for number in range(31, 50):
        add(index, number)
        assert len(merge_shards(index, 1).shards) <= 4
        sweep(index)
    assert content(index)[1] == [*before[1], *range(30, 50)]


@pytest.mark.parametrize("index", ["float32"], indirect=True)
def test_a_reader_that_comes_too_late(index, monkeypatch):
    """It has read the manifest, and the shards go: it reads the next one, and puts nothing aside as damaged."""
    before, real = content(index), snapshots.read_shard

    def slow(*arguments):
        monkeypatch.setattr(snapshots, "read_shard", real)
        merge_shards(index, 1)
        sweep(index)
        return real(*arguments)

    monkeypatch.setattr(snapshots, "read_shard", slow)
    assert content(index) == before and [path.name for path in index.glob("*quarantined*")] == []


@pytest.mark.parametrize("index", ["float32"], indirect=True)
def test_damage_is_not_copied(index):
    shard = read_manifest(index / "000001", 1).shards[-1]
    flip(index / "000001" / shard.file)
    with pytest.raises(DamagedSnapshot, match="SHA-256"):
        merge_shards(index, 1)
    assert len(read_manifest(index / "000001", 1).shards) == 7
