"""The same three documents in every kind of source, through the whole build; and several sources of mixed kinds at once."""

import json
import sys
import types
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from realm.documents.ingest.builder import build_corpus
from realm.documents.records import Rejected, SourceDocument
from realm.documents.sources import SourceOptions, iter_documents, reading
from realm.documents.store.blocks import BlockStore
from realm.errors import DataError, MissingExtra

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


DATASET_ROWS = {"id": [1, 2, 3], "title": ["A", None, "C"], "text": ["One.", "Two.", " "], "extra": [[1], [2], [3]]}


@pytest.fixture
def datasets():
    module = pytest.importorskip("datasets")
    module.disable_progress_bars()
    return module


def test_a_saved_dataset(tmp_path, datasets):
    folder = tmp_path / "saved"
    datasets.Dataset.from_dict(DATASET_ROWS).save_to_disk(str(folder))
    for options in (SourceOptions(), SourceOptions(format="datasets")):
        assert list(iter_documents(folder, options)) == [
            SourceDocument("1", "A", "One.", str(folder), 1),
            SourceDocument("2", "", "Two.", str(folder), 2),
            Rejected(str(folder), 3, "empty text"),
        ]
    with pytest.raises(DataError, match=r"no column 'body', which --column text=body names. Columns are: id, title, text, extra$"):
        list(iter_documents(folder, SourceOptions(text_column="body")))


def test_splits(tmp_path, datasets):
    part = datasets.Dataset.from_dict({"text": ["One."]})
    datasets.DatasetDict({"train": part}).save_to_disk(str(tmp_path / "one"))
    assert [record.doc_id for record in iter_documents(tmp_path / "one") if isinstance(record, SourceDocument)] == ["one#1"]
    datasets.DatasetDict({"train": part, "test": part}).save_to_disk(str(tmp_path / "two"))
    with pytest.raises(DataError, match=r"several splits: train, test. Name one"):
        list(iter_documents(tmp_path / "two"))
    assert len(list(iter_documents(tmp_path / "two" / "test"))) == 1


def test_a_damaged_dataset(tmp_path, datasets):
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(DataError, match=r"cannot load this dataset: ") as error:
        list(iter_documents(tmp_path))
    assert "\n" not in str(error.value)


def test_a_streamed_dataset(datasets, monkeypatch):
    """What the hub would give, without the hub: the name's parts reach the library, rows come one by one."""
    asked = []

    def load_dataset(*parts, **named):
        asked.append((parts, named))
        rows = datasets.Dataset.from_dict(DATASET_ROWS).to_iterable_dataset()
        return rows if named["split"] else datasets.IterableDatasetDict({"train": rows})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for name in ("hf:owner/name:en:train", "hf:owner/name::train", "hf:owner/name:en"):
        records = list(iter_documents(Path(name)))
        assert records[:2] == [SourceDocument("1", "A", "One.", name, 1), SourceDocument("2", "", "Two.", name, 2)]
    assert [(*parts, named["split"]) for parts, named in asked] == [
        ("owner/name", "en", "train"), ("owner/name", None, "train"), ("owner/name", "en", None)
    ]  # fmt: skip
    assert all(named["streaming"] is True and "trust_remote_code" not in named for _, named in asked)


def test_the_hub_is_not_there(datasets):
    with pytest.raises(DataError, match=r"hf:nobody/nothing: cannot load this dataset: .*Check the name") as error:
        list(iter_documents(Path("hf:nobody/nothing")))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["a:b:c:d", "", "../x", "../x/y", "./x", "x/..", "/etc/x", "x/y/z", "json", "parquet", "~/x", "owner/", "owner/na me", "a\\b"]
)
def test_what_is_no_name_of_the_hub(datasets, tmp_path, monkeypatch, name):
    """A lone name may be a reader of the library, which would take what lies in the directory."""
    (tmp_path / "here").mkdir()
    (tmp_path / "x").mkdir()
    for folder in ("x", "here"):
        (tmp_path / folder / "rows.jsonl").write_text('{"text": "What nobody asked for."}\n')
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("the library was asked"))
    with pytest.raises(DataError, match=r"no name of a dataset. Write hf:owner/name"):
        list(iter_documents(Path(f"hf:{name}")))


def test_a_folder_is_not_read_for_the_hub(datasets, tmp_path, monkeypatch):
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text('{"text": "What nobody asked for."}\n')
    monkeypatch.chdir(tmp_path)
    for name in ("owner/name", "owner/name::train"):
        with pytest.raises(DataError, match=r"a file or folder of that name is here.* without hf:"):
            list(iter_documents(Path(f"hf:{name}")))


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"needs the extra 'datasets'"):
        list(reading.read_dataset(Path("hf:owner/name"), SourceOptions()))
