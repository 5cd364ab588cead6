"""CSV, TSV and Parquet: columns by name, right line numbers, bad rows."""

import csv
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from realm.documents import streams
from realm.documents.limited import Beyond
from realm.documents.records import TOO_MUCH_MEMORY, TOO_SLOW, Rejected, SourceDocument
from realm.documents.sources import SourceOptions, iter_documents, tables
from realm.errors import DataError


def seen(path, options=None):
    """(line, id, title, text) or (line, reason) of each record."""

    def row(record):
        return (record.line, record.reason) if isinstance(record, Rejected) else (record.line, record.doc_id, record.title, record.text)

    return [row(record) for record in iter_documents(path, options or SourceOptions())]


@pytest.mark.parametrize(("name", "text", "expected"), [
    ("a.csv", "id,title,text\n1,T,Hello\n2,,World\n", [(2, "1", "T", "Hello"), (3, "2", "", "World")]),
    ("crlf.csv", "id,text\r\n1,Hello\r\n\r\n2,World\r\n", [(2, "1", "", "Hello"), (4, "2", "", "World")]),
    ("bom.csv", "\ufeffid,text\n1,Hello\n", [(2, "1", "", "Hello")]),
    ("semicolon.csv", "id;title;text\n1;T;Hello, you\n", [(2, "1", "T", "Hello, you")]),
    ("named.csv", "sep=;\nid;title;text\n1;T;Hello, you\n", [(3, "1", "T", "Hello, you")]),
    ("named-comma.csv", "sep=,\r\nid,text\r\n1,A\r\n", [(3, "1", "", "A")]),
    ("quoted.csv", 'id,text\n1,"a\nb\n\nc, ""d"""\n2,e\n', [(2, "1", "", 'a\nb\n\nc, "d"'), (6, "2", "", "e")]),
    ("other.csv", "contents,_id,more\nHello,x,1\n", [(2, "x", "", "Hello")]),
    ("noid.csv", 'text\nOne\n"two\nlines"\nThree\n',
     [(2, "noid.csv#1", "", "One"), (3, "noid.csv#2", "", "two\nlines"), (5, "noid.csv#3", "", "Three")]),
    ("dpr.tsv", 'id\ttext\ttitle\n1\t"Aaron ""Air"" Ron"\tAaron\n2\tB, c\tD\n',
     [(2, "1", "Aaron", 'Aaron "Air" Ron'), (3, "2", "D", "B, c")]),
    ("plain.tsv", 'id\ttext\n1\t"Hello" he said\n2\t"open\n3\tB\n',
     [(2, "1", "", '"Hello" he said'), (3, "2", "", '"open'), (4, "3", "", "B")]),
    ("dpr-without-ending", "id\ttext\ttitle\n1\tA\tB\n", [(2, "1", "B", "A")]),
    ("csv-without-ending", 'id,"text"\n1,A\n', [(2, "1", "", "A")]), ("last.csv", "id,text\n1,no line end", [(2, "1", "", "no line end")]),
    ("extra.csv", "id,text\n1,A,,\n2,B,c\n3\n4,D\n",
     [(2, "1", "", "A"), (3, "bad row of a table"), (4, "bad row of a table"), (5, "4", "", "D")]),
    ("open.csv", 'id,text\n1,"A, a"\n2,"B\n', [(2, "1", "", "A, a"), (3, "bad row of a table")]),
    ("mostly.tsv", 'id\ttext\n1\t"A"\n2\t"B"b\n3\t"C"\n', [(2, "1", "", "A"), (3, "bad row of a table"), (4, "3", "", "C")]),
    ("ids.csv", "id,text\n,A\n x ,B\n3, \n", [(2, "empty id"), (3, " x ", "", "B"), (4, "empty text")]),
    ("returns.csv", "id;text\r1;A\r\r2;B, c\r", [(2, "1", "", "A"), (4, "2", "", "B, c")]),
    ("nul.csv", "id,text\n1,A\0B\n", [(2, "1", "", "A\0B")]),
    ("quoted-commas.csv", '"id";"title, subtitle, note";"text"\r\n"1";"A, b";"First, second."\r\n', [(2, "1", "", "First, second.")]),
    ("quoted-semicolons.csv", '"id","a; b; c; d","text"\n1,x,"One; two."\n', [(2, "1", "", "One; two.")]),
    ("bars-in-quotes.csv", 'id\t"a|b|c|d"\ttext\n1\tx\tOne\n', [(2, "1", "", "One")]),
    ("a.csv", "text\nA, b\nC, d, e\n", [(2, "a.csv#1", "", "A, b"), (3, "a.csv#2", "", "C, d, e")]),
    ("more-commas-than-semicolons.csv", "id;text\n1;a, b, c\n2;d, e\n", [(2, "1", "", "a, b, c"), (3, "2", "", "d, e")]),
    ("spaces-around-names.csv", ' id , title , text \n1, A, "Quoted, here."\n', [(2, "1", "A", "Quoted, here.")]),
    ("names-in-quotes.csv", '" id ";"text "\n1;One\n', [(2, "1", "", "One")]),
    ("names-in-capitals.csv", "ID,Title,TEXT\n1,A,One\n", [(2, "1", "A", "One")]),
    ("both-spellings.csv", "id,Text,text\n1,A,One\n", [(2, "1", "", "One")]),
    ("another-column-twice.csv", "id,note,note,text\n1,a,b,One\n", [(2, "1", "", "One")]),
    ("latin-1.csv", "id,text\n1,Größe\n2,Straße\n".encode("latin-1"), [(2, "1", "", "Größe"), (3, "2", "", "Straße")]),
    ("an-open-quote.csv", 'id,text\n1,"A, a"\n2,"open\n3,"C, c"\n4,D\n',
     [(2, "1", "", "A, a"), (3, "bad row of a table"), (4, "3", "", "C, c"), (5, "4", "", "D")]),
    ("an-open-quote-to-the-end.csv", 'id,text\n1,"A"\n2,"B"\n3,"open\n4,D\n5,E\n',
     [(2, "1", "", "A"), (3, "2", "", "B"), (4, "bad row of a table"), (5, "4", "", "D"), (6, "5", "", "E")]),
])  # fmt: skip
def test_tables(tmp_path, name, text, expected):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert seen(tmp_path / name) == expected


