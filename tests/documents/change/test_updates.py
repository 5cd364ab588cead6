"""Documents come, change and go: versions, tombstones, exact counts, compaction, purging, the look-up files."""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from small import arrow_rows, jsonl

from realm.documents.change.compaction import compact_corpus, tidy_corpus
from realm.documents.change.updates import add_documents, remove_documents, sync_documents, update_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.spans.specs import read_state, write_state
from realm.documents.store import segments
from realm.documents.store.blocks import BlockStore
from realm.documents.store.info import corpus_info
from realm.documents.store.manifest import read_manifest
from realm.errors import CorpusError, DataError
from realm.runs.directory import stat_digest
from realm.text.tokenizer import train_wordpiece

SMALL = {"vocab_size": 300, "block_length": 64}


@pytest.fixture
def corpus(write_jsonl, city_rows, tmp_path, monkeypatch):
    """Twelve documents in one segment of several record batches, the first rows of ``city_rows``."""
    monkeypatch.setattr(segments, "BATCH_ROWS", 8)
    build_corpus([write_jsonl("first.jsonl", city_rows(12))], tmp_path / "corpus", **SMALL)
    return tmp_path / "corpus"


def live_rows(corpus):
    """All live rows of the version in force, by pyarrow and the manifest alone."""
    manifest, rows = read_manifest(corpus), arrow_rows(corpus)
    removed = set(np.load(corpus / manifest.tombstones).tolist()) if manifest.tombstones else set()
    assert len(rows) == manifest.blocks + manifest.removed
    assert [row["block_id"] for row in rows] == sorted({row["block_id"] for row in rows})
    return [row for row in rows if row["block_id"] not in removed]


def check_counts(corpus):
    """Every count of the manifest that is about live blocks, counted again."""
    rows, manifest = live_rows(corpus), read_manifest(corpus)
    assert manifest.documents == len({row["doc_id"] for row in rows})
    assert manifest.blocks == len(rows)
    assert manifest.spans == sum(len(row["span_hashes"]) for row in rows)
    assert manifest.tokens == corpus_info(corpus)["tokens"] == sum(len(row["token_ids"]) for row in rows)
    blocks_of = {}
    for row in rows:
        for span in row["span_hashes"]:
            blocks_of.setdefault(span, []).append(row["block_id"])
    assert manifest.span_statistics.distinct == len(blocks_of)
    assert manifest.span_statistics.single_block == sum(len(blocks) for blocks in blocks_of.values() if len(set(blocks)) == 1)
    if rows:
        store = BlockStore.open(corpus)
        assert store.documents() == list(dict.fromkeys(row["doc_id"] for row in rows))
        assert store.block_ids[store.live].tolist() == [row["block_id"] for row in rows]


def everything(corpus):
    return b"".join(path.read_bytes() for path in sorted(corpus.rglob("*")) if path.is_file())


def test_update_replaces_changed_documents_only(corpus, write_jsonl, city_rows):
    rows = city_rows(12)
    before = {row["doc_id"]: row["block_id"] for row in reversed(live_rows(corpus))}
    rows[2]["text"] += " One more sentence."
    rows[5]["title"] = "Another title"
    source = write_jsonl("u.jsonl", [*rows[:7], {"id": "nobody", "text": "Not there yet."}])
    manifest = update_documents(corpus, [source])
    after = {row["doc_id"]: row["block_id"] for row in reversed(live_rows(corpus))}
    assert {doc_id for doc_id in after if after[doc_id] != before[doc_id]} == {"doc-2", "doc-5"}
    assert manifest.rejected == {"unknown id": 1}
    assert json.loads((corpus / "rejected.jsonl").read_text()) == {"path": str(source), "line": 8, "reason": "unknown id"}
    assert update_documents(corpus, [write_jsonl("same.jsonl", rows)]) == manifest
    again = update_documents(corpus, [source])  # nothing new but the rejected one, which must be counted
    assert (again.version, again.rejected, again.segments) == (3, {"unknown id": 2}, manifest.segments)
    manifest = again
    with pytest.raises(CorpusError, match="1 unknown id"):
        update_documents(corpus, [write_jsonl("x.jsonl", [{"id": "nobody", "text": "Not there yet."}])])
    with pytest.raises(DataError, match=r"x\.jsonl:1: unknown id"):
        update_documents(corpus, [write_jsonl("x.jsonl", [{"id": "nobody", "text": "Not there yet."}])], strict=True)
    assert read_manifest(corpus) == manifest
    check_counts(corpus)


