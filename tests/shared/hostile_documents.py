"""Documents made to take time and memory, each from a function."""

import copy
import gzip
import io
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from pdf_files import CATALOG, pdf_file

BYTES = 15_000_000
"""Of the large ones: a text below the limit of 16 MiB."""
UNITS = Path(__file__).with_name("hostile_units.toml")


def repeated(unit: str, size: int) -> bytes:
    """The unit again and again, about so many bytes."""
    data = unit.encode()
    return data * (size // len(data))


def dump(unit: str, size: int) -> bytes:
    """A dump of one page whose wikitext is the unit again and again."""
    text = repeated(unit, size).decode().replace("<", "&lt;")
    head = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en"><siteinfo><namespaces>'
    page = f"<page><title>Page</title><ns>0</ns><id>1</id><revision><id>1</id><text>{text}</text></revision></page>"
    return f'{head}<namespace key="0" /></namespaces></siteinfo>\n{page}\n</mediawiki>\n'.encode()


def pdf_of(contents: Iterable[bytes], references: int = 1) -> bytes:
    """A PDF with a page for each content stream, each page named so many times."""
    objects = [CATALOG, b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for content in contents:
        packed = zlib.compress(content)
        objects.append(b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed))
        page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R /Resources << /Font << /F1 3 0 R >> >> >>"
        objects.append(page % len(objects))
        kids += [len(objects)] * references
    return pdf_file(objects, kids)


SAID = b"BT /F1 12 Tf 50 700 Td (The old weir was rebuilt by Ellen Marsh.) Tj ET\n"


def drawing(size: int) -> bytes:
    """Sixty pages of lines that are drawn, a million bytes or fewer each."""
    return pdf_of([SAID + repeated("10 10 m 500 700 l S\n", size // 15)] * 60)


def references(size: int) -> bytes:
    """One page, named 100,000 times."""
    return pdf_of([SAID], size // 150)


def wide_table(size: int) -> bytes:
    """A Word table one cell of which spans as many columns as bytes are asked for."""
    from docx import Document
    from docx.oxml.ns import qn

    document, out = Document(), io.BytesIO()
    document.add_paragraph("The weir was rebuilt.")
    table = document.add_table(rows=3, cols=2)
    for row in table.rows:
        row.cells[0].text = "Cost"
        properties = row.cells[0]._tc.get_or_add_tcPr()
        properties.get_or_add_gridSpan().set(qn("w:val"), str(size))
    document.save(out)
    return out.getvalue()


def zipped(parts: dict[str, bytes]) -> bytes:
    """An office file or a book of these parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in parts.items():
            file.writestr(name, data, zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED)
    return out.getvalue()


MANIFEST = b'<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'


def open_document(body: bytes) -> bytes:
    """An ODT with this text, or an ODS with these sheets."""
    names = b" ".join(b'xmlns:%s="urn:oasis:names:tc:opendocument:xmlns:%s:1.0"' % (name, name) for name in (b"office", b"text", b"table"))
    kind = b"spreadsheet" if body.startswith(b"<table") else b"text"
    content = b"<office:document-content %s><office:body><office:%s>%s</office:%s></office:body></office:document-content>"
    media = b"application/vnd.oasis.opendocument." + kind
    return zipped({"mimetype": media, "content.xml": content % (names, kind, body, kind), "META-INF/manifest.xml": MANIFEST})


def far_cell(size: int) -> bytes:
    """A workbook of one value, in the last cell that there may be."""
    import xlsxwriter

    out = io.BytesIO()
    with xlsxwriter.Workbook(out) as book:
        book.add_worksheet().write(0, 0, "The weir was rebuilt.")
        book.worksheets()[0].write(2**20 - 1, 2**14 - 1, "Cost")
    return out.getvalue()


def one_slide_again(size: int) -> bytes:
    """A presentation that shows its one slide once for every 150 bytes that are asked for."""
    from pptx import Presentation

    deck, out = Presentation(), io.BytesIO()
    deck.slides.add_slide(deck.slide_layouts[0]).shapes.title.text = "The weir was rebuilt."
    order = deck.slides._sldIdLst
    for _ in range(size // 150):
        order.append(copy.copy(order[0]))
    deck.save(out)
    return out.getvalue()


def one_chapter_again(size: int) -> bytes:
    """A book whose one chapter comes again as often."""
    package = b'<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/>'
    package += b"</manifest><spine>%s</spine></package>" % (b'<itemref idref="a"/>' * (size // 150))
    container = b'<container><rootfiles><rootfile full-path="a.opf"/></rootfiles></container>'
    chapter = b"<html><body><p>%s</p></body></html>" % repeated("The weir was rebuilt. ", size // 150)
    return zipped({"META-INF/container.xml": container, "a.opf": package, "a.xhtml": chapter})


def dictionary(size: int) -> bytes:
    """A Parquet file whose rows all point to one long text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out, texts = io.BytesIO(), pa.array([repeated("The weir was rebuilt. ", size // 2).decode()])
    column = pa.DictionaryArray.from_arrays(pa.array([0] * (50 + size // 1000), pa.int32()), texts)
    pq.write_table(pa.table({"text": column}), out)
    return out.getvalue()


def laughs(size: int) -> bytes:
    """XML with entities of entities."""
    entities = b"".join(b'<!ENTITY a%d "%s">' % (level, b"&a%d;" % (level - 1) * 10) for level in range(1, 10))
    return b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a0 "weir">%s]><a>&a9;</a>' % entities


def nested_mail(size: int) -> bytes:
    """A message of parts that hold parts."""
    parts = (b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (at, at) for at in range(size // 60))
    return b"Subject: weir\n" + b"".join(parts) + b"\nThe weir was rebuilt.\n"


STARTS = {"jsonl": b'{"text": "The weir was rebuilt."}\n', "csv": b"id,text\na,The weir was rebuilt.\n", "txt": b""}
"""What stands before empty lines without end."""


def unpacked(size: int) -> bytes:
    """A Word file whose text unpacks to a thousand times its size, and to sixty times what is asked for."""
    from docx import Document

    out = io.BytesIO()
    Document().save(out)
    with zipfile.ZipFile(out) as there:
        parts = {name: there.read(name) for name in there.namelist()}
    return zipped({**parts, "word/document.xml": parts["word/document.xml"] + bytes(60 * size).replace(b"\0", b" ")})


def _of(unit: str) -> Callable[[int], bytes]:
    return lambda size: repeated(unit, size)


HOSTILE: dict[str, Callable[[int], bytes]] = {
    **{name: _of(unit) for name, unit in tomllib.loads(UNITS.read_text("utf-8")).items()},
    "list.xml": lambda size: dump("* a\n", size),
    "headings.xml": lambda size: dump("== a ==\n", size),
    "templates.xml": lambda size: dump("{{a|", size),
    "links.xml": lambda size: dump("[[a|", size),
    "tags.xml": lambda size: dump("<ref>", size),
    "drawing.pdf": drawing,
    "references.pdf": references,
    "wide-table.docx": wide_table,
    "far.xlsx": far_cell,
    "far.ods": lambda size: open_document(
        b'<table:table><table:table-row table:number-rows-repeated="1048576"><table:table-cell table:number-columns-repeated="16384">'
        b"<text:p>Cost</text:p></table:table-cell></table:table-row></table:table>"
    ),
    "spaces.odt": lambda size: open_document(b'<text:p>The weir<text:s text:c="%d"/> was rebuilt.</text:p>' % (size * 100)),
    "sections.odt": lambda size: open_document(repeated("<text:section>", size)),
    "slide.pptx": one_slide_again,
    "chapter.epub": one_chapter_again,
    "dictionary.parquet": dictionary,
    "laughs.xml": laughs,
    "parts.eml": nested_mail,
    "attributes.html": lambda size: b"<html><body><p %s>Words</p></body></html>" % b" ".join(b"a%d=1" % at for at in range(size // 8)),
    **{f"empty.{kind}.gz": lambda size, kind=kind: gzip.compress(STARTS[kind] + b"\n" * (1_100_000 + 10 * size), 1) for kind in STARTS},
    "unpacked.docx": unpacked,
    "zeros.zip": lambda size: zipped({"a.txt": bytes(40 * size)}),
    "zeros.txt.gz": lambda size: gzip.compress(bytes(40 * size), 1),
    "long.jsonl": lambda size: b'{"id": "a", "text": "%s"}\n' % repeated("\\u00e4", size),
    "nested.html": lambda size: b"<html><body>" + repeated("<div>", size) + b"Words",
}
"""Writes a document of about so many bytes, by the name of its file."""