def test_bad_bytes_cost_one_row(tmp_path):
    (path := tmp_path / "a.csv").write_bytes("id,text,note\n0,äöüß äöü,\n1,A,".encode() + b"\xff\n2,B\xff,x\n3,\xe9\xe9,x\n4,D,x\n")
    assert seen(path)[1:] == [(3, "1", "", "A"), (4, "invalid utf-8"), (5, "invalid utf-8"), (6, "4", "", "D")]


@pytest.mark.parametrize("name", ["id", "title", "text"])
@pytest.mark.parametrize("space", ["", " "])
def test_a_column_that_is_there_twice_is_named(tmp_path, name, space):
    (tmp_path / "a.csv").write_text(f"id,title,text,{space}{name}\n1,A,B,C\n")
    columns = [pa.array(["x"])] * 4
    pq.write_table(pa.Table.from_arrays(columns, ["id", "title", "text", name]), tmp_path / "a.parquet")
    for file in ("a.csv", "a.parquet"):
        with pytest.raises(DataError, match=f"{file}: two columns are called '{name}'"):
            seen(tmp_path / file)


@given(st.lists(st.sampled_from(["1,a", '2,"b"', '3,"c', '4,"d, e"', "5,f,g", "6", '7,"h""i"', '8,j"k', ""]), max_size=8))
def test_every_row_is_read_or_rejected(rows):
    """No row is swallowed by another, but for one that a later quote closes."""
    with TemporaryDirectory() as scratch:
        (file := Path(scratch, "a.csv")).write_text("\n".join(["id,text", '0,"z, z"', *rows]))
        found = [record.line for record in iter_documents(file)]
        text = "".join(getattr(record, "text", "") for record in iter_documents(file))
    swallowed = text.count("\n")
    assert len(set(found)) == len(found) and len(found) + swallowed == 1 + sum(map(bool, rows)) + text.count("\n\n")


