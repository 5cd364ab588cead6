"""Several sources of mixed kinds at once, through the whole build; folders: what is read, what is left out and counted."""

import json
import os
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from realm.documents.change.updates import sync_documents, update_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.records import Rejected, SourceDocument
from realm.documents.sources import SourceOptions, iter_documents
from realm.documents.sources.reading import MOST_ENTRIES, RowIds, _read_one, files_below, folder_words, id_of, names_of, what_changes
from realm.documents.store.blocks import BlockStore
from realm.errors import DataError

SMALL = {"vocab_size": 300, "block_length": 64}


def test_every_bad_record_is_listed_and_strict_stops(tmp_path):
    """Bad records of several kinds of source in one build: counted by reason, listed as file and line, the rest built."""
    root = tmp_path / "in"
    (root / "texts").mkdir(parents=True)
    good = '{"id": "a", "title": "Arvad", "text": "The currency of Arvad is the Tirel."}'
    odd = r'{"id": "s", "text": "A lone \ud800 surrogate."}', '{"id": "../../up", "text": "A path?"}'
    (root / "a.jsonl").write_text("\n".join([good, "{", *odd, '{"id": " ", "text": "t"}', '{"text": "t"}', good, ""]))
    (root / "b.csv").write_bytes(b"id,text\np,\xff\nq,\nr,\xe2\x80\x8b\n")
    (root / "texts" / "c.txt").write_bytes(b"\0\1\2\3" * 100)
    (root / "texts" / "d.txt").write_text("Fine.")
    (root / "texts" / "loop").symlink_to(root / "texts")
    (root / "e.jsonl").touch()
    sources = [root / "a.jsonl", root / "b.csv", root / "texts", root / "e.jsonl"]
    manifest = build_corpus(sources, tmp_path / "corpus", **SMALL)
    store = BlockStore.open(tmp_path / "corpus")
    assert store.documents() == ["a", "s", "../../up", "d.txt"] and store.block(1).text == "A lone \ufffd surrogate."
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


def ids(source, options=None):
    return [record.doc_id for record in iter_documents(source, options or SourceOptions()) if isinstance(record, SourceDocument)]


def reasons(source):
    return {Path(record.path).name: (record.line, record.reason) for record in iter_documents(source) if isinstance(record, Rejected)}


def test_links_are_not_followed_out(tmp_path):
    (tmp_path / "secret.txt").write_text("Outside.")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "more.txt").write_text("Outside, too.")
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "in.txt").write_text("Inside.")
    (folder / "inner.txt").symlink_to(folder / "in.txt")
    (folder / "out.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "up.txt").symlink_to("../secret.txt")
    (folder / "gone.txt").symlink_to("nowhere.txt")
    (folder / "round.txt").symlink_to("round.txt")
    (folder / "sub" / "loop").symlink_to(folder)
    (folder / "sub" / "there").symlink_to(tmp_path / "elsewhere")
    assert ids(folder) == ["in.txt", "inner.txt"]
    assert reasons(folder) == {
        "out.txt": (0, "link out of the folder"), "up.txt": (0, "link out of the folder"),
        "gone.txt": (0, "unreadable file"), "round.txt": (0, "unreadable file"), "loop": (0, "link to a folder"),
        "there": (0, "link to a folder"),
    }  # fmt: skip
    (tmp_path / "alias").symlink_to(folder)  # the source itself may be a link
    assert ids(tmp_path / "alias") == ["in.txt", "inner.txt"]


def test_what_cannot_be_read(tmp_path, monkeypatch, closed):
    """A pipe would never answer; a file and a folder without permission, and one that has gone, are counted."""
    (tmp_path / "a.txt").write_text("Fine.")
    (tmp_path / "closed.txt").write_text("Closed.")
    (tmp_path / "closed").mkdir()
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "folder.txt").mkdir()
    closed(monkeypatch, "closed.txt", "closed")
    assert ids(tmp_path) == ["a.txt"]
    unreadable = (0, "unreadable file")
    assert reasons(tmp_path) == {"closed.txt": unreadable, "pipe.txt": unreadable, "closed": unreadable}
    assert next(_read_one(tmp_path, tmp_path / "gone" / "a.txt", "", "text", SourceOptions(), None, RowIds())).reason == unreadable[1]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_a_closed_file(tmp_path, name, monkeypatch, closed):
    (tmp_path / name).write_text("x")
    closed(monkeypatch, name)
    (record,) = iter_documents(tmp_path / name)
    assert isinstance(record, Rejected) and record.reason == "unreadable file"


