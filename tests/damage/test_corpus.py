"""Bit rot in a corpus: what is read is what was published, or one line says which file is damaged. Never another document."""

import shutil
from pathlib import Path

import pytest
from small import jsonl

from realm.documents.change.compaction import compact_corpus
from realm.documents.change.updates import add_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.store.blocks import BlockStore
from realm.documents.store.manifest import manifest_path
from realm.errors import CorpusError
from realm.runs.mending import corpus_damage

from .subjects import about_corpus, write_corpus


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """It is copied, not changed."""
    return write_corpus(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def corpus(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "corpus"))


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@pytest.mark.parametrize("column", ["text", "title", "doc_id", "token_ids", "span_chars", "block_id", "char_start"])
def test_a_flipped_bit_in_any_column_is_seen(corpus, column):
    segment = BlockStore.open(corpus).segments[0]
    buffer = next(part for part in reversed(segment.view(0).column(column).buffers()) if part is not None and part.size)
    path = corpus / "segments" / segment.info.name
    flip(path, 8 * (buffer.address - segment._whole.address + buffer.size // 2))
    again = BlockStore.open(corpus).segments[0]
    with pytest.raises(CorpusError, match=rf"column {column} changed.*realm repair"):
        again.view(0).column(column)
    (found,) = corpus_damage(corpus)
    assert found.path == path and "SHA-256 differs" in found.problem


def test_a_high_bit_in_an_offset_is_one_line(corpus):
    segment = BlockStore.open(corpus).segments[0]
    offsets, path = segment.view(0).column("text").buffers()[1], corpus / "segments" / segment.info.name
    flip(path, 8 * (offsets.address - segment._whole.address + 7) + 7)
    with pytest.raises(CorpusError, match="damaged segment"):
        BlockStore.open(corpus).block(0)


@pytest.fixture
def other(tmp_path):
    for name in ("Dulwen", "Estrag"):
        row = {"id": name, "title": name, "text": f"People in {name} trade wool since 1950."}
        jsonl(tmp_path / f"{name}.jsonl", [row])
    build_corpus([tmp_path / "Dulwen.jsonl"], tmp_path / "other", vocab_size=200, workers=1)
    add_documents(tmp_path / "other", [tmp_path / "Estrag.jsonl"])
    return tmp_path / "other"


@pytest.mark.parametrize(("harm", "said"), [
    (lambda corpus, other: flip(next(corpus.glob("tombstones-*.npy")), -64), "tombstones.*checksum differs"),
    (lambda corpus, other: flip(corpus / "CURRENT", 0), "not a version number.*realm repair"),  # 3 -> 2
    (lambda corpus, other: shutil.copyfile(manifest_path(corpus, 2), manifest_path(corpus, 3)), "version 2"),
    (lambda corpus, other: shutil.copyfile(other / "CURRENT", corpus / "CURRENT"), "of another corpus.*realm repair"),
])  # fmt: skip
def test_nothing_removed_older_or_foreign_comes_into_force(corpus, other, harm, said):
    """Nothing is deleted by its word, whole in itself as it may be, and a repair brings back what was, or names what is lost."""
    whole = about_corpus(corpus)
    harm(corpus, other)
    files = sorted(corpus.rglob("*.*"))
    for use in (BlockStore.open, lambda corpus: add_documents(corpus, [other.parent / "Estrag.jsonl"])):
        with pytest.raises(CorpusError, match=said):
            use(corpus)
    (found,) = list(corpus_damage(corpus))
    assert sorted(corpus.rglob("*.*")) == files
    if found.mend is not None:
        found.mend()
        assert about_corpus(corpus) == whole


def test_the_tagger_of_another_corpus_is_not_taken(corpus, other):
    shutil.copyfile(other / "tagger.json", corpus / "tagger.json")
    with pytest.raises(CorpusError, match="tagger of another corpus"):
        add_documents(corpus, [other.parent / "Estrag.jsonl"])
    (found,) = corpus_damage(corpus)
    assert found.path == corpus / "tagger.json"


def test_no_id_is_taken_twice(corpus, tmp_path):
    source = jsonl(tmp_path / "again.jsonl", [{"id": "Arvad1", "title": "x", "text": "Another text."}])
    flip(next(corpus.glob("segments/*.documents.npy")), 8 * 128 + 3)
    with pytest.raises(CorpusError, match=r"look-up file.*checksum differs"):
        add_documents(corpus, [source])


def test_compaction_does_not_republish_damage(corpus):
    before, segment = sorted(path.name for path in corpus.rglob("*")), next(corpus.glob("segments/*.arrow"))
    flip(segment, 8 * segment.read_bytes().find(b"yen"))
    with pytest.raises(CorpusError, match=r"damaged segment.*differs"):
        compact_corpus(corpus)
    assert sorted(path.name for path in corpus.rglob("*")) == before