def test_whole_rows(tmp_path):
    """In a folder, a table is read row by row, each value behind the name of its column, under the name of the file."""
    (tmp_path / "a.csv").write_text("name;phone;name;;\nPetra;0151;Klein;x;y\n;;;;\nOmar\n")
    (tmp_path / "d.tsv").write_text("Set\tContents\tPieces\nEar set\thooks, syringe\t7\n")
    (tmp_path / "b.json").write_text('{"room": {"keys": ["red", 7]}, "open": null, "note": "It is closed for the whole of\\nMay."}')
    pq.write_table(pa.table({"name": ["Ann"], "age": [7]}), tmp_path / "c.parquet")
    for name, text in (("d.csv", "Ida,20\nBo,3.5\n"), ("e.csv", "Day,1,2\nMo,Art,Maths\n"), ("f.csv", "Dues, due\n;\nOf;Sum\nIda;7\nBo\n")):
        (tmp_path / name).write_text(text)
    assert seen(tmp_path) == [
        (2, "a.csv#1", "a", "name: Petra\nphone: 0151\nname (2): Klein\nx\ny"), (3, "empty text"), (4, "a.csv#3", "a", "name: Omar"),
        (1, "b.json#1", "b", "room keys: red\nroom keys: 7\nnote: It is closed for the whole of May."),
        (1, "c.parquet#1", "c", "name: Ann\nage: 7"), (1, "d.csv#0", "d", "Ida | 20"), (2, "d.csv#1", "d", "Bo | 3.5"),
        (2, "d.tsv#1", "d", "hooks, syringe\nSet: Ear set\nPieces: 7"), (2, "e.csv#1", "e", "Day: Mo\n1: Art\n2: Maths"),
        (4, "f.csv#1", "f", "Dues, due\nOf: Ida\nSum: 7"), (5, "f.csv#2", "f", "Dues, due\nOf: Bo"),
    ]  # fmt: skip
    assert all(found.structured for found in iter_documents(tmp_path) if isinstance(found, SourceDocument) and ".tsv" not in found.doc_id)


def test_random_tables_against_the_standard_reader(tmp_path):
    """Lines and fields of 500 rows with quotes, delimiters and line ends in them; each row's line is where the writer put it."""
    random.seed(3)
    rows = [["".join(random.choices('ab" ,;\t\n', k=random.randrange(1, 30))) + "z" for _ in range(2)] for _ in range(500)]
    for name, delimiter in (("r.csv", ","), ("s.csv", ";"), ("t.tsv", "\t")):
        path, lines = tmp_path / name, []
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
            writer.writerow(["id", "text"])
            for row in rows:
                file.flush()
                lines.append(path.read_bytes().count(b"\n") + 1)
                writer.writerow(row)
        assert seen(path) == [(line, row[0], "", row[1]) for line, row in zip(lines, rows, strict=True)]


def test_long_lines_and_fields(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "LINE_LIMIT", 1000)
    path = tmp_path / "a.csv"
    path.write_text("id,text\n1,A\n2," + "x" * 5000 + '\n3,C\n4,"' + "y\n" * 800 + '"\n5,E\n')
    records = seen(path)
    assert records[:3] == [(2, "1", "", "A"), (3, "line or document too long"), (4, "3", "", "C")]
    assert records[3] == (5, "line or document too long")
    assert records[-1][1:] == ("5", "", "E") or records[-1][1] == "bad row of a table"


TABLE = {"id": [1, 2, None, 4], "title": ["A", None, "C", "D"], "text": ["One.", "Two.", "Three.", " "]}
PARQUET_ROWS = [(1, "1", "A", "One."), (2, "2", "", "Two."), (3, "missing id"), (4, "empty text")]


@pytest.mark.parametrize("name", ["a.parquet", "A.PARQUET", "no-ending"])
def test_parquet(tmp_path, name):
    pq.write_table(pa.table(TABLE), tmp_path / name, row_group_size=2)
    assert seen(tmp_path / name) == PARQUET_ROWS


def test_parquet_types(tmp_path):
    """Dictionaries, large strings, bytes, and strings that are not UTF-8, which writers do not check."""
    bad = pa.array([b"ok", b"\xff"], pa.binary()).view(pa.string())
    table = pa.table({"docid": pa.array(["a", "b"], pa.large_string()), "title": pa.array(["T", "T"]).dictionary_encode(), "text": bad})
    pq.write_table(table, tmp_path / "a.parquet")
    assert seen(tmp_path / "a.parquet", SourceOptions(id_column="docid")) == [(1, "a", "T", "ok"), (2, "invalid utf-8")]
    pq.write_table(pa.table({"text": pa.array([b"bytes", None], pa.binary())}), tmp_path / "b.parquet")
    assert seen(tmp_path / "b.parquet") == [(1, "b.parquet#1", "", "bytes"), (2, "empty text")]
    pq.write_table(pa.table({"id": ["x"], "text": [["a", "list"]]}), tmp_path / "c.parquet")
    assert seen(tmp_path / "c.parquet") == [(1, "id, title or text is not a string")]