def test_sync_makes_the_corpus_what_the_sources_are(corpus, write_jsonl, city_rows):
    rows = city_rows(14)
    before = {row["doc_id"]: row["block_id"] for row in reversed(live_rows(corpus))}
    kept = [*rows[:4], {**rows[4], "text": rows[4]["text"] + " One more sentence."}, *rows[6:]]  # 4 changed, 5 gone, some new
    source = write_jsonl("s.jsonl", [*kept, {**rows[0], "id": "copy"}, {"id": "empty", "text": " "}])
    manifest = sync_documents(corpus, [source])
    after = {row["doc_id"]: row["block_id"] for row in reversed(live_rows(corpus))}
    assert set(after) == {"copy", *(row["id"] for row in kept)} and "doc-5" in before
    assert {doc_id for doc_id in set(after) & set(before) if after[doc_id] != before[doc_id]} == {"doc-4"}
    assert manifest.rejected == {"empty text": 1} and len((corpus / "rejected.jsonl").read_text().splitlines()) == 1
    check_counts(corpus)
    untouched = everything(corpus)
    assert sync_documents(corpus, [source]) == manifest and everything(corpus) == untouched
    with pytest.raises(CorpusError, match="no usable document"):
        sync_documents(corpus, [write_jsonl("none.jsonl", [{"id": "empty", "text": " "}])])
    assert sync_documents(corpus, [write_jsonl("one.jsonl", rows[:1])]).documents == 1


def test_remove_all_or_nothing(corpus):
    before = everything(corpus)
    for ids, message in (
        (["doc-1", "doc-99"], "no document 'doc-99'; nothing is removed"),
        ([f"x{number}" for number in range(7)], "'x4' and 2 more;"),
        ([], "no id is given"),
    ):
        with pytest.raises(CorpusError, match=message):
            remove_documents(corpus, ids)
    (corpus / "LOCK").unlink(missing_ok=True)
    assert everything(corpus) == before
    remove_documents(corpus, ["doc-1", "doc-1", " doc-2 "])
    with pytest.raises(CorpusError, match="no document 'doc-1'"):
        remove_documents(corpus, ["doc-1"])
    remove_documents(corpus, BlockStore.open(corpus).documents())
    with pytest.raises(CorpusError, match=r"empty.*realm corpus add"):
        BlockStore.open(corpus)


def test_purge_leaves_no_removed_text(corpus, write_jsonl, tmp_path):
    built = [{"id": "early", "title": "Qwxyzard", "text": "The secret of Vlombutik is here. It was told to Vlombutik in Rome."}]
    source = write_jsonl("secret.jsonl", [*map(json.loads, (tmp_path / "first.jsonl").read_text().splitlines()), *built])
    out = tmp_path / "secret"
    build_corpus([source], out, tokenizer=BlockStore.open(corpus).tokenizer)
    add_documents(out, [write_jsonl("late.jsonl", [{"id": "late", "text": "And later Zindoverq came to Rome."}])])
    store, words = BlockStore.open(out), (b"Vlombutik", b"Qwxyzard", b"Zindoverq", b"vlombutik")
    assert all(word in everything(out) for word in words)
    remove_documents(out, ["early", "late"])
    compact_corpus(out)
    assert b"Vlombutik" in everything(out)  # the version before stays until the next change
    version = compact_corpus(out, purge=True).version
    assert compact_corpus(out, purge=True).version == version  # nothing to do
    assert not any(word in everything(out) for word in words)
    assert "rome" in (out / "tagger.json").read_text()
    # Who had the old version open goes on reading it, batches and look-ups that were never touched included.
    assert "Vlombutik" in store.block(int(store.rows_of_document("early")[0])).text
    assert len(store.rows_with_sentence(int(store.sentences(0).hashes[0]))) > 0
    assert {path.name for path in (out / "segments").iterdir()} == {f"000003.{end}" for end in ("arrow", "documents.npy")}
    assert store.newest().documents() == BlockStore.open(out).documents()