def test_rows_of_two_files_with_one_id_are_two_documents(tmp_path):
    pq.write_table(pa.table({"id": ["1", "5"], "text": ["E.", "F."]}), tmp_path / "e.parquet")
    (tmp_path / "a.csv").write_text("id,text\n1,A.\n2,A.\n2,Again.\n")
    (tmp_path / "b.csv").write_text("id,text\n1,B.\n1,Again.\n3,B.\n")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.csv").write_text("text\nC.\n")
    (tmp_path / "j.csv").touch()
    (tmp_path / "c" / "d.jsonl").write_text('{"id": 3, "text": "D."}\n{"id": 4, "text": "D."}\n')
    (tmp_path / "f.tsv").write_text("subject\trelation\tobject\n1\tis\tOne\n")
    with ZipFile(tmp_path / "g.zip", "w") as archive:
        archive.writestr("h.csv", "id,text\n1,G.\n6,G.\n")
        archive.writestr("i.csv", "id,text\n6,G.\n")
    first = ["1", "2", "2", "b.csv#id=1", "b.csv#id=1", "3", "e.parquet#id=1", "5", "f.tsv#1", "g.zip/h.csv#id=1", "6", "g.zip/i.csv#id=6"]
    assert ids(tmp_path) == [*first, "c/a.csv#1", "c/d.jsonl#id=3", "4"] and reasons(tmp_path) == {"j.csv": (0, "empty file")}
    assert ids(tmp_path, SourceOptions(format="jsonl")) == ["3", "4"]
    manifest = build_corpus([tmp_path], tmp_path / "corpus", vocab_size=300)
    assert (manifest.documents, manifest.rejected) == (13, {"duplicate id": 2, "empty file": 1})


def test_rows_of_named_files_with_one_id_are_documents_that_keep_their_names(tmp_path):
    texts = {"a.csv": "id,text\n1,A.\n2,A.\n", "b.csv": "id,text\n1,B.\n3,B.\n", "c.jsonl": '{"id": " 3 ", "text": "C."}\n', "e.txt": "E."}
    for name, text in [*texts.items(), ("d/f.csv", "id,text\n1,D.\n")]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    sources, corpus = [tmp_path / name for name in ("a.csv", "b.csv", "c.jsonl", "d", "e.txt")], tmp_path / "corpus"
    build_corpus(sources, corpus, vocab_size=300)
    more = ["b.csv#id=1", "3", "c.jsonl#id=3", "f.csv#id=1", "e.txt"]
    assert BlockStore.open(corpus).documents() == ["1", "2", *more]
    sources[0].write_text("id,text\n2,A.\n")
    sync_documents(corpus, sources)
    assert BlockStore.open(corpus).documents() == ["2", *more]
    sources[1].write_text("id,text\n1,Bee.\n3,B.\n")
    update_documents(corpus, [sources[1]])
    assert sorted(BlockStore.open(corpus).documents()) == sorted(["2", *more])


def test_rows_of_files_in_an_archive_or_a_message_keep_their_names(tmp_path):
    def written(ids_of_first):
        first = "id,text\n" + "".join(f"{number},First {number}.\n" for number in ids_of_first)
        with ZipFile(tmp_path / "in" / "a.zip", "w") as archive:
            for name, text in (("h.csv", first), ("i.csv", "id,text\n6,Second.\n")):
                archive.writestr(name, text)
        part = "--x\nContent-Disposition: attachment; filename=%s\n\n%s\n"
        files = part % ("h.csv", first) + part % ("i.csv", "id,text\n6,Third.\n")
        (tmp_path / "in" / "m.eml").write_text(f"Content-Type: multipart/mixed; boundary=x\n\n{files}--x--\n")

    (tmp_path / "in").mkdir()
    written([6, 7])
    build_corpus([tmp_path / "in"], tmp_path / "corpus", vocab_size=300)
    kept = {"a.zip/i.csv#id=6", "m.eml/i.csv#id=6", "7", "m.eml/h.csv#id=7"}
    assert {*BlockStore.open(tmp_path / "corpus").documents()} == kept | {"6", "m.eml/h.csv#id=6"}
    written([7])
    sync_documents(tmp_path / "corpus", [tmp_path / "in"])
    assert {*BlockStore.open(tmp_path / "corpus").documents()} == kept


