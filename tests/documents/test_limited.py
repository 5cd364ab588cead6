"""Documents made to take time and memory: each is counted under a reason, or read, and the document after it is read all the same."""

import gzip
import json
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from realm.documents.ingest.builder import build_corpus
from realm.documents.limited import MEMORY, SMALL
from realm.documents.records import TOO_LONG, TOO_MANY_EMPTY, TOO_MANY_SENTENCES, TOO_MUCH_MEMORY, TOO_SLOW, Rejected, SourceDocument
from realm.documents.sources import SourceOptions, iter_documents
from realm.documents.store.blocks import BlockStore

GOOD = {"id": "good", "text": "A good document. It stays."}
MOST = 2**30
"""Bytes of memory above its base that an intake may take."""


def reasons(records):
    return [record.reason for record in records if isinstance(record, Rejected)]


@pytest.fixture
def rise():
    """Bytes by which this process rose at its highest, since the test began."""
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not clear.exists():
        pytest.skip("no /proc here")

    def kib(name):
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(f"{name}:"))

    clear.write_text("5")
    before = kib("VmRSS")
    yield lambda: 1024 * (kib("VmHWM") - before)


def test_a_page_that_takes_too_long(tmp_path):
    """300,000 attributes: libxml2 compares each with all before it."""
    pytest.importorskip("trafilatura")
    (tmp_path / "a.html").write_text("<html><body><p " + " ".join(f"a{number}=1" for number in range(300_000)) + ">Text.</p></body></html>")
    (tmp_path / "b.html").write_text("<html><body><p>" + "Some words of text. " * 2000 + "</p></body></html>")
    began, records = time.process_time(), list(iter_documents(tmp_path, SourceOptions(document_seconds=2)))
    assert reasons(records) == [TOO_SLOW] and time.process_time() - began < 20
    assert [record.text[:10] for record in records if isinstance(record, SourceDocument)] == ["Some words"]


def test_a_document_that_takes_too_much_memory(tmp_path):
    """A Word file of a megabyte whose text unpacks to one and a half thousand; the next one is read by another child."""
    good = pytest.importorskip("docx").Document()
    for number in range(400):
        good.add_paragraph(f"Paragraph {number} says this: {hash(str(number))}.")
    good.save(str(tmp_path / "b.docx"))
    with (
        zipfile.ZipFile(tmp_path / "b.docx") as there,
        zipfile.ZipFile(tmp_path / "a.docx", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made,
    ):
        for item in there.infolist():
            with made.open(item.filename, "w", force_zip64=True) as file:
                file.write(there.read(item))
                for _ in range(1500 * (item.filename == "word/document.xml")):
                    file.write(b" " * 10**6)
    assert MEMORY < MOST and (tmp_path / "b.docx").stat().st_size > SMALL
    records = list(iter_documents(tmp_path))
    assert reasons(records) == [TOO_MUCH_MEMORY]
    assert [record.text[:11] for record in records if isinstance(record, SourceDocument)] == ["Paragraph 0"]


def test_a_charset_that_no_page_has(tmp_path):
    pytest.importorskip("trafilatura")
    for name in ("punycode", "idna", "unicode_escape", "utf-7"):
        (tmp_path / "a.html").write_text(
            f"<html><meta charset='{name}'><body><p>" + "A sentence of the page. " * 20_000 + "</p></body></html>"
        )
        began = time.process_time()
        (record,) = iter_documents(tmp_path / "a.html")
        assert isinstance(record, SourceDocument) and record.text.startswith("A sentence") and time.process_time() - began < 20


def test_html_nested_deeper_than_its_parser_goes(tmp_path):
    pytest.importorskip("trafilatura")
    for depth in (400, 3000):
        (tmp_path / "a.html").write_text("<html><body>" + "<div>" * depth + "Words at the bottom." + "</div>" * depth + "</body></html>")
        (record,) = iter_documents(tmp_path / "a.html")
        assert isinstance(record, SourceDocument) and "Words at the bottom." in record.text


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.json.gz", "a.txt.gz"])
def test_empty_lines_without_end(tmp_path, name):
    starts = {"a.jsonl.gz": json.dumps(GOOD) + "\n", "a.csv.gz": "id,text\ngood,A good document.\n", "a.json.gz": json.dumps([GOOD])}
    with gzip.open(tmp_path / name, "wb", compresslevel=1) as file:
        file.write(starts.get(name, "").encode())
        for _ in range(200):
            file.write(b"\n" * 10**6)
    began, records = time.process_time(), list(iter_documents(tmp_path / name))
    assert time.process_time() - began < 30
    assert (TOO_LONG if name == "a.txt.gz" else TOO_MANY_EMPTY) in reasons(records)
    assert name == "a.txt.gz" or any(isinstance(record, SourceDocument) for record in records)


def test_a_header_line_of_an_archive(tmp_path, rise):
    pytest.importorskip("warcio")
    pytest.importorskip("trafilatura")
    for head in (b"WARC/1.0\r\nX-A: ", b"X: "):
        (tmp_path / "a.warc").write_bytes(head + b"a" * 50_000_000 + b"\r\n\r\n")
        began = time.process_time()
        assert reasons(list(iter_documents(tmp_path / "a.warc", SourceOptions(format="warc")))) and time.process_time() - began < 10
    assert rise() < MOST


def test_a_dictionary_of_one_long_string(tmp_path, rise):
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 40 + [1], pa.int32()), pa.array(["a" * 90_000_000, "A good document."]))
    table = pa.table({"id": [str(number) for number in range(41)], "text": long})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", dictionary_pagesize_limit=2**30)
    del long, table
    pa.default_memory_pool().release_unused()
    records = list(iter_documents(tmp_path / "a.parquet"))
    assert reasons(records) == [TOO_LONG] * 40 and isinstance(records[40], SourceDocument)
    assert rise() < MOST