def test_what_the_tagger_learnt_is_forgotten(corpus):
    """Words and terms of removed documents only; what is the user's, or stands elsewhere, stays."""
    state = json.loads((corpus / "tagger.json").read_text())
    terms = {"type": "collocations", "terms": ["report 100", "pound sterling", "of nobody"]}
    gazetteer = {"type": "gazetteer", "phrases": ["report 100"]}
    words = next(part["table"] for part in state["taggers"] if part["type"] == "truecase")
    write_state(corpus / "tagger.json", {**read_state(corpus / "tagger.json"), "taggers": [*state["taggers"], terms, gazetteer]})
    remove_documents(corpus, ["doc-0"])  # the only one with report 100
    compact_corpus(corpus)
    parts = json.loads((corpus / "tagger.json").read_text())["taggers"]
    assert parts[-2]["terms"] == ["pound sterling", "of nobody"] and parts[-1] == gazetteer
    assert next(part["table"] for part in parts if part["type"] == "truecase") == words


def test_compaction_rewrites_what_needs_it(corpus, write_jsonl, city_rows, monkeypatch):
    """A full segment without tombstones keeps its file; small neighbours are merged up to the limit; ids ascend."""
    rows = city_rows()
    first = read_manifest(corpus).blocks
    monkeypatch.setattr(segments, "SEGMENT_ROWS", first)
    for number in range(12, 20, 2):
        add_documents(corpus, [write_jsonl("more.jsonl", rows[number : number + 2])])
    before = live_rows(corpus)
    manifest = compact_corpus(corpus)
    assert manifest.segments[0].name == "000001.arrow" and len(manifest.segments) == 2
    assert live_rows(corpus) == before
    remove_documents(corpus, ["doc-3"])
    manifest = compact_corpus(corpus)
    assert sum(info.rows for info in manifest.segments) == manifest.blocks and max(info.rows for info in manifest.segments) <= first
    assert live_rows(corpus) == [row for row in before if row["doc_id"] != "doc-3"]
    check_counts(corpus)


def test_newest_follows_every_change(corpus, write_jsonl, city_rows):
    store = BlockStore.open(corpus)
    assert store.newest() is store
    gone = store.block_ids[store.rows_of_document("doc-2")]
    remove_documents(corpus, ["doc-2"])
    assert store.is_live(gone).all() and not store.newest().is_live(gone).any()
    compact_corpus(corpus, purge=True)
    alive = store.newest().is_live(np.append(store.block_ids, [-1, 10**9]))
    assert np.flatnonzero(~alive).tolist() == [*gone.tolist(), len(store), len(store) + 1]


def test_the_newest_version_opens_only_what_was_added(corpus, write_jsonl, city_rows):
    first = BlockStore.open(corpus)
    add_documents(corpus, [write_jsonl("more.jsonl", city_rows(13)[12:])])
    second = first.newest()
    assert second.segments[: len(first.segments)] == first.segments and len(second.segments) == len(first.segments) + 1
    whole = BlockStore.open(corpus)
    assert [second.block(row) for row in range(len(second))] == [whole.block(row) for row in range(len(whole))]
    compact_corpus(corpus)
    third = second.newest()
    assert not set(third.segments) & set(second.segments)
    assert [second.block(row).text for row in range(len(second))] == [third.block(row).text for row in range(len(third))]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not list open files here")
@pytest.mark.parametrize("mapped", [False, True])
def test_single_additions_hold_no_open_files(corpus, write_jsonl, city_rows, monkeypatch, mapped):
    if mapped:  # as large files are
        monkeypatch.setattr("realm.storage.arrays.MIN_MAPPED_BYTES", 0)
    before = len(list(Path("/proc/self/fd").iterdir()))
    store = BlockStore.open(corpus)
    kept = [store]
    for number, row in enumerate(city_rows(18)[12:]):
        add_documents(corpus, [write_jsonl(f"{number}.jsonl", [row])])
        kept.append(store := store.newest())
        assert row["id"] in store.documents() and len(store.rows_of_document(row["id"]))
    held = len(list(Path("/proc/self/fd").iterdir())) - before
    assert held >= 7 if mapped else held == 0
    assert sorted(row["block_id"] for row in live_rows(corpus)) == store.block_ids[store.live].tolist()


PARTS = [
    "The tenant pays the rent on the first day of each month to the landlord named above, in coins of the realm and not in kind.",
    "The landlord repairs the roof, the walls and the pipes, and the tenant repairs whatever the tenant has broken in the house.",
    "Pets need the written consent of the landlord, who may not refuse it to a tenant that keeps bees, hens or a single cat.",
    "Notice is given in writing three months before the end of a quarter, and the deposit is returned within thirty days.",
]
TOKENIZER = train_wordpiece(PARTS * 3, 300)
NAMES = [f"lease-{letter}" for letter in "ABCD"]
TEXTS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map(" ".join)
DOCUMENTS = st.dictionaries(st.sampled_from(NAMES), TEXTS, min_size=1)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "update", "remove", "sync", "compact", "tidy"]), DOCUMENTS), max_size=5)


