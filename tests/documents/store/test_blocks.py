"""BlockStore: rows and ids, views, sentence and document look-up, tombstones, batches, damage."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from realm.documents.change.updates import add_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.ingest.packing import hash64
from realm.documents.store import segments
from realm.documents.store.blocks import NULL_BLOCK, BlockStore
from realm.documents.store.manifest import damage, point_at, read_manifest, write_manifest
from realm.documents.store.segments import lookup_of, read_whole, segment_sums, token_dtype
from realm.errors import CorpusError
from realm.storage.files import sha256_file
from realm.storage.manifests import sealed, unsealed


@pytest.fixture
def corpus(write_jsonl, city_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "BATCH_ROWS", 16)
    rows = city_rows()
    build_corpus([write_jsonl("a.jsonl", rows[:16])], tmp_path / "corpus", vocab_size=400, block_length=64)
    add_documents(tmp_path / "corpus", [write_jsonl("b.jsonl", rows[16:])])
    return tmp_path / "corpus"


def test_rows_ids_and_lengths(corpus):
    store = BlockStore.open(corpus)
    assert len(store) == store.manifest.blocks > 32
    assert [str(array.dtype) for array in (store.block_ids, store.lengths, store.live)] == ["int64", "int32", "bool"]
    assert store.live.all()
    for row in range(len(store)):
        block, tokens = store.block(row), store.token_ids(row)
        assert block.block_id == store.block_ids[row]
        assert tokens.dtype == np.uint16
        assert store.lengths[row] == len(store.title_ids(row)) + len(tokens) <= 61
        assert store.tokenizer.encode([block.title])[0][:16] == store.title_ids(row).tolist()
    ids = np.array([[3, 0], [len(store) - 1, 3]])
    assert store.rows_of(ids).tolist() == ids.tolist()
    assert store.rows_of(np.empty((0, 2), np.int64)).shape == (0, 2)
    for unknown in (NULL_BLOCK, len(store)):
        with pytest.raises(KeyError):
            store.rows_of(np.array([0, unknown]))
    for outside in (-1, len(store)):
        with pytest.raises(IndexError):
            store.block(outside)


def test_tokens_are_views_and_documents_have_their_rows(corpus):
    store = BlockStore.open(corpus)
    tokens = store.token_ids(20)
    assert np.shares_memory(tokens, store.token_ids(20))
    assert not tokens.flags.owndata
    assert not tokens.flags.writeable
    for doc_id in store.documents():
        assert store.rows_of_document(doc_id).tolist() == [row for row in range(len(store)) if store.block(row).doc_id == doc_id]
    assert store.rows_of_document("nobody").tolist() == []


def test_sentences_spans_and_the_rows_that_hold_a_sentence(corpus):
    store = BlockStore.open(corpus)
    for row in range(len(store)):
        text, sentences, spans = store.block(row).text, store.sentences(row), store.spans(row)
        assert [hash64(text[start:end]) for start, end in sentences.chars] == sentences.hashes.tolist()
        assert sentences.chars.dtype == sentences.tokens.dtype == spans.chars.dtype == spans.sentence.dtype == np.int32
        assert sentences.hashes.dtype == np.uint64
        for (start, end), (first, last), sentence in zip(spans.chars, spans.tokens, spans.sentence, strict=True):
            assert store.tokenizer.encode([text[start:end]])[0] == store.token_ids(row)[first:last].tolist()
            assert sentences.chars[sentence, 0] <= start < end <= sentences.chars[sentence, 1]
    expected = [row for row in range(len(store)) if "Bread is baked in the morning." in store.block(row).text]
    assert len(expected) > 5
    assert store.rows_with_sentence(hash64("bread is  baked in the MORNING.")).tolist() == expected
    assert 7 in store.rows_with_sentence(store.sentences(7).hashes[0])
    assert store.rows_with_sentence(12345).tolist() == []


def test_missing_damaged_foreign_and_empty(corpus, tmp_path):
    with pytest.raises(CorpusError, match="realm corpus build"):
        BlockStore.open(tmp_path / "nowhere")
    manifest_file = corpus / "manifest-000002.json"
    good, current = manifest_file.read_text(), (corpus / "CURRENT").read_text()
    for change, message in (
        ({"format": "realm-corpus/3"}, "made by an earlier version"),
        ({"blocks": 0}, "empty"),
        ({"tokenizer_sha256": "0"}, "tokenizer"),
    ):
        manifest_file.write_text(json.dumps({**json.loads(good), **change}))
        point_at(corpus, 2)
        with pytest.raises(CorpusError, match=message if "format" in change else r"damaged manifest.*checksum differs"):
            BlockStore.open(corpus)
        manifest_file.write_text(json.dumps(sealed({**unsealed(json.loads(good), damage("manifest"), manifest_file), **change})))
        point_at(corpus, 2)
        with pytest.raises(CorpusError, match=message):
            BlockStore.open(corpus)
    manifest_file.write_text(good)
    (corpus / "CURRENT").write_text(current)
    data = (corpus / "segments" / "000002.arrow").read_bytes()
    for name, harmed, message in (
        (manifest_file.name, good[: len(good) // 2].encode(), "damaged manifest"),
        ("segments/000002.arrow", data[:-100], "truncated segment"),
        ("segments/000002.arrow", b"x" * len(data), "damaged segment"),
        ("CURRENT", b"2\n", r"CURRENT: made by an earlier version of realm\. Build it again\."),
        ("CURRENT", b"two", "not a version number"),
    ):
        whole = (corpus / name).read_bytes()
        (corpus / name).write_bytes(harmed)
        with pytest.raises(CorpusError, match=message):
            BlockStore.open(corpus)
        (corpus / name).write_bytes(whole)
    assert (token_dtype(65_535), token_dtype(65_536)) == (np.uint16, np.uint32)


def flipped(data, offsets, _):
    data[offsets + 4 + 3] ^= 0x80


def spoiled(data, _, values):
    data[values] = 0xFF


def _changed(segment, column, change):
    """Change a segment: ``change`` gets its bytes, where the column's offsets begin, and where its values do."""
    data = pa.py_buffer(segment.read_bytes())
    found = pa.ipc.open_file(pa.BufferReader(data)).get_batch(0).column(column)
    values = found.buffers()[2] if pa.types.is_string(found.type) else found.buffers()[1]
    changed = bytearray(data)
    change(changed, found.buffers()[1].address - data.address, values.address - data.address)
    segment.write_bytes(changed)


