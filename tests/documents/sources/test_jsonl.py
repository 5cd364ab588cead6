"""JSON documents: one a line, over several lines, in a list; compressed; and every kind of bad record."""

import json
import tracemalloc

import pytest

from realm.documents import streams
from realm.documents.records import Rejected, SourceDocument
from realm.documents.sources import SourceOptions, iter_documents
from realm.errors import ConfigError

ROWS = [{"id": "a", "title": "A", "text": "Alpha."}, {"id": 7, "text": "Beta."}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
MANY = b"".join(json.dumps({"id": i, "text": f"text {i * 7919}"}).encode() + b"\n" for i in range(40_000))


def kinds(path):
    return [(record.doc_id if isinstance(record, SourceDocument) else record.reason, record.line) for record in iter_documents(path)]


@pytest.mark.parametrize(
    "name", ["d.jsonl", "d.ndjson", "D.JSONL", "d.jsonl.gz", "d.jsonl.xz", "d.jsonl.zst", "d.jsonl.bz2", "wrong.jsonl.gz", "no-ending"]
)
def test_jsonl(tmp_path, pack, name):
    path, data = tmp_path / name, b"\xef\xbb\xbf" + LINES + b"\n  \n"
    path.write_bytes(data) if name.startswith("wrong") else pack(path, data)
    assert list(iter_documents(path)) == [SourceDocument("a", "A", "Alpha.", str(path), 1), SourceDocument("7", "", "Beta.", str(path), 2)]


@pytest.mark.parametrize("compression", ["gz", "xz", "zst", "bz2"])
def test_compression_is_seen_without_the_ending(tmp_path, pack, compression):
    path = tmp_path / f"d.{compression}"
    pack(path, LINES)
    for name in ("renamed.jsonl", "renamed"):
        path = path.rename(tmp_path / name)
        assert kinds(path) == [("a", 1), ("7", 2)]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_byte_order_marks(tmp_path, encoding):
    path = tmp_path / "d.jsonl"
    text = json.dumps({"id": "é", "text": "Schnee fällt. 雪."}, ensure_ascii=False) + "\n"
    path.write_bytes((("\ufeff" if encoding.endswith("e") else "") + text + text).encode(encoding))
    assert [record.text for record in iter_documents(path) if isinstance(record, SourceDocument)] == ["Schnee fällt. 雪."] * 2


@pytest.mark.parametrize(("line", "reason"), [
    (b'{"text": "t", "text": "u"}', "a key is there twice"), (b'{"id": "x", "m": [{"a": 1, "a": 2}]}', "a key is there twice"),
    (b"{not json", "bad json"), (b"[" * 100_000, "bad json"), (b'{"a":' * 100_000, "bad json"),
    (b'{"id": ' + b"9" * 5000 + b"}", "bad json"), (b"\0\0\0", "bad json"),
    (b'{"id": "x", "text": "a\0b"}', "bad json"), (b"[1]", "not an object"), (b'{"text": "t"}', "missing id"),
    (b'{"id": "  ", "text": "t"}', "empty id"), (b'{"id": "x"}', "empty text"), (b'{"id": "x", "text": " \\n\\t\\u00a0"}', "empty text"),
    (b'{"id": "x", "text": 5}', "id, title or text is not a string"),
    (b'{"id": "x", "title": {}, "text": ["t"]}', "id, title or text is not a string"),
    (b'{"id": true, "text": "t"}', "id, title or text is not a string"),
    (b'{"id": "x", "text": "\xff"}', "invalid utf-8"), (b'{"id": "x", "text": "\xed\xa0\x80"}', "invalid utf-8"),
])  # fmt: skip
def test_bad_rows_are_named_and_the_rest_is_read(tmp_path, line, reason):
    (path := tmp_path / "d.jsonl").write_bytes(LINES + line + b"\n" + LINES)
    records = list(iter_documents(path))
    assert records[2] == Rejected(str(path), 3, reason)
    assert len([record for record in records if isinstance(record, SourceDocument)]) == 4


@pytest.mark.parametrize("name", ["d.jsonl.gz", "d.jsonl.xz", "d.jsonl.zst", "d.jsonl.bz2"])
def test_truncated_compressed_file(tmp_path, pack, name):
    path = tmp_path / name
    pack(path, MANY if name.endswith("bz2") else MANY[: len(MANY) // 2])  # bz2 gives whole blocks of 900 kB only
    path.write_bytes(path.read_bytes()[:-20_000])
    records = list(iter_documents(path))
    assert len(records) > 1000
    assert records[-1] == Rejected(str(path), len(records), "damaged compressed data")
    assert all(isinstance(record, SourceDocument) for record in records[:-1])


@pytest.mark.parametrize("name", ["d.jsonl", "d.jsonl.gz"])  # the second is a small bomb
def test_a_line_over_the_limit_is_skipped_in_bounded_memory(tmp_path, pack, monkeypatch, name):
    monkeypatch.setattr(streams, "LINE_LIMIT", 2**20)
    monkeypatch.setattr(streams, "_BUFFER", 2**18)
    start, end = b'{"id": "fits", "text": "', b'"}\n'
    fits, long = start + b"x" * (2**20 + 1 - len(start + end)) + end, start + b"y" * 30_000_000 + end
    pack(tmp_path / name, LINES + fits + long + LINES + long)
    tracemalloc.start()
    found, beyond = kinds(tmp_path / name), "line or document too long"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [("a", 1), ("7", 2), ("fits", 3), (beyond, 4), ("a", 5), ("7", 6), (beyond, 7)]
    assert peak < 8 * 2**20


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("head", [b"", b"\xef\xbb\xbf", b"\n\n "])
def test_a_list_of_objects(tmp_path, indent, head):
    path = tmp_path / "d.json"
    path.write_bytes(head + json.dumps(ROWS, indent=indent).encode())
    lines, offset = {None: [1, 1], 0: [2, 7], 2: [2, 7]}[indent], head.count(b"\n")
    assert kinds(path) == [("a", lines[0] + offset), ("7", lines[1] + offset)]


def test_a_list_larger_than_a_piece(tmp_path, monkeypatch):
    """Values that pieces cut, at every border, against the whole file read at once."""
    rows = [{"id": f"é{i}", "text": "雪 " * (i * 37 % 200) + "end."} for i in range(300)]
    path = tmp_path / "d.json"
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), "utf-8")
    for size in (7, 64, 1000, 2**20):
        monkeypatch.setattr(streams, "_BUFFER", size)
        records = list(iter_documents(path))
        assert [(record.doc_id, record.text) for record in records if isinstance(record, SourceDocument)] == [
            (row["id"], row["text"]) for row in rows
        ]
        assert [record.line for record in records] == [3 + 4 * i - 1 for i in range(300)]


@pytest.mark.parametrize(("text", "expected"), [
    ("\n".join(json.dumps(row, indent=4) for row in ROWS).encode(), [("a", 1), ("7", 6)]),
    (b'{"text": "One."}\n\n{"title": "T", "text": "Two."}\n', [("d.jsonl#1", 1), ("d.jsonl#3", 3)]),
    (json.dumps(ROWS[0]).encode("utf-16")[:-1], [("invalid utf-16", 1)]),
    (b'[{"id": "a", "id": "a", "text": "t"},\n{"id": "c", "text": "t"}]', [("a key is there twice", 1), ("c", 2)]),
    (b'[{"id": "a", "text": "t"},\n{"id": "b", oops},\n{"id": "c", "text": "t"}]', [("a", 1), ("bad json", 2)]),
    (b'[{"id": "a", "text": "t"},\n{"id": "b", "te', [("a", 1), ("bad json", 2)]),
    (b'[{"id": "a", "text": "t"}, 5,\n{"id": "b", "text": "t\xff"}]', [("a", 1), ("not an object", 1), ("invalid utf-8", 2)]),
    (b'[{"id": "a", "text": "t"},\n' + b"[" * 50_000, [("a", 1)]),
])  # fmt: skip
def test_objects_over_several_lines_and_bad_lists(tmp_path, text, expected):
    (tmp_path / "d.jsonl").write_bytes(text)
    assert kinds(tmp_path / "d.jsonl") == expected


def test_a_broken_list_is_given_up_at_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "LINE_LIMIT", 2**14)
    monkeypatch.setattr(streams, "_BUFFER", 2**12)
    (tmp_path / "d.json").write_bytes(b'[{"id": "a", "text": "t"},\n{"id": "b", "text": "' + b"x" * 2**20)
    assert kinds(tmp_path / "d.json") == [("a", 1), ("line or document too long", 2)]


def test_an_unknown_format_is_refused():
    with pytest.raises(ConfigError, match=r"unknown format of sources 'ods'. It is one of: jsonl, csv"):
        SourceOptions(format="ods")
