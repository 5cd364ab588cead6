"""PDF files made by hand."""

import io

CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"


def pdf_file(objects, kids):
    """The bytes of a file of these objects, the first of which is ``CATALOG`` and the second in whose place the list of pages stands.

    Args:
        kids: the numbers of the pages, in order; one may be named several times."""
    pages = b" ".join(b"%d 0 R" % number for number in kids)
    objects = [objects[0], b"<< /Type /Pages /Kids [%s] /Count %d >>" % (pages, len(kids)), *objects[2:]]
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
