"""Documents made to take time and memory, each from a function; run with a folder (and tests/shared on the path), it writes all there."""

import io
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from pdf_files import CATALOG, pdf_file

BYTES = 15_000_000
"""Of the large ones: a text below the limit of 16 MiB."""

_LINES = {
    "arabic.txt": "مدينة",
    "combining.txt": "á́̂",
    "emoji.txt": "\U0001f600",
    "dates-unbroken.txt": "17.06.1931",
    "dots.txt": ".",
    "spaced-dots.txt": ". ",
    "hyphens.txt": "-",
    "quotes.txt": '"',
    "apostrophes.txt": "'",
    "mail.txt": "a.b@c.de ",
    "dates.txt": "17 June 1931 ",
    "capitals.txt": "Ada Smith of Oslo ",
    "brackets.md": "[",
    "html.md": "<a ",
    "emphasis.md": "*a ",
    "strong.md": "**a** ",
    "backticks.md": "`a``",
    "quotes.md": "> ",
    "lists.wiki.txt": "* a\n",
    "lists.md": "* a\n",
    "headings.md": "# a\n",
    "table.md": "|a",
}


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


def _of(unit: str) -> Callable[[int], bytes]:
    return lambda size: repeated(unit, size)


HOSTILE: dict[str, Callable[[int], bytes]] = {
    **{name: _of(unit) for name, unit in _LINES.items()},
    "list.xml": lambda size: dump("* a\n", size),
    "headings.xml": lambda size: dump("== a ==\n", size),
    "templates.xml": lambda size: dump("{{a|", size),
    "links.xml": lambda size: dump("[[a|", size),
    "tags.xml": lambda size: dump("<ref>", size),
    "drawing.pdf": drawing,
    "references.pdf": references,
    "wide-table.docx": wide_table,
    "nested.html": lambda size: b"<html><body>" + repeated("<div>", size) + b"Words",
}
"""Writes a document of about so many bytes, by the name of its file."""


def main(folder: Path, size: int = BYTES) -> None:
    """Write each into a folder of its own, beside a good document."""
    for name, make in HOSTILE.items():
        place = folder / name.replace(".", "-")
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(make(size))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