def written(directory, documents):
    return [jsonl(directory / "in.jsonl", [{"id": name, "title": "Lease", "text": text} for name, text in documents.items()])]


def held(corpus):
    """Every document of a corpus, put together from its blocks; each is found by the hashes of its sentences, too."""
    store, found = BlockStore.open_even_empty(corpus), {}
    for name in store.documents():
        rows = store.live_rows_of_document(name).tolist()
        found[name] = " ".join(store.block(row).text for row in rows)
        assert all(row in store.rows_with_sentence(int(number)) for row in rows for number in store.sentences(row).hashes)
    return found


def changed(corpus, directory, step, given, model):
    """Take one step in the corpus. Returns what it holds then."""
    new = {name: text for name, text in given.items() if name not in model}
    known = {name: text for name, text in given.items() if name in model}
    if step == "add" and new:
        add_documents(corpus, written(directory, given))
        return model | new
    if step == "update" and known:
        update_documents(corpus, written(directory, given))
        return model | known
    if step == "remove" and known:
        remove_documents(corpus, known)
        return {name: text for name, text in model.items() if name not in known}
    if step == "sync":
        sync_documents(corpus, written(directory, given))
        return given
    if step in ("compact", "tidy"):
        (compact_corpus if step == "compact" else tidy_corpus)(corpus)
    return model


@settings(max_examples=15, deadline=None)
@given(DOCUMENTS, STEPS)
def test_a_corpus_holds_what_a_plain_model_holds(first, steps):
    with tempfile.TemporaryDirectory() as scratch:
        directory, corpus, model = Path(scratch), Path(scratch, "corpus"), first
        build_corpus(written(directory, first), corpus, tokenizer=TOKENIZER, block_length=48, tagger="none", workers=1)
        used = set(BlockStore.open(corpus).block_ids.tolist())
        assert held(corpus) == model
        for step, given in steps:
            model = changed(corpus, directory, step, given, model)
            assert held(corpus) == model
            store = BlockStore.open_even_empty(corpus)
            assert (store.manifest.documents, store.manifest.blocks) == (len(model), int(store.live.sum()))
            check_counts(corpus)
            fresh = set(store.block_ids.tolist()) - used
            assert not fresh or min(fresh) > max(used), "no id is used twice"
            used |= fresh


LIVES = [  # leases of the same parts, what is done, and the leases that are there then
    ("A=0 B=0", ["remove A=0"], "B=0"),
    ("A=0 B=0", ["remove B=0", "compact"], "A=0"),
    ("A=0 B=01", ["remove A=0", "compact", "add A=0"], "A=0 B=01"),
    ("A=01 B=0", ["update A=2"], "A=2 B=0"),
    ("A=0 B=0", ["update B=2", "update A=2", "update B=0"], "A=2 B=0"),
    ("A=0 B=1", ["update A=1 B=0"], "A=1 B=0"),
    ("A=01", ["sync B=01", "tidy"], "B=01"),
    ("A=0 B=0 C=0", ["remove A=0 C=0", "compact", "update B=10"], "B=10"),
    ("A=0 B=0", ["remove A=0 B=0", "add B=0", "compact"], "B=0"),
    ("A=00 B=0", ["update A=0", "remove B=0"], "A=0"),
]


@pytest.mark.parametrize(("first", "steps", "last"), LIVES)
def test_leases_that_share_text(first, steps, last, tmp_path):
    def leases(told):
        return {f"lease-{name}": " ".join(PARTS[int(part)] for part in parts) for name, _, parts in (one.partition("=") for one in told)}

    corpus, model = tmp_path / "c", leases(first.split())
    build_corpus(written(tmp_path, model), corpus, tokenizer=TOKENIZER, block_length=48, tagger="none")
    for step, *new in map(str.split, steps):
        model = changed(corpus, tmp_path, step, leases(new), model)
        assert held(corpus) == model
    assert held(corpus) == leases(last.split())


def test_the_same_sentence_is_left_out_of_every_document_that_holds_it(tmp_path):
    """As pre-training asks for it: no block that holds the sentence may be read when it is masked."""
    leases = {"lease-A": " ".join(PARTS[:2]), "lease-B": " ".join(PARTS[:2]), "lease-C": PARTS[1]}
    build_corpus(written(tmp_path, leases), tmp_path / "c", tokenizer=TOKENIZER, block_length=48, tagger="none")
    store = BlockStore.open(tmp_path / "c")
    (row,) = store.live_rows_of_document("lease-C").tolist()
    same = store.rows_with_sentence(int(store.sentences(row).hashes[0]))
    assert {store.doc_id(one) for one in same.tolist()} == set(leases)
    assert len(np.unique(same)) == 3


