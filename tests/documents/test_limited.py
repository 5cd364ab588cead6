"""Documents made to take time and memory: each is counted under a reason, or read, and the document after it is read all the same."""

import json
import time

import pytest

from realm.documents.ingest.builder import build_corpus
from realm.documents.records import TOO_LONG, TOO_MANY_SENTENCES, TOO_SLOW, Rejected, SourceDocument
from realm.documents.sources import SourceOptions, iter_documents

GOOD = {"id": "good", "text": "A good document. It stays."}


def reasons(records):
    return [record.reason for record in records if isinstance(record, Rejected)]


def test_a_page_that_takes_too_long(tmp_path):
    """300,000 attributes: libxml2 compares each with all before it."""
    pytest.importorskip("trafilatura")
    (tmp_path / "a.html").write_text("<html><body><p " + " ".join(f"a{number}=1" for number in range(300_000)) + ">Text.</p></body></html>")
    (tmp_path / "b.html").write_text("<html><body><p>" + "Some words of text. " * 2000 + "</p></body></html>")
    began, records = time.process_time(), list(iter_documents(tmp_path, SourceOptions(document_seconds=2)))
    assert reasons(records) == [TOO_SLOW] and time.process_time() - began < 20
    assert [record.text[:10] for record in records if isinstance(record, SourceDocument)] == ["Some words"]


def test_a_charset_that_no_page_has(tmp_path):
    pytest.importorskip("trafilatura")
    for name in ("punycode", "idna", "unicode_escape", "utf-7"):
        (tmp_path / "a.html").write_text(
            f"<html><meta charset='{name}'><body><p>" + "A sentence of the page. " * 20_000 + "</p></body></html>"
        )
        began = time.process_time()
        (record,) = iter_documents(tmp_path / "a.html")
        assert isinstance(record, SourceDocument) and record.text.startswith("A sentence") and time.process_time() - began < 20


def test_long_documents_are_left_out(tmp_path):
    rows = [{"id": "a", "text": "?!" * 10_000_000}, {"id": "b", "text": "1" * 22_000_000}, GOOD, {"id": "c", "text": "é" * 600}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert reasons(list(iter_documents(tmp_path / "a.jsonl"))) == [TOO_LONG] * 2
    assert reasons(list(iter_documents(tmp_path / "a.jsonl", SourceOptions(document_bytes=1000)))) == [TOO_LONG] * 3


def test_more_sentences_than_words(tmp_path, monkeypatch):
    monkeypatch.setattr("realm.documents.ingest.intake.MOST_SENTENCES", 1000)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ({"id": "a", "text": "It rains. " * 2000}, GOOD)))
    manifest = build_corpus([tmp_path / "a.jsonl"], tmp_path / "corpus", vocab_size=300, workers=1)
    assert manifest.documents == 1 and TOO_MANY_SENTENCES in (tmp_path / "corpus" / "rejected.jsonl").read_text()
