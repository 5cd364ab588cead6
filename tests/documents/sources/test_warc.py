"""Web archives, made by the test."""

import gzip
import io
import random
import sys
import zlib

import pyarrow as pa
import pytest

from realm.documents import streams
from realm.documents.records import BINARY, Rejected, SourceDocument
from realm.documents.sources import iter_documents
from realm.errors import MissingExtra


def page(word):
    text = f"The article about {word} is long enough to be read by people who like {word} and other things of that kind."
    return f"<html><head><title>{word}</title></head><body><h1>On {word}</h1><p>{text}</p></body></html>".encode()


def write_warc(path, pages):
    """(URL, status, content type, body) of each response, with an info record before and a request after each."""
    pytest.importorskip("trafilatura")
    writer_module = pytest.importorskip("warcio.warcwriter")
    headers = pytest.importorskip("warcio.statusandheaders")
    with open(path, "wb") as file:
        writer = writer_module.WARCWriter(file, gzip=path.suffix == ".gz")
        writer.write_record(writer.create_warcinfo_record(path.name, {"software": "test"}))
        for url, status, kind, body, *coding in pages:
            extra = [("Content-Encoding", coding[0])] if coding else [("Content-Encoding", "gzip")] if body[:2] == b"\x1f\x8b" else []
            answer = headers.StatusAndHeaders(status, [("Content-Type", kind), *extra], protocol="HTTP/1.1")
            writer.write_record(writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=answer))
            question = headers.StatusAndHeaders("GET / HTTP/1.1", [("Host", "x")], is_http_request=True)
            writer.write_record(writer.create_warc_record(url, "request", payload=io.BytesIO(b""), http_headers=question))


PAGES = [
    ("http://a.org/1", "200 OK", "text/html; charset=utf-8", page("snow 雪")),
    ("http://a.org/2", "404 Not Found", "text/html", page("nothing")),
    ("http://a.org/3", "200 OK", "image/png", b"\x89PNG\0"),
    ("http://a.org/4", "200 OK", "text/html", gzip.compress(page("packed"))),
    ("http://a.org/5", "200 OK", "text/html; charset=windows-1251", page("X").replace(b"X", "Москва".encode("cp1251"))),
    ("http://a.org/6", "200 OK", "TEXT/HTML", b"<html><body></body></html>"),
    ("http://a.org/7", "200 OK", "application/xhtml+xml", page("last")),
]


@pytest.mark.parametrize("name", ["news.warc", "news.warc.gz", "news"])
def test_pages_of_an_archive(tmp_path, name):
    path = tmp_path / name
    write_warc(path, PAGES)
    records = list(iter_documents(path))
    found = [(r.doc_id, r.title, r.line) if isinstance(r, SourceDocument) else (r.reason, r.line) for r in records]
    assert found == [
        ("http://a.org/1", "On snow 雪", 2), ("http://a.org/4", "On packed", 8), ("http://a.org/5", "On Москва", 10),
        ("empty text", 12), ("http://a.org/7", "On last", 14),
    ]  # fmt: skip
    assert isinstance(records[0], SourceDocument) and "people who like snow 雪" in records[0].text


def packed(codec, data):
    return pa.compress(data, codec=codec, asbytes=True)


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (gzip.compress(page("snow")), "gzip"),
        (gzip.compress(gzip.compress(page("snow"))), "gzip"),
        (gzip.compress(page("snow")), "identity"),
        (zlib.compress(page("snow")), "deflate"),
        (packed("brotli", page("snow")), "br"),
        (packed("brotli", page("snow")), "BR"),
        (packed("zstd", page("snow")), "zstd"),
        (packed("zstd", page("snow")), "identity"),
    ],
)
def test_a_compressed_body_is_unpacked(tmp_path, body, coding):
    write_warc(tmp_path / "a.warc", [("http://a.org/1", "200 OK", "text/html; charset=utf-8", body, coding)])
    (record,) = iter_documents(tmp_path / "a.warc")
    assert isinstance(record, SourceDocument) and "people who like snow" in record.text


@pytest.mark.parametrize("charset", ["utf-8", "latin-1", "windows-1252"])
@pytest.mark.parametrize("codec", ["brotli", "zstd", "lz4"])
def test_bytes_that_are_no_text_are_no_document(tmp_path, codec, charset):
    body = packed(codec, random.Random(1).randbytes(4000))
    write_warc(tmp_path / "a.warc", [("http://a.org/1", "200 OK", f"text/html; charset={charset}", body, "x-unknown")])
    (record,) = iter_documents(tmp_path / "a.warc")
    assert isinstance(record, Rejected) and record.reason == BINARY


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz"])
def test_truncated_archive(tmp_path, name):
    """Wherever the file is cut: whole pages stay, half pages are no documents, and a cut within a page is counted."""
    path = tmp_path / name
    write_warc(path, PAGES[:1] + PAGES[-1:])
    data = path.read_bytes()
    whole = [(record.doc_id, record.text) for record in iter_documents(path) if isinstance(record, SourceDocument)]
    counts = set()
    for end in range(400, len(data), 41):
        path.write_bytes(data[:end])
        records = list(iter_documents(path))
        documents = [(record.doc_id, record.text) for record in records if isinstance(record, SourceDocument)]
        assert documents == whole[: len(documents)]
        counts.add((len(documents), sum(isinstance(record, Rejected) for record in records)))
    assert {(0, 1), (1, 0), (1, 1)} <= counts


def test_no_archive(tmp_path):
    (tmp_path / "bad.warc").write_bytes(b"this is no archive\r\n\r\n")
    assert list(iter_documents(tmp_path / "bad.warc")) == [Rejected(str(tmp_path / "bad.warc"), 1, "damaged file")]


def test_a_page_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "LINE_LIMIT", 10_000)
    write_warc(tmp_path / "a.warc.gz", [("http://a.org/b", "200 OK", "text/html", gzip.compress(bytes(10**6))), PAGES[0]])
    first, second = iter_documents(tmp_path / "a.warc.gz")
    assert first == Rejected(str(tmp_path / "a.warc.gz"), 2, "line or document too long")
    assert isinstance(second, SourceDocument)


def test_without_the_extra(tmp_path, monkeypatch):
    module = None
    monkeypatch.setitem(sys.modules, "warcio.archiveiterator", module)
    (tmp_path / "a.warc").write_bytes(b"WARC/1.0\r\n")
    with pytest.raises(MissingExtra, match="needs the extra 'warc'"):
        list(iter_documents(tmp_path / "a.warc"))
