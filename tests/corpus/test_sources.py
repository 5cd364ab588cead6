"""Readers: every kind of source, every kind of bad record."""

import gzip
import json
import lzma
from pathlib import Path

import pyarrow as pa
import pytest

from realm.corpus.records import Rejected, SourceDocument
from realm.corpus.sources import iter_documents
from realm.errors import DataError

ROWS = [{"id": "a", "title": "A", "text": "Alpha."}, {"id": 7, "text": "Beta."}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def write(path: Path, data: bytes) -> None:
    match path.suffix:
        case ".gz":
            path.write_bytes(gzip.compress(data))
        case ".xz":
            path.write_bytes(lzma.compress(data))
        case ".zst":
            path.write_bytes(pa.compress(data, codec="zstd", asbytes=True))
        case _:
            path.write_bytes(data)


@pytest.mark.parametrize("name", ["d.jsonl", "d.jsonl.gz", "d.jsonl.xz", "d.jsonl.zst", "D.JSONL"])
def test_jsonl(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write(path, b"\xef\xbb\xbf" + LINES + b"\n  \n")
    assert list(iter_documents(path)) == [
        SourceDocument("a", "A", "Alpha.", str(path), 1),
        SourceDocument("7", "", "Beta.", str(path), 2),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{not json", "bad json"),
        (b"[" * 100_000, "bad json"),
        (b"[1]", "not an object"),
        (b'{"text": "t"}', "missing id"),
        (b'{"id": "  ", "text": "t"}', "empty id"),
        (b'{"id": "x"}', "empty text"),
        (b'{"id": "x", "text": " \\n"}', "empty text"),
        (b'{"id": "x", "text": 5}', "id, title or text is not a string"),
        (b'{"id": true, "text": "t"}', "id, title or text is not a string"),
        (b'{"id": "x", "text": "\xff"}', "invalid utf-8"),
    ],
)
def test_bad_rows_are_named_and_the_rest_is_read(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(LINES + line + b"\n" + LINES)
    records = list(iter_documents(path))
    assert records[2] == Rejected(str(path), 3, reason)
    assert len([record for record in records if isinstance(record, SourceDocument)]) == 4


@pytest.mark.parametrize("name", ["d.jsonl.gz", "d.jsonl.xz", "d.jsonl.zst"])
def test_truncated_compressed_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write(path, b"".join(json.dumps({"id": i, "text": f"text {i * 7919}"}).encode() + b"\n" for i in range(20_000)))
    path.write_bytes(path.read_bytes()[:-20_000])
    records = list(iter_documents(path))
    assert len(records) > 1
    assert isinstance(records[-1], Rejected)
    assert records[-1].reason == "damaged compressed data"


def test_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text("Plain.")
    (tmp_path / "sub" / "a.md").write_text("intro\n\n## The Heading ##\nBody.")
    (tmp_path / "bad.txt").write_bytes(b"ok\nnot \xff ok")
    (tmp_path / "picture.png").write_bytes(b"\x89")
    (tmp_path / "sub" / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    records = list(iter_documents(tmp_path))
    assert [record.doc_id for record in records if isinstance(record, SourceDocument)] == ["b.txt", "sub/a.md"]
    assert [record.title for record in records if isinstance(record, SourceDocument)] == ["b", "The Heading"]
    reasons = {Path(record.path).name: (record.line, record.reason) for record in records if isinstance(record, Rejected)}
    assert reasons == {"bad.txt": (2, "invalid utf-8"), "gone.txt": (0, "unreadable file")}


def test_single_text_file(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text("# not a heading here")
    assert list(iter_documents(path)) == [SourceDocument("note.txt", "note", "# not a heading here", str(path), 0)]


def test_errors_name_the_cure(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        iter_documents(tmp_path / "missing.jsonl")
    (tmp_path / "x.docx").write_bytes(b"")
    with pytest.raises(DataError, match="Known are folders"):
        iter_documents(tmp_path / "x.docx")
    with pytest.raises(DataError, match=r"no \.txt or \.md"):
        list(iter_documents(tmp_path))
