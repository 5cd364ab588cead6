"""Segments of single changes become few, beside readers; what was removed goes when it is much."""

import random
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from realm.documents.change import compaction
from realm.documents.change.compaction import _batches, needs_tidying, tidy_corpus
from realm.documents.change.updates import add_documents, remove_documents, update_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.store import segments
from realm.documents.store.blocks import BlockStore
from realm.documents.store.manifest import read_manifest
from realm.storage import tails

from .test_updates import check_counts, live_rows


@pytest.fixture
def corpus(write_jsonl, city_rows, tmp_path, monkeypatch):
    """Six documents, then single changes: four added, one of them changed, one removed. Seven segments, few of which may be small."""
    monkeypatch.setattr(tails, "MAX_SMALL_FILES", 4)
    out, all_rows = tmp_path / "corpus", city_rows(10)
    build_corpus([write_jsonl("first.jsonl", all_rows[:6])], out, vocab_size=300, block_length=64)
    for row in all_rows[6:]:
        add_documents(out, [write_jsonl("more.jsonl", [row])])
    update_documents(out, [write_jsonl("more.jsonl", [{**all_rows[7], "text": "All is new in London today."}])])
    remove_documents(out, ["doc-8"])
    return out


def test_small_segments_become_one(corpus):
    before, store = live_rows(corpus), BlockStore.open(corpus)
    removed, spans = store.manifest.removed, store.manifest.span_statistics
    assert len(store.segments) == 6 and needs_tidying(store)
    manifest = tidy_corpus(corpus)
    assert manifest.version == store.version + 1 and len(manifest.segments) < 4
    assert live_rows(corpus) == before and manifest.removed == removed > 0 and manifest.span_statistics == spans
    check_counts(corpus)
    newest = store.newest()
    assert newest.documents() == store.documents() and not needs_tidying(newest)
    for name in (*newest.documents(), "doc-8"):
        ids = [found.block_ids[found.live_rows_of_document(name)].tolist() for found in (store, newest)]
        assert ids[0] == ids[1] and bool(ids[0]) == (name != "doc-8")
    assert newest.is_live(store.block_ids).tolist() == store.live.tolist()
    assert tidy_corpus(corpus).version == manifest.version  # nothing to do


def test_changes_go_on_after_it(corpus, write_jsonl, city_rows):
    """The files of the version before stay until the next change; ids are not used again; a removed document may come again."""
    before = read_manifest(corpus)
    tidy_corpus(corpus)
    assert all((corpus / "segments" / info.name).exists() for info in before.segments)
    manifest = add_documents(corpus, [write_jsonl("again.jsonl", [city_rows(10)[8]])])
    assert manifest.segments[-1].first_id == before.next_block_id
    assert {path.name for path in (corpus / "segments").glob("*.arrow")} <= {
        info.name for version in (manifest.version - 1, manifest.version) for info in read_manifest(corpus, version).segments
    }
    check_counts(corpus)


def test_much_that_was_removed_goes(corpus, monkeypatch):
    monkeypatch.setattr(compaction, "LEAST_REMOVED", 1)
    remove_documents(corpus, ["doc-0", "doc-1", "doc-2"])
    before = live_rows(corpus)
    assert needs_tidying(BlockStore.open(corpus))
    manifest = tidy_corpus(corpus)
    assert (manifest.removed, len(manifest.segments), live_rows(corpus)) == (0, 1, before)
    check_counts(corpus)


def test_a_few_segments_and_large_ones_stay(corpus, monkeypatch):
    monkeypatch.setattr(tails, "MAX_SMALL_FILES", 6)
    version = read_manifest(corpus).version
    assert tidy_corpus(corpus).version == version
    monkeypatch.setattr(tails, "MAX_SMALL_FILES", 2)
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 2)  # each is at least half full
    assert tidy_corpus(corpus).version == version and not needs_tidying(BlockStore.open(corpus))


def test_a_row_is_rewritten_a_few_times():
    """Ten thousand additions: few segments at any time, and the rows written together are a few times those that came."""
    chance = random.Random(0)
    sizes, came, written, most = [5000], 0, 0, 0
    for _ in range(10_000):
        sizes.append(chance.choice([1, 1, 3]))
        came += sizes[-1]
        if count := compaction.trailing(sizes):
            merged = sum(sizes[-count:])
            sizes, written = [*sizes[:-count], merged], written + merged
        most = max(most, len(sizes))
    assert most <= 32 and written <= 8 * came and sum(sizes) == 5000 + came


def test_columns_that_are_no_longer_written_go_when_segments_merge():
    """An older segment has one more than its neighbour; both become batches of the columns of today."""

    def segment(first, **more):
        batch = pa.RecordBatch.from_pydict({**more, "block_id": [first, first + 1]})
        return SimpleNamespace(batches=[SimpleNamespace(rows=2, select=lambda keep: batch.filter(pa.array(keep)))])

    (merged,) = _batches([(segment(0, link_names=[7, 8]), np.array([True, True])), (segment(2), np.array([False, True]))], ["block_id"])
    assert merged.to_pydict() == {"block_id": [0, 1, 3]}
