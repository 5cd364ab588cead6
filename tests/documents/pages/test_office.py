"""Word files as documents, good and bad."""

import pytest

pytest.importorskip("docx")

from docx import Document

from realm.documents.records import Rejected, SourceDocument
from realm.documents.sources import iter_documents


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