def test_long_documents_are_left_out(tmp_path):
    rows = [{"id": "a", "text": "?!" * 10_000_000}, {"id": "b", "text": "1" * 22_000_000}, GOOD, {"id": "c", "text": "é" * 600}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert reasons(list(iter_documents(tmp_path / "a.jsonl"))) == [TOO_LONG] * 2
    assert reasons(list(iter_documents(tmp_path / "a.jsonl", SourceOptions(document_bytes=1000)))) == [TOO_LONG] * 3


@pytest.mark.parametrize("text", [".?! " * 250_000, "0123456789" * 100_000, "?!" * 500_000], ids=["spaced", "digits", "punctuation"])
def test_a_million_characters_of_one_kind(tmp_path, text, rise):
    """Whatever it is, what a batch of them takes does not grow with the document."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ({"id": "a", "text": text}, GOOD)))
    began = time.process_time()
    build_corpus([tmp_path / "a.jsonl"], tmp_path / "corpus", vocab_size=300, workers=1)
    assert "good" in BlockStore.open(tmp_path / "corpus").documents()
    assert rise() < MOST and time.process_time() - began < 120


def test_more_sentences_than_words(tmp_path, monkeypatch):
    monkeypatch.setattr("realm.documents.ingest.intake.MOST_SENTENCES", 1000)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ({"id": "a", "text": "It rains. " * 2000}, GOOD)))
    manifest = build_corpus([tmp_path / "a.jsonl"], tmp_path / "corpus", vocab_size=300, workers=1)
    assert manifest.documents == 1 and TOO_MANY_SENTENCES in (tmp_path / "corpus" / "rejected.jsonl").read_text()


def test_a_sentence_cut_between_words(tmp_path):
    """No character but the space between two parts is lost, and none stands in two blocks."""
    text = " ".join(f"word{number}" for number in range(12_000)) + " " + "".join(f"a{number}" for number in range(5000))
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": "a", "text": text}) + "\n")
    build_corpus([tmp_path / "a.jsonl"], tmp_path / "corpus", vocab_size=300, workers=1)
    store = BlockStore.open(tmp_path / "corpus")
    blocks = [store.block(row) for row in range(len(store))]
    assert "".join("".join(block.text.split()) for block in blocks) == "".join(text.split())
    assert all(text[block.char_start : block.char_start + len(block.text)] == block.text for block in blocks)
