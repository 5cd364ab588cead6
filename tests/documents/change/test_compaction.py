"""Segments of single changes become few, beside readers; what was removed goes when it is much."""

import random
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from changes import CHANGES, changed_corpus

from realm.documents.change import compaction
from realm.documents.change.compaction import _batches, compact_corpus, needs_tidying, tidy_corpus
from realm.documents.change.updates import add_documents, remove_documents, update_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.store import manifest as manifests, segments
from realm.documents.store.blocks import BlockStore
from realm.documents.store.manifest import current_version, read_manifest, writer_lock
from realm.errors import CorpusError
from realm.storage import generations, locks as locking

from .test_updates import check_counts, live_rows


@pytest.fixture
def corpus(write_jsonl, city_rows, tmp_path, monkeypatch):
    """Six documents, then single changes: four added, one of them changed, one removed. Seven segments, few of which may be small."""
    monkeypatch.setattr(generations, "MAX_SMALL_FILES", 4)
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


def test_much_that_was_removed_goes(corpus, monkeypatch):
    monkeypatch.setattr(compaction, "LEAST_REMOVED", 1)
    remove_documents(corpus, ["doc-0", "doc-1", "doc-2"])
    before = live_rows(corpus)
    assert needs_tidying(BlockStore.open(corpus))
    manifest = tidy_corpus(corpus)
    assert (manifest.removed, len(manifest.segments), live_rows(corpus)) == (0, 1, before)
    check_counts(corpus)


def test_a_few_segments_and_large_ones_stay(corpus, monkeypatch):
    monkeypatch.setattr(generations, "MAX_SMALL_FILES", 6)
    version = read_manifest(corpus).version
    assert tidy_corpus(corpus).version == version
    monkeypatch.setattr(generations, "MAX_SMALL_FILES", 2)
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


@pytest.fixture
def changed(tmp_path):
    return changed_corpus(tmp_path)


HOLDER = """
import sys, time
from pathlib import Path
from realm.documents.store.manifest import writer_lock
with writer_lock(Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""

READER = """
import sys
from pathlib import Path
import numpy as np
from realm.documents.store.blocks import BlockStore
changed, versions = Path(sys.argv[1]), set()
print("ready", flush=True)
while not (changed.parent / "stop").exists():
    store = BlockStore.open(changed)
    for again in range(3):
        for row in range(len(store)):
            block = store.block(row)
            number = int(block.doc_id.removeprefix("doc-"))
            assert block.title.endswith(f" {number}"), block
            assert store.tokenizer.encode([block.title])[0] == store.title_ids(row).tolist()
        assert set(store.documents()) >= {"doc-0", "doc-2"}, store.documents()
        assert set(store.newest().documents()) >= {"doc-0", "doc-2"}
    versions.add(store.version)
print(len(versions))
"""


def started(code, changed):
    process = subprocess.Popen([sys.executable, "-c", code, str(changed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def test_two_writers(changed, tmp_path, monkeypatch):
    """The second writer waits; after a while it is refused, and told by whom. A killed writer's lock is free."""
    monkeypatch.setattr(locking, "WAIT_SECONDS", 0.15)
    holder = started(HOLDER, changed)
    for change in CHANGES.values():
        with pytest.raises(CorpusError, match=rf"another process \(process {holder.pid}\) is changing this corpus"):
            change(changed, tmp_path)
    assert current_version(changed) == 3
    monkeypatch.setattr(locking, "WAIT_SECONDS", 60)
    holder.communicate("")  # ends now: whoever waits gets the lock
    remove_documents(changed, ["doc-0"])
    holder = started(HOLDER, changed)
    holder.kill()
    holder.communicate()
    monkeypatch.setattr(locking, "WAIT_SECONDS", 0)
    assert compact_corpus(changed).version == 5
    with writer_lock(changed), pytest.raises(CorpusError, match="another process"):
        remove_documents(changed, ["doc-2"])


def test_a_process_reads_while_another_writes(changed, tmp_path):
    reader = started(READER, changed)
    for _ in range(4):
        add_documents(changed, [tmp_path / "c.jsonl"])
        remove_documents(changed, ["doc-7", "doc-9"])
        compact_corpus(changed, purge=True)
        remove_documents(changed, ["doc-8"])
        compact_corpus(changed, purge=True)
    (changed.parent / "stop").touch()
    told, _ = reader.communicate(timeout=60)
    assert reader.returncode == 0 and int(told) >= 1


def test_a_manifest_is_purged_while_it_is_read(changed, monkeypatch):
    """Between its reading and its checksum; whoever opens the corpus gets the version in force."""
    real = manifests.file_sum

    def purged(path):
        monkeypatch.setattr(manifests, "file_sum", real)
        remove_documents(changed, ["doc-0"])
        compact_corpus(changed, purge=True)
        return real(path)

    monkeypatch.setattr(manifests, "file_sum", purged)
    store = BlockStore.open(changed)
    assert "doc-0" not in store.documents() and store.version == current_version(changed)


def test_no_corpus_no_lock_file(tmp_path):
    for name, change in CHANGES.items():
        with pytest.raises(CorpusError, match="no corpus here"):
            change(tmp_path, tmp_path)
        assert list(tmp_path.iterdir()) == [], name
