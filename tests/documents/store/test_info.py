"""The living corpus on the command line: marked sentences, the source's record, ids from files, one line for every mistake."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from realm.documents.ingest.builder import build_corpus
from realm.documents.sources.reading import read_again, source_name
from realm.documents.store.blocks import BlockStore
from realm.documents.store.manifest import read_manifest
from realm.errors import DataError


@pytest.fixture
def corpus(write_jsonl, city_rows, tmp_path):
    build_corpus([write_jsonl("docs.jsonl", city_rows(6))], tmp_path / "corpus", vocab_size=300, block_length=64)
    return tmp_path / "corpus"


def test_show_marks_spans(say, corpus):
    assert "On [[3 March 1969]] the pound sterling was used in [[Rome]]." in say("corpus", "show", corpus, "doc-2")
    found = say("corpus", "show", corpus, "doc-2", "--json")
    assert set(found) == {"id", "blocks"}
    for block in found["blocks"]:
        spans = [sentence["text"][start:end] for sentence in block["sentences"] for start, end in sentence["spans"]]
        assert spans == block["spans"]
        assert all(sentence["text"] in block["text"] for sentence in block["sentences"])


def test_show_source(say, corpus, tmp_path, city_rows):
    source, row = tmp_path / "docs.jsonl", city_rows(3)[2]
    assert f"{source}:3\n" in say("corpus", "show", corpus, "doc-2", "--source")
    found = say("corpus", "show", corpus, "doc-2", "--source", "--json")["source"]
    assert found == {"path": str(source), "line": 3, "record": {key: row[key] for key in ("id", "title", "text")}, "note": None}
    lines = source.read_text().splitlines()
    source.write_text("\n".join([*lines[:2], lines[2].replace("museum", "harbour")]))
    found = say("corpus", "show", corpus, "doc-2", "--source", "--json")["source"]
    assert found["note"] == "the source has changed since the document was read" and "harbour" in found["record"]["text"]
    assert "the source has no such record any more" in say("corpus", "show", corpus, "doc-4", "--source")
    source.unlink()
    shown = say("corpus", "show", corpus, "doc-2", "--source")
    assert f"{source}: the source no longer exists. Put it back" in shown and "[[Rome]]" in shown


def test_every_kind_of_source_is_read_again(tmp_path, write_jsonl):
    folder = tmp_path / "folder" / "deep"
    folder.mkdir(parents=True)
    (folder / "one.md").write_text("# Title\n\nThis is about London.")
    odd = os.fsencode(folder) + b"/caf\xe9.txt"
    Path(os.fsdecode(odd)).write_text("Coffee is drunk in Paris.")
    (tmp_path / "two.txt").write_text("This is about Rome.")
    jsonl = write_jsonl("three.jsonl", ["", "{", {"id": "x", "text": "This is about Oslo."}])
    build_corpus([folder.parent, tmp_path / "two.txt", jsonl], tmp_path / "corpus", vocab_size=200)
    store = BlockStore.open(tmp_path / "corpus")
    blocks = [store.block(row) for row in range(len(store))]
    assert [(Path(block.source).name, block.line) for block in blocks] == [
        ("caf\\xe9.txt", 0), ("one.md", 0), ("two.txt", 0), ("three.jsonl", 3),
    ]  # fmt: skip
    for block in blocks[1:]:
        again = read_again(block.source, block.line)
        assert again is not None and block.text in again.text
    assert read_again(str(jsonl), 2) is None and read_again(str(jsonl), 9) is None
    with pytest.raises(DataError, match="no longer exists"):
        read_again(blocks[0].source, 0)
    assert source_name("a/b\udce9") == "a/b\\xe9" and source_name("café") == "café"


def test_show_source_reads_as_the_build_did(say, tmp_path, write_jsonl):
    csv = tmp_path / "table.csv"
    csv.write_text('key;"name";body\nk1;Oslo;"A text; about Oslo."\nk2;Rome;A text about Rome.\n')
    named = ["--column", "id=key", "--column", "title=name", "--column", "text=body"]
    say("corpus", "build", csv, "--out", tmp_path / "c", "--vocab-size", "200", *named)
    dpr = tmp_path / "psgs"
    dpr.write_text('id\ttext\ttitle\n7\t"A passage about ""Bonn""."\tBonn\n')
    say("corpus", "add", tmp_path / "c", dpr, "--format", "tsv")
    parquet = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"nr": ["p1", "p2"], "inhalt": ["Text über Wien.", "Text über Linz."]}), parquet)
    say("corpus", "add", tmp_path / "c", parquet, "--column", "id=nr", "--column", "text=inhalt")
    say("corpus", "add", tmp_path / "c", write_jsonl("plain.jsonl", [{"id": "j", "text": "A text about Lyon."}]))
    say("corpus", "compact", tmp_path / "c")
    records = {}
    for doc_id in ("k1", "k2", "7", "p1", "p2", "j"):
        found = say("corpus", "show", tmp_path / "c", doc_id, "--source", "--json")["source"]
        assert found["note"] is None
        records[doc_id] = (found["line"], found["record"]["title"], found["record"]["text"])
    assert records == {
        "k1": (2, "Oslo", "A text; about Oslo."), "k2": (3, "Rome", "A text about Rome."), "7": (2, "Bonn", 'A passage about "Bonn".'),
        "p1": (1, "", "Text über Wien."), "p2": (2, "", "Text über Linz."), "j": (1, "", "A text about Lyon."),
    }  # fmt: skip
    readings = read_manifest(tmp_path / "c").readings
    assert [entry.options for entry in readings] == [
        {"id_column": "key", "title_column": "name", "text_column": "body"}, {"format": "tsv"},
        {"id_column": "nr", "text_column": "inhalt"}, {},
    ]  # fmt: skip
    assert [entry.first_id for entry in readings] == [0, 2, 3, 5]


def test_remove_by_file(say, refused, corpus, tmp_path):
    ids = tmp_path / "ids.txt"
    ids.write_text("\ufeffdoc-1\n\n  doc-3  \r\n")
    found = say("corpus", "remove", corpus, "doc-0", "--ids", ids, "--json")
    assert (found["documents"], found["version"]) == (3, 2) and found["removed"] > 0
    assert "no document 'doc-1', 'doc-3'; nothing is removed" in refused("corpus", "remove", corpus, "--ids", ids, "doc-2")
    ids.write_text("\n \n")
    assert "no id is given" in refused("corpus", "remove", corpus, "--ids", ids)
    ids.write_bytes(b"doc-2\n\xff\xfe\n")
    assert "ids.txt: not UTF-8" in refused("corpus", "remove", corpus, "--ids", ids)
    assert "no such file" in refused("corpus", "remove", corpus, "--ids", tmp_path / "nothing")
    assert say("corpus", "compact", corpus, "--purge", "--json")["removed"] == 0
    assert BlockStore.open(corpus).documents() == ["doc-2", "doc-4", "doc-5"]


def test_update_verb(say, refused, corpus, write_jsonl, city_rows, tmp_path):
    rows = city_rows(8)
    rows[1]["text"] = "Nothing is left."
    assert say("corpus", "update", corpus, write_jsonl("new.jsonl", rows), "--json")["rejected"] == {"unknown id": 2}
    assert "Nothing is left." in say("corpus", "show", corpus, "doc-1")
    assert "new.jsonl:7: unknown id. Repair the record" in refused("corpus", "update", corpus, tmp_path / "new.jsonl", "--strict")
    assert "no usable document" in refused("corpus", "update", corpus, write_jsonl("bad.jsonl", ["{"]))
    assert "no such file" in refused("corpus", "update", corpus, tmp_path / "nothing.jsonl")
    assert BlockStore.open(corpus).version == 2


def test_other_mistakes(refused, corpus, tmp_path):
    assert "no document 'doc-9'" in refused("corpus", "show", corpus, "doc-9")
    for verb in (["remove", tmp_path, "x"], ["compact", tmp_path], ["update", tmp_path, tmp_path / "docs.jsonl"], ["show", tmp_path, "x"]):
        assert "no corpus here" in refused("corpus", *verb)
    manifest = corpus / "manifest-000001.json"
    manifest.write_text(manifest.read_text().replace("realm-corpus/5", "realm-corpus/4"))
    for verb in (["remove", corpus, "doc-1"], ["compact", corpus], ["info", corpus]):
        assert refused("corpus", *verb) == f"error: {manifest}: made by an earlier version of realm. Build it again."
