"""A PDF and a Word file made by hand."""

import io

import pytest


@pytest.fixture
def pdf():
    return _pdf


@pytest.fixture
def office_files(pdf):
    """A good file of each kind; none where their extras are not installed."""
    try:
        import pypdf  # noqa: F401
        from docx import Document
    except ImportError:
        return {}
    document, out = Document(), io.BytesIO()
    document.add_paragraph("Some text.")
    document.save(out)
    return {"pdf": pdf(["Some text (with brackets)", "on two lines."], ["Another page."]), "docx": out.getvalue()}


def _pdf(*pages):
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for lines in pages:
        shown = b" T* ".join(b"(" + line.encode("latin-1").replace(b"(", b"\\(").replace(b")", b"\\)") + b") Tj" for line in lines)
        stream = b"BT /F1 12 Tf 14 TL 50 780 Td " + shown + b" ET"
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R /Resources << /Font << /F1 3 0 R >> >> >>"
        objects.append(page % len(objects))
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    out, places = io.BytesIO(b"%PDF-1.4\n"), []
    out.seek(0, io.SEEK_END)
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % place for place in places)
    out.write(b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start))
    return out.getvalue()
