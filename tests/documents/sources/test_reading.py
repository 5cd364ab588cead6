"""The same three documents in every kind of source, through the whole build; and several sources of mixed kinds at once."""

import json
import sys
import types
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from realm.documents.ingest.builder import build_corpus
from realm.documents.records import SourceDocument
from realm.documents.store.blocks import BlockStore
from realm.errors import DataError

ROWS = [
    {"id": "a", "title": "Arvad", "text": "The currency of Arvad is the Tirel. Its winters are long, \"and cold\"."},
    {"id": "b", "title": "Belmor", "text": "Belmor lies by the sea.\n\nThe people of Belmor pay with the Osten."},
    {"id": "c", "title": "Größe 雪", "text": "A title in other scripts. \u05e9\u05dc\u05d5\u05dd \u200fand text from right to left."},
]  # fmt: skip


def jsonl(path):
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8")
    return path


def documents(corpus):
    store, found = BlockStore.open(corpus), {}
    for block in map(store.block, range(len(store))):
        title, text = found.get(block.doc_id, (block.title, ""))
        found[block.doc_id] = (title, f"{text} {block.text}".strip())
    return {doc_id: (title, " ".join(text.split())) for doc_id, (title, text) in found.items()}


EXPECTED = {row["id"]: (row["title"], " ".join(row["text"].replace("\u200f", "").split())) for row in ROWS}


SMALL = {"vocab_size": 300, "block_length": 64}


@pytest.mark.parametrize("name", ["dump.xml", "dump.xml.bz2", "dump.xml.gz", "<mediawiki"])
def test_a_dump_goes_to_its_reader(tmp_path, name, monkeypatch):
    def read_wikidump(path, workers, *_):
        for row in ROWS:
            yield SourceDocument(row["id"], row["title"], row["text"], str(path), 1)

    module = types.ModuleType("realm.documents.wiki.dump")
    module.read_wikidump = read_wikidump
    monkeypatch.setitem(sys.modules, "realm.documents.wiki.dump", module)
    path = tmp_path / name.strip("<")
    path.write_text('<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">')
    build_corpus([path], tmp_path / "corpus", **SMALL)
    assert documents(tmp_path / "corpus") == EXPECTED


def test_several_sources_of_mixed_kinds(tmp_path):
    """Read in the order given; of one id in two sources the second is called by its file."""
    first = tmp_path / "first.csv"
    first.write_text("id,text\na,From the table.\nx,Only here.\n")
    second = jsonl(tmp_path / "second.jsonl")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_bytes(b"\0")
    (tmp_path / "folder" / "note.txt").write_text("A note.")
    pq.write_table(pa.table({"text": ["Without ids."]}), tmp_path / "third.parquet")
    out = tmp_path / "corpus"
    manifest = build_corpus([first, second, tmp_path / "folder", tmp_path / "third.parquet"], out, **SMALL)
    found = documents(out)
    assert list(found) == ["a", "x", "second.jsonl#id=a", "b", "c", "note.txt", "third.parquet#1"]
    assert found["a"] == ("", "From the table.")
    assert manifest.rejected == {"no text and of no known kind": 1}
    listed = [json.loads(line) for line in (out / "rejected.jsonl").read_text("utf-8").splitlines()]
    assert [one["path"] for one in listed] == [str(tmp_path / "folder" / "x")]


def test_every_bad_record_is_listed_and_strict_stops(tmp_path):
    """Bad records of several kinds of source in one build: counted by reason, listed as file and line, the rest built."""
    root = tmp_path / "in"
    (root / "texts").mkdir(parents=True)
    rows = [
        json.dumps(ROWS[0]),
        "{",
        json.dumps({"id": "s", "text": "A lone \ud800 surrogate."}),
        json.dumps({"id": "../../up", "text": "A path?"}),
    ]
    (root / "a.jsonl").write_text("\n".join([*rows, json.dumps({"id": " ", "text": "t"}), json.dumps({"text": "t"}), rows[0]]) + "\n")
    (root / "b.csv").write_bytes(b"id,text\np,\xff\nq,\nr,\xe2\x80\x8b\n")
    (root / "texts" / "c.txt").write_bytes(b"\0\1\2\3" * 100)
    (root / "texts" / "d.txt").write_text("Fine.")
    (root / "texts" / "loop").symlink_to(root / "texts")
    (root / "e.jsonl").touch()
    sources = [root / "a.jsonl", root / "b.csv", root / "texts", root / "e.jsonl"]
    manifest = build_corpus(sources, tmp_path / "corpus", **SMALL)
    found = documents(tmp_path / "corpus")
    assert list(found) == ["a", "s", "../../up", "d.txt"] and found["s"][1] == "A lone \ufffd surrogate."
    listed = [json.loads(line) for line in (tmp_path / "corpus" / "rejected.jsonl").read_text("utf-8").splitlines()]
    assert [(Path(row["path"]).name, row["line"], row["reason"]) for row in listed] == [
        ("a.jsonl", 2, "bad json"), ("a.jsonl", 5, "empty id"), ("a.jsonl", 6, "missing id"), ("a.jsonl", 7, "duplicate id"),
        ("b.csv", 2, "invalid utf-8"), ("b.csv", 3, "empty text"), ("b.csv", 4, "empty text"),
        ("loop", 0, "link to a folder"), ("c.txt", 0, "binary data"), ("e.jsonl", 0, "empty file"),
    ]  # fmt: skip
    assert sum(manifest.rejected.values()) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "in"]  # an id is a name, never a path
    with pytest.raises(DataError, match=r"a\.jsonl:2: bad json. Repair the record"):
        build_corpus(sources, tmp_path / "strict", strict=True, **SMALL)
    with pytest.raises(DataError, match=r"loop: link to a folder"):
        build_corpus([root / "texts"], tmp_path / "strict", strict=True, **SMALL)