def test_what_a_saved_page_runs_is_left_out(tmp_path):
    for name in ("a.html", "a_files/b.js", "a_files/c.css", "a_files/d.js.download", "a-Dateien/e.css", "f.js", "g_files/h.js"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("<p>It is." if name == "a.html" else "// It runs.")
    assert ids(tmp_path) == ["a.html", "f.js", "g_files/h.js"]
    assert {*reasons(tmp_path).values()} == {(0, "script or style of a saved page")} and len(reasons(tmp_path)) == 4


def test_folders_whose_names_are_all_ending_are_read(tmp_path, monkeypatch):
    """A name such as _static has nothing before its ending, "." no name; my_page_files belongs to my_page."""
    for name in ("my.html", "my_page.html", "top.js", "_static/a.js", "_static/b.txt", "-x/c.css", "my_page_files/d.js", "my_2_files/e.js"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("<p>It is." if name.endswith(".html") else "// It runs.")
    read = ["my.html", "my_page.html", "top.js", "-x/c.css", "_static/a.js", "_static/b.txt", "my_2_files/e.js"]
    monkeypatch.chdir(tmp_path)
    assert sorted(ids(tmp_path)) == sorted(ids(Path("."))) == sorted(read)
    assert ids(tmp_path / "_static") == ["a.js", "b.txt"]


def test_errors_name_the_cure(tmp_path):
    unknown = {"x.pages": b"", "x.doc": b"\xd0\xcf\x11\xe0", "y.pages": b"PK\x03\x04...", "x.xml.7z": b"7z\xbc\xaf\x27\x1c"}
    for name, data in (unknown | {"full/a.jar": b"PK\x03\x04\0"}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "none").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name, form, said in (
        *((name, "", "no such file or folder") for name in ("missing.jsonl", "x" * 300, "a\0b")),
        ("x.pages", "", "unknown type of source.*Known are folders of texts, and files ending in .bmp, .csv"),
        ("x.doc", "", "unknown type of source.*--format says what another file is"),
        ("y.pages", "", "unknown type of source.*zip or office file"),
        ("x.xml.7z", "", "unknown type of source.*Unpack it with 7z first"),
        ("pipe.jsonl", "", "not a regular file.*save the stream to a file"),
        ("none", "", r"no \.txt, \.md, \.html, \.pdf or \.docx file"), ("full", "", r"in this folder \(but 1 \.jar\)"),
        (".", "parquet", "no parquet file in this folder"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=said):
            list(iter_documents(tmp_path / name, SourceOptions(format=form or None)))


FOREIGN = {
    "README": b"The ferry was sold to Karla Brink.",
    "policy.rst": b"Title\n=====\n\nThe policy was written by Hugo Brandt.",
    "mill.log": b"The mill was bought by Nils Ferro.",
    "notes.org": b"* The fair is run by Lena Fors.",
    "paper.tex": b"\\section{Weir} Ota Brand mended it.",
    "site.yaml": b"admin: Petra Klein",
    "set.ini": b"[site]\nadmin = Petra Klein",
    "tool.py": b"PORT = 8042  # of the ferry",
    "umlaut.txt": "Ren\u00e9 M\u00fcnch \u00f6ffnet das Caf\u00e9.".encode("cp1252"),
    "utf16.txt": "The lake is owned by Sven Orm.".encode("utf-16"),
    "list.csv": b"name;phone\nPetra Klein;0151 123",
    "package.json": b'{"name": "ferry", "scripts": {"start": "row"}}',
    "note.xml": b'<?xml version="1.0"?><note><body>The canteen is run by Omar Haddad.</body></note>',
    "keys.eml": b"From: a@example.org\nSubject: keys\n\nThe spare keys are with the porter.",
    "cur/1.M1.host:2,S": b"Return-Path: <a@b.org>\nFrom: a@b.org\nContent-Transfer-Encoding: base64\n\nVGhlIGtleS4=",
    "HOURS": b"From Monday on the mill is open at 10:30.",
    "Inbox": b"From - Mon Jan  1 10:00:00 2024\nSubject: keys\n\nWith the porter.",
    "table.xls": b"Item\tPrice\nBoiler\t4200",
    "book.ipynb": b'{"cells": [{"cell_type": "code", "source": "mean = 3"}]}',
}


LEFT_OUT = {
    ".git/config": "hidden file or folder",
    ".env": "hidden file or folder",
    "sub/.cache/a.txt": "hidden file or folder",
    "__pycache__/a.txt": "cache or version store",
    "node_modules/x/readme.md": "cache or version store",
    "tagged/CACHEDIR.TAG": "cache or version store",
    "a.txt~": "editor backup",
    "#a.txt#": "editor backup",
    "a.bak": "editor backup",
    "~$a.docx": "editor backup",
    "a.zip": "damaged file",
    "a.jar": "no text and of no known kind",
    "a.bin": "no text and of no known kind",
    "twice.csv": "two columns are called 'text'",
    "broken.xml": "damaged file",
    "broken.odt": "damaged file",
}


WHOLE = {"one.txt": b"Fine.", "twice.csv": b"text,text\n1,2"}


@settings(max_examples=25)
@given(st.sets(st.sampled_from([*FOREIGN, *LEFT_OUT]), min_size=1))
def test_every_file_is_read_or_named_with_the_reason(names):
    with TemporaryDirectory() as scratch:
        for name in ("one.txt", *names):
            (file := Path(scratch, name)).parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes((FOREIGN | WHOLE).get(name, b"<a>\0\1\2"))
        records = list(iter_documents(Path(scratch)))
        read = {Path(record.path).relative_to(scratch).as_posix() for record in records if isinstance(record, SourceDocument)}
        named = Counter(Path(record.path).relative_to(scratch).as_posix() for record in records if isinstance(record, Rejected))
        assert read == {"one.txt", *names} & {"one.txt", *FOREIGN} and named == Counter({*names} - read)
        assert {record.reason for record in records if isinstance(record, Rejected)} == {LEFT_OUT[name] for name in named}
        assert len(list(files_below(Path(scratch)))) == len(read) + len(named)


def test_names_that_differ_are_ids_that_differ(tmp_path):
    names = ["a b", "a  b", " a b", "a b ", "a\nb", "a\tb", "A b", "a B", "a\u00a0b", "e\u0301", "\u00e9", "a\u200bb", "ab"]
    assert len({id_of(name) for name in names}) == len(names)
    for name in names:
        (tmp_path / f"{name}.txt").write_text("x")
    found = ids(tmp_path)
    assert len(set(found)) == len(names) and {"a b.txt", "A b.txt", "ab.txt"} <= set(found) and ids(tmp_path) == found


@pytest.mark.parametrize(("sources", "names"), [
    (["a/docs"], [""]), (["a/docs", "a/docs"], ["", ""]), (["a/docs", "b"], ["docs", "b"]), (["a/docs", "b/docs"], ["a/docs", "b/docs"]),
    (["b/x.txt"], ["x.txt"]), (["b/x.txt", "a/x.txt"], ["b/x.txt", "a/x.txt"]), (["a/docs", "a/x.txt"], ["", "x.txt"]),
    (["b", "a/x.txt"], ["", "a/x.txt"]), (["b/x.txt", "a/docs", "a/x.txt"], ["b/x.txt", "", "a/x.txt"]),
    (["a/x.txt", "a/../a/x.txt"], ["x.txt", "x.txt"]),
])  # fmt: skip
def test_sources_are_told_apart(tmp_path, monkeypatch, sources, names):
    for folder in ("a/docs", "b/docs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "a" / "x.txt").touch()
    (tmp_path / "b" / "x.txt").touch()
    monkeypatch.chdir(tmp_path)
    assert names_of(list(map(Path, sources))) == names


def test_a_change_shows_though_the_time_is_set_back(tmp_path):
    (file := tmp_path / "a.txt").write_text("Ota")
    before = what_changes(file)
    file.write_text("Ann")
    os.utime(file, ns=(before[1], before[1]))
    assert file.stat().st_mtime_ns == before[1] and what_changes(file) != before and what_changes(tmp_path / "none") == []


@pytest.mark.parametrize(("path", "words"), [
    ("bcrypt/CHANGELOG.md", "bcrypt"), ("npm/bcrypt/docs/api.md", "npm bcrypt"), ("a/b c/node.js/x.md", "b c node.js"), ("docs/x.md", ""),
    ("x.md", ""), ("crowd/x.md", ""), ("crowd/bcrypt/x.md", "bcrypt"),
])  # fmt: skip
def test_folders_say_something_of_their_files(tmp_path, path, words):
    found = tmp_path / "base" / path
    found.parent.mkdir(parents=True)
    for number in range(MOST_ENTRIES if "crowd" in path else 0):
        (tmp_path / "base" / "crowd" / f"{number}.txt").write_text("x")
    found.write_text("It is.")
    assert folder_words(tmp_path / "base", found) == words
    assert [record.folder for record in iter_documents(tmp_path / "base") if record.doc_id == path] == [words]
