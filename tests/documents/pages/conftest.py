"""A PDF made by hand."""

import pytest
from pdf_files import CATALOG, pdf_file


@pytest.fixture
def pdf():
    """Makes a PDF of pages, each a list of lines, or of text with its place."""
    return _pdf


HELVETICA = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"


def _pdf(*pages, font=HELVETICA, page=b"", more=()):
    """A PDF with lines of text on each page.

    Args:
        pages: lines, or texts with their places from the left and from below; or the stream itself.
        font: its object.
        page: entries of every page.
        more: objects from number 4 on."""
    objects, kids = [CATALOG, b"", font, *more], []
    for lines in pages:
        raw = isinstance(lines, bytes)
        placed = [line if isinstance(line, tuple) else (50, 780 - 14 * at, line) for at, line in enumerate(() if raw else lines)]
        texts = [lines] if raw else (b"BT /F1 12 Tf %d %d Td (%s) Tj ET" % (x, y, _escaped(text)) for x, y, text in placed)
        stream = b" ".join(texts)
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        entries = b"/Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R /Resources << /Font << /F1 3 0 R >> >>" % len(objects)
        objects.append(b"<< /Type /Page " + entries + page + b" >>")
        kids.append(len(objects))
    return pdf_file(objects, kids)


def _escaped(text):
    return text.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
