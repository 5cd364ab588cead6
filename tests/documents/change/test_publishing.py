"""Writers exclude each other, a killed one is cleaned up after, readers read on. Real processes."""

import subprocess
import sys

import pytest

from realm.documents.change.compaction import compact_corpus, tidy_corpus
from realm.documents.change.updates import add_documents, remove_documents, sync_documents, update_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.store import manifest as manifests
from realm.documents.store.blocks import BlockStore
from realm.documents.store.manifest import current_version, writer_lock
from realm.errors import CorpusError
from realm.storage import locks as locking


def content(corpus):
    store = BlockStore.open(corpus)
    blocks = [store.block(row) for row in range(len(store)) if store.live[row]]
    return [(block.block_id, block.doc_id, block.text) for block in blocks]


@pytest.fixture
def corpus(write_jsonl, city_rows, tmp_path):
    rows = city_rows(10)
    build_corpus([write_jsonl("a.jsonl", rows[:5])], tmp_path / "corpus", vocab_size=300, block_length=64)
    add_documents(tmp_path / "corpus", [write_jsonl("b.jsonl", rows[5:7])])
    remove_documents(tmp_path / "corpus", ["doc-1"])
    write_jsonl("c.jsonl", rows[7:])
    write_jsonl("u.jsonl", [{**rows[0], "text": "All is new in London today."}, {**rows[6], "title": "New title"}])
    return tmp_path / "corpus"


CHANGES = {
    "add": lambda corpus: add_documents(corpus, [corpus.parent / "c.jsonl"]),
    "update": lambda corpus: update_documents(corpus, [corpus.parent / "u.jsonl"]),
    "sync": lambda corpus: sync_documents(corpus, [corpus.parent / "a.jsonl", corpus.parent / "c.jsonl"]),
    "remove": lambda corpus: remove_documents(corpus, ["doc-0", "doc-6"]), "compact": lambda corpus: compact_corpus(corpus),
    "purge": lambda corpus: compact_corpus(corpus, purge=True), "tidy": lambda corpus: tidy_corpus(corpus),
}  # fmt: skip


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
corpus, versions = Path(sys.argv[1]), set()
print("ready", flush=True)
while not (corpus.parent / "stop").exists():
    store = BlockStore.open(corpus)
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


def started(code, corpus):
    process = subprocess.Popen([sys.executable, "-c", code, str(corpus)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def test_two_writers(corpus, tmp_path, monkeypatch):
    """The second writer waits; after a while it is refused, and told by whom. A killed writer's lock is free."""
    monkeypatch.setattr(locking, "WAIT_SECONDS", 0.15)
    holder = started(HOLDER, corpus)
    for change in CHANGES.values():
        with pytest.raises(CorpusError, match=rf"another process \(process {holder.pid}\) is changing this corpus"):
            change(corpus)
    assert current_version(corpus) == 3
    monkeypatch.setattr(locking, "WAIT_SECONDS", 60)
    holder.communicate("")  # ends now: whoever waits gets the lock
    remove_documents(corpus, ["doc-0"])
    holder = started(HOLDER, corpus)
    holder.kill()
    holder.communicate()
    monkeypatch.setattr(locking, "WAIT_SECONDS", 0)
    assert compact_corpus(corpus).version == 5
    with writer_lock(corpus), pytest.raises(CorpusError, match="another process"):
        remove_documents(corpus, ["doc-2"])


def test_a_waiting_writer_gets_its_turn(corpus):
    """Two processes change the corpus at once; both changes are in it."""
    code = "import sys\nfrom pathlib import Path\nfrom realm.documents.change.updates import remove_documents\nprint('ready', flush=True)\n"
    holder = started(HOLDER, corpus)
    first, second = (started(f"{code}remove_documents(Path(sys.argv[1]), ['doc-{number}'])", corpus) for number in (0, 2))
    holder.communicate("")
    for process in (first, second):
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert current_version(corpus) == 5
    assert not {"doc-0", "doc-2"} & set(BlockStore.open(corpus).documents())


def test_a_process_reads_while_another_writes(corpus, tmp_path):
    reader = started(READER, corpus)
    for _ in range(4):
        add_documents(corpus, [tmp_path / "c.jsonl"])
        remove_documents(corpus, ["doc-7", "doc-9"])
        compact_corpus(corpus, purge=True)
        remove_documents(corpus, ["doc-8"])
        compact_corpus(corpus, purge=True)
    (corpus.parent / "stop").touch()
    told, _ = reader.communicate(timeout=60)
    assert reader.returncode == 0 and int(told) >= 1


def test_a_manifest_is_purged_while_it_is_read(corpus, monkeypatch):
    """Between its reading and its checksum; whoever opens the corpus gets the version in force."""
    real = manifests.file_sum

    def purged(path):
        monkeypatch.setattr(manifests, "file_sum", real)
        remove_documents(corpus, ["doc-0"])
        compact_corpus(corpus, purge=True)
        return real(path)

    monkeypatch.setattr(manifests, "file_sum", purged)
    store = BlockStore.open(corpus)
    assert "doc-0" not in store.documents() and store.version == current_version(corpus)


def test_no_corpus_no_lock_file(tmp_path):
    for name, change in CHANGES.items():
        with pytest.raises(CorpusError, match="no corpus here"):
            change(tmp_path)
        assert list(tmp_path.iterdir()) == [], name