def test_damaged_parquet(tmp_path):
    whole = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(1000), "text": [f"text {i * 7919}" for i in range(1000)]}), whole, row_group_size=100)
    data = whole.read_bytes()
    (tmp_path / "b.parquet").write_bytes(data[: len(data) // 2])
    assert seen(tmp_path / "b.parquet") == [(1, "damaged file")]
    (tmp_path / "c.parquet").write_bytes(b"PAR1 is not enough")
    assert seen(tmp_path / "c.parquet") == [(1, "damaged file")]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_columns_that_are_not_there(tmp_path, name):
    path = tmp_path / name
    if name != "a.parquet":
        path.write_text("key,head,body\n1,H,B\n" if name == "a.csv" else '{"key": 1, "head": "H", "body": "B"}\n')
    else:
        pq.write_table(pa.table({"key": [1], "head": ["H"], "body": ["B"]}), path)
    assert seen(path, SourceOptions(id_column="key", title_column="head", text_column="body"))[0][1:] == ("1", "H", "B")
    for options, problem in [
        (SourceOptions(), "no column 'text'. Name the column of the text: --column text=NAME. Columns are: key, head, body"),
        (SourceOptions(text_column="body", id_column="ID"), "no column 'ID', which --column id=ID names. Columns are: key, head, body"),
        (SourceOptions(text_column="body", title_column="x"), "no column 'x', which --column title=x names. Columns are: key, head, body"),
    ]:
        with pytest.raises(DataError) as error:
            seen(path, options)
        assert str(error.value) == f"{path}: {problem}"


def test_no_rows(tmp_path, pack):
    """Nothing is left out in silence: an empty file, a header alone, an empty file that was packed."""
    for name, data, reason in [
        ("a.csv", b"", "empty file"),
        ("b.csv", b"id,text\n", "file without documents"),
        ("c.csv.gz", b"", "file without documents"),
        ("d.jsonl.gz", b"\n \n", "file without documents"),
    ]:
        pack(tmp_path / name, data)
        assert seen(tmp_path / name) == [(0, reason)]
    (tmp_path / "a.csv").write_bytes(b"id,text\r1,A\n2,B\n")
    with pytest.raises(DataError, match=r"a\.csv:1: the first line is not a header: bad row of a table"):
        seen(tmp_path / "a.csv")


@pytest.mark.parametrize(("rows", "within", "told", "reason"), [
    (["Weir."] * 3, ([3], None), 3, None), (["Weir."] * 600, ([256, 512], Beyond(TOO_SLOW)), 512, TOO_SLOW),
    (["Weir."] * 3, ([], Beyond(TOO_MUCH_MEMORY)), 0, TOO_MUCH_MEMORY), (["Weir. " * 9, "Dorn."] * 20, None, 4, TOO_MUCH_MEMORY),
    (["W"] * 500, None, 4, TOO_MUCH_MEMORY), ([None] * 500, None, 0, TOO_MUCH_MEMORY),
])  # fmt: skip
def test_a_columnar_file_has_the_limits_of_a_file(tmp_path, monkeypatch, rows, within, told, reason):
    """Those of the child that decodes it first; and so many characters for its size, of which every row counts some."""
    if within is None:
        monkeypatch.setattr(tables, "EXPANDED", 4 * tables.LEAST)
        monkeypatch.setattr(tables, "EXPANSION", 0)
    else:
        monkeypatch.setattr(tables, "read_parts", lambda *_: (within[0], 1.0, within[1]))
    pq.write_table(pa.table({"text": pa.array(rows, pa.string())}), path := tmp_path / "a.parquet")
    found = list(iter_documents(path))
    assert sum(isinstance(one, SourceDocument) for one in found) == told and getattr(found[-1], "reason", None) == reason
    assert len(found) == min(len(rows), 1 + (told or 4 * (within is None)))