def _whole(store):
    for row in range(len(store)):
        store.block(row), store.token_ids(row), store.title_ids(row), store.sentences(row), store.spans(row), store.span_hashes(row)
    store.documents()


def _forge(corpus):
    manifest = read_manifest(corpus)
    first = manifest.segments[0]
    segment = corpus / "segments" / first.name
    whole = read_whole(segment)
    reader = pa.ipc.open_file(pa.BufferReader(whole))
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    forged = replace(first, sha256=sha256_file(segment), sums=segment_sums(whole, batches, lookup_of(segment)))
    write_manifest(corpus, replace(manifest, segments=(forged, *manifest.segments[1:])))


@pytest.mark.parametrize(("harm", "column", "problem"), [
    *((flipped, column, f"column {column}: .*ascend") for column in ("doc_id", "title", "text", "token_ids", "sentence_chars")),
    *((spoiled, column, f"'{column}' holds bytes that are not UTF-8") for column in ("doc_id", "title", "text", "source")),
])  # fmt: skip
def test_damage_that_no_checksum_tells_is_one_line(corpus, harm, column, problem):
    """Arrow trusts offsets: text of a negative length ends the process."""
    _changed(sorted((corpus / "segments").glob("*.arrow"))[0], column, harm)
    _forge(corpus)
    with pytest.raises(CorpusError, match=f"damaged segment: {problem}"):
        _whole(BlockStore.open(corpus))