def test_what_cannot_be_read_for_a_moment_stays(tmp_path, monkeypatch, closed):
    """A file and a folder that open no more are not gone; what was deleted beside them is."""
    (tmp_path / "notes" / "sub").mkdir(parents=True)
    for file in ("a.txt", "b.txt", "sub/c.txt", "d.txt"):
        (tmp_path / "notes" / file).write_text(f"{file}: {PARTS[0]}")
    build_corpus([tmp_path / "notes"], tmp_path / "c", tokenizer=TOKENIZER, block_length=64, tagger="none")
    (tmp_path / "notes" / "b.txt").unlink()
    with monkeypatch.context() as patch:
        closed(patch, "a.txt", "sub")
        manifest = sync_documents(tmp_path / "c", [tmp_path / "notes"])
    assert set(held(tmp_path / "c")) == {"a.txt", "sub/c.txt", "d.txt"} and manifest.rejected == {"unreadable file": 2}
    assert sync_documents(tmp_path / "c", [tmp_path / "notes"]).rejected == {} and len(held(tmp_path / "c")) == 3


def again(path, text, *, whole=False):
    """Write other bytes into a file, or put another file in its place, and set its time back."""
    before = path.stat()
    (path.with_name("other") if whole else path).write_text(text)
    path.with_name("other").replace(path) if whole else None
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(("change", "after"), [
    (lambda at: again(at / "a.txt", "Cat."), {"a.txt": "Cat."}), (lambda at: again(at / "a.txt", "Cat.", whole=True), {"a.txt": "Cat."}),
    (lambda at: again(at / "t.csv", "id,text\n1,Fox.\n3,Gnu.\n"), {"1": "Fox.", "2": None, "3": "Gnu."}),
    (lambda at: (at / "a.txt").unlink(), {"a.txt": None}),
    (lambda at: (at / "a.txt").rename(at / "s" / "a.txt"), {"a.txt": None, "s/a.txt": "Ann."}),
    (lambda at: (at / "a.txt").rename(at / ".a.txt"), {"a.txt": None}),
    (lambda at: (at / "a.txt").replace(at / "s" / "b.txt"), {"a.txt": None, "s/b.txt": "Ann."}),
    (lambda at: [(at / name).rename(at / new) for name, new in (("a.txt", "x"), ("s/b.txt", "a.txt"), ("x", "s/b.txt"))],
     {"a.txt": "Bob.", "s/b.txt": "Ann."}),
    (lambda at: ((at / "l.txt").unlink(), (at / "l.txt").symlink_to("s/b.txt")), {"l.txt": "Bob."}),
    (lambda at: again(at / "s" / "k.txt", "Yak."), {"s/k.txt": "Yak.", "l.txt": "Yak."}),
    (lambda at: (at / "s").rename(at / "r"), {"s/b.txt": None, "r/b.txt": "Bob.", "s/k.txt": None, "r/k.txt": "Kit.", "l.txt": "Kit."}),
    (lambda at: ((at / "n.txt").write_text("New."), os.utime(at / "n.txt", (1, 1))), {"n.txt": "New."}),
    (lambda at: again(at / "a.txt", ""), {"a.txt": None}),
])  # fmt: skip
def test_files_that_change_are_noticed_and_read_again(tmp_path, change, after):
    (at := tmp_path / "notes" / "s").mkdir(parents=True)
    before = {"a.txt": "Ann.", "s/b.txt": "Bob.", "s/k.txt": "Kit.", "1": "Elk.", "2": "Dog."}
    for name, text in [*[*before.items()][:3], ("t.csv", "id,text\n1,Elk.\n2,Dog.\n")]:
        (at.parent / name).write_text(text)
    (at.parent / "l.txt").symlink_to("s/k.txt")
    build_corpus([at.parent], tmp_path / "c", tokenizer=TOKENIZER, block_length=64, tagger="none", workers=1)
    seen = stat_digest([at.parent])
    change(at.parent)
    assert stat_digest([at.parent]) != seen
    sync_documents(tmp_path / "c", [at.parent])
    assert held(tmp_path / "c") == {name: text for name, text in (before | {"l.txt": "Kit."} | after).items() if text}
