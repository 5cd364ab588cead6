"""Bytes that are damaged anyhow: every reader gives records or one line, never a traceback, and never hangs."""

import gzip
import io
import json
import random
import struct
import zipfile
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from realm.documents.records import Rejected, SourceDocument
from realm.documents.sources import FORMATS, SourceOptions, iter_documents
from realm.errors import RealmError

ROWS = [{"id": str(number), "title": f"T {number}", "text": f'Text "{number}", née\nin two lines.'} for number in range(30)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
FILES = [format_ for format_ in FORMATS if format_ not in ("beir", "datasets", "mediawiki", "outlook")]  # nothing writes the last


def damage(data, chance):
    at = chance.randrange(len(data))
    end = min(len(data), at + chance.randrange(1, 40))
    return chance.choice( [
        data[:at], data[at:], data[:at] + data[end:], data[:end] + data[at:],
        data[:at] + bytes(chance.randrange(256) for _ in range(end - at)) + data[end:],
        data[:at] + chance.choice([b"\0", b'"', b"\r", b"\n", b"\xff\xfe", b"[" * 2000, b"<", b"\x1f\x8b"]) + data[at:],
    ])  # fmt: skip


def sample(kind, path, office):
    match kind:
        case "parquet":
            pq.write_table(pa.Table.from_pylist(ROWS), path)
            return path.read_bytes()
        case "csv" | "tsv":
            mark = "," if kind == "csv" else "\t"
            rows = [mark.join(['"{}"'.format(value.replace('"', '""')) for value in row.values()]) for row in ROWS]
            return "\n".join([mark.join(ROWS[0]), *rows]).encode()
        case "triples":
            return b'subject,relation,object\nA,of,B\nA,of,C\n"D, E",of,A\n' * 2
        case "warc":
            body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html><body><p>Some text.</p></body></html>"
            head = "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.b/{}\r\nWARC-Date: 2020-01-01T00:00:00Z\r\n"
            more = f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(body)}\r\n\r\n"
            return b"".join((head + more).format(number).encode() + body + b"\r\n\r\n" for number in range(5))
        case "html":
            return b"<html><head><title>T</title></head><body>" + b"<div><p>A paragraph &amp; more.</p></div>" * 5 + b"</body></html>"
        case "markdown":
            return b"---\ntitle: T\n---\n# Head\n\n- a *b* [c](d)\n\n```\ncode\n```\n\n| a | b |\n|---|---|\n| c | d |\n<div>x</div>\n" * 3
        case "picture":
            return small_png()
        case "xml":
            return b"<a><title>T</title>" + b"<p>One &amp; <b>two</b>.</p>" * 9 + b"</a>"
        case "notebook":
            return (
                b'{"cells": [{"cell_type": "markdown", "source": ["# Head\\n"]}, {"cell_type": "code", "source": "x = 1", "outputs": []}]}'
            )
        case "mail":
            return b"From: a@b.org\nSubject: keys\n\nThe spare keys are with the porter.\n"
        case "odt":
            return zipped({"content.xml": "<o:d xmlns:o='u'><o:p>One.</o:p></o:d>"})
        case "epub":
            package = "<package><manifest><item id='a' href='a.xhtml'/></manifest><spine><itemref idref='a'/></spine></package>"
            files = {
                "META-INF/container.xml": "<c><rootfile full-path='p.opf'/></c>",
                "p.opf": package,
                "a.xhtml": "<html><p>One.</p></html>",
            }
            return zipped(files)
        case "zip":
            return zipped({"a.txt": "One."})
        case "rtf":
            return rb"{\rtf1 One.\par Two.}"
        case "sheets":
            with pytest.importorskip("xlsxwriter").Workbook(path) as book:
                book.add_worksheet().write_row(0, 0, ["One", "Two"])
            return path.read_bytes()
        case "slides":
            deck = pytest.importorskip("pptx").Presentation()
            deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = "One"
            deck.save(path)
            return path.read_bytes()
        case "pdf" | "docx":
            return office.get(kind, b"nothing")
        case _:
            return LINES


def zipped(files):
    with zipfile.ZipFile(whole := io.BytesIO(), "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return whole.getvalue()


def small_png():
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress((b"\0" + b"\x80" * 8) * 8)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", FILES)
def test_damaged_files(tmp_path, kind, office_files):
    if kind in ("html", "warc"):
        pytest.importorskip("trafilatura")
        pytest.importorskip("warcio")
    if kind in ("pdf", "docx") and not office_files:
        pytest.skip("needs the extras pdf and docx")
    chance, good = random.Random(kind), sample(kind, tmp_path / "good", office_files)
    check(tmp_path / "good", good, kind, expect_documents=True)
    for round_ in range(60 if kind != "warc" else 30):
        data = damage(good, chance)
        data = damage(data, chance) if data and round_ % 2 else data
        check(tmp_path / "bad", data, kind)
        if round_ % 6 == 0:
            check(tmp_path / "packed", damage(gzip.compress(good), chance), kind)


def check(path, data, kind, expect_documents=False):
    path.write_bytes(data)
    for options in (SourceOptions(format=kind), SourceOptions()):
        try:
            records = list(iter_documents(path, options))
        except RealmError as error:
            assert "\n" not in str(error)
            continue
        assert records and all(isinstance(record, SourceDocument | Rejected) for record in records)
        assert not expect_documents or any(isinstance(record, SourceDocument) for record in records)


@pytest.mark.parametrize("kind", FILES)
def test_the_wrong_format(tmp_path, kind, office_files):
    for other in FILES:
        if "warc" not in (kind, other) or pytest.importorskip("warcio"):
            check(tmp_path / other, sample(other, tmp_path / "made", office_files), kind)
