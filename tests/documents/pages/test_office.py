"""PDF and Word files as documents, good and bad."""

import io

import pytest

pytest.importorskip("pypdf")
pytest.importorskip("docx")

from docx import Document
from pypdf import PdfWriter

from realm.documents.pages.office import unwrapped
from realm.documents.records import Rejected, SourceDocument
from realm.documents.sources import iter_documents
from realm.documents.sources.reading import read_again

BRIDGE = ["The bridge over the Tirel was re-", "paired in 1931 by the company of", "Ada Smith (of Oslo)."]


def test_the_pages_of_a_pdf_are_documents(tmp_path, pdf):
    (tmp_path / "report.pdf").write_bytes(pdf(BRIDGE, [], ["It was closed again in 1950."]))
    first, scan, third = iter_documents(tmp_path / "report.pdf")
    assert isinstance(first, SourceDocument) and isinstance(third, SourceDocument)
    assert (first.doc_id, first.title, first.line) == ("report.pdf#page=1", "report", 1)
    assert first.text == "The bridge over the Tirel was repaired in 1931 by the company of Ada Smith (of Oslo)."
    assert (third.doc_id, third.text) == ("report.pdf#page=3", "It was closed again in 1950.")
    assert scan == Rejected(str(tmp_path / "report.pdf"), 2, "empty text")
    assert read_again(third.path, third.line) == third


def test_a_folder_of_several_kinds(tmp_path, pdf):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "report.pdf").write_bytes(pdf(BRIDGE))
    (tmp_path / "note.txt").write_text("A note.")
    ids = [record.doc_id for record in iter_documents(tmp_path) if isinstance(record, SourceDocument)]
    assert ids == ["note.txt", "sub/report.pdf#page=1"]


def test_a_pdf_that_cannot_be_read(tmp_path, pdf):
    good, path = pdf(BRIDGE), tmp_path / "x.pdf"
    writer = PdfWriter(clone_from=io.BytesIO(good))
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(path)
    assert list(iter_documents(path)) == [Rejected(str(path), 0, "needs a password")]
    for data in (b"%PDF-1.7", good[:200], b"%PDF-1.4\n" + bytes(range(256)) * 8):
        path.write_bytes(data)
        (record,) = iter_documents(path)
        assert isinstance(record, Rejected) and record.reason in ("damaged file", "file without documents"), data[:20]


def test_an_open_password_is_no_password(tmp_path, pdf):
    writer = PdfWriter(clone_from=io.BytesIO(pdf(BRIDGE)))
    writer.encrypt("", owner_password="owner", algorithm="RC4-128")
    writer.add_metadata({"/Title": "The bridge"})
    writer.write(tmp_path / "x.pdf")
    (record,) = iter_documents(tmp_path / "x.pdf")
    assert isinstance(record, SourceDocument) and record.title == "The bridge"


def test_a_word_file(tmp_path):
    document = Document()
    document.core_properties.title = "Minutes"
    document.add_heading("Bridges", 1)
    document.add_paragraph("The bridge was repaired in 1931.")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip((cell for row in table.rows for cell in row.cells), ("Year", "Cost", "1931", "1931"), strict=True):
        cell.text = text
    document.add_paragraph("That is all.")
    document.save(tmp_path / "minutes.docx")
    (record,) = iter_documents(tmp_path / "minutes.docx")
    assert isinstance(record, SourceDocument) and (record.doc_id, record.title) == ("minutes.docx", "Minutes")
    assert record.text.split("\n\n") == ["Bridges", "The bridge was repaired in 1931.", "Year | Cost", "1931 | 1931", "That is all."]
    (tmp_path / "bad.docx").write_bytes((tmp_path / "minutes.docx").read_bytes()[:500])
    assert list(iter_documents(tmp_path / "bad.docx")) == [Rejected(str(tmp_path / "bad.docx"), 0, "damaged file")]


@pytest.mark.parametrize(("lines", "paragraphs"), [
    ("A heading\nA line that is long enough to fill the page and\ngoes on here.", 2),
    ("A line that is long enough to fill the page, as it\n1. A point of a list", 2),
    ("It has an end and then there is a bit of room here.\n\nAnother paragraph.", 2),
    ("Words that are parted by a hyphen are put to-\ngether, but North-\nSouth is not.", 2), ("", 0),
])  # fmt: skip
def test_lines_become_paragraphs(lines, paragraphs):
    found = [part for part in unwrapped(lines).split("\n\n") if part]
    assert len(found) == paragraphs, found
    assert "".join("".join(found).split()).replace("-", "") == "".join(lines.split()).replace("-", "")
