"""A PDF and a Word file made by hand."""

import io

import pytest


@pytest.fixture
def pdf():
    """Makes a PDF of pages, each a list of lines, or of text with its place."""
    return _pdf


@pytest.fixture
def office_files(pdf):
    """A good file of each kind; none where their extras are not installed."""
    try:
        import pypdfium2  # noqa: F401
        from docx import Document
    except ImportError:
        return {}
    document, out = Document(), io.BytesIO()
    document.add_paragraph("Some text.")
    document.save(out)
    return {"pdf": pdf(["Some text (with brackets)", "on two lines."], ["Another page."]), "docx": out.getvalue()}


HELVETICA = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"


def _pdf(*pages, font=HELVETICA, page=b"", more=()):
    """A PDF with lines of text on each page.

    Args:
        pages: lines, or texts with their places from the left and from below.
        font: its object.
        page: entries of every page.
        more: objects from number 4 on.
    """
    objects, kids = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", font, *more], []
    for lines in pages:
        placed = [line if isinstance(line, tuple) else (50, 780 - 14 * at, line) for at, line in enumerate(lines)]
        stream = b" ".join(b"BT /F1 12 Tf %d %d Td (%s) Tj ET" % (x, y, _escaped(text)) for x, y, text in placed)
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        entries = b"/Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R /Resources << /Font << /F1 3 0 R >> >>" % len(objects)
        objects.append(b"<< /Type /Page " + entries + page + b" >>")
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % place for place in places)
    out.write(b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start))
    return out.getvalue()


def _escaped(text):
    return text.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
