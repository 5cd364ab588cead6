"""Word files: every container is visited and marks keep their meaning, as with all tracked changes accepted."""

import io
import re
from zipfile import ZipFile

import pytest

pytest.importorskip("docx")

from docx import Document
from docx.enum.style import WD_STYLE_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

from realm.documents.pages.word import docx_text
from realm.documents.records import Rejected, SourceDocument
from realm.documents.sources import iter_documents


def run(text, form=""):
    return f"<w:r><w:rPr>{form}</w:rPr><w:t xml:space='preserve'>{text}</w:t></w:r>"


def par(*inside):
    return f"<w:p>{''.join(text if text.startswith('<') else run(text) for text in inside)}</w:p>"


def row(*cells, form=""):
    return f"<w:tr><w:trPr>{form}</w:trPr>{''.join(cell if cell.startswith('<w:tc>') else tc(par(cell)) for cell in cells)}</w:tr>"


def tc(content, form=""):
    return f"<w:tc><w:tcPr>{form}</w:tcPr>{content}</w:tc>"


def table(*rows):
    return f"<w:tbl>{''.join(rows)}</w:tbl>"


BREAK = "<w:r><w:br/></w:r>"
TALL, WIDE = "<w:vMerge w:val='restart'/>", "<w:gridSpan w:val='2'/>"
BOX = f"<w:r><w:pict><w:txbxContent>{par('In the box.')}</w:txbxContent></w:pict></w:r>"
MATH = "xmlns:m='http://schemas.openxmlformats.org/officeDocument/2006/math'"
BODIES = {
    "insertion": (par("on ", "<w:del><w:r><w:delText>3 May</w:delText></w:r></w:del>", f"<w:ins>{run('17 June')}</w:ins>"), ["on 17 June"]),
    "inserted paragraph": (par(f"<w:ins>{run('The new tenant.')}</w:ins>"), ["The new tenant."]),
    "move": (par(f"<w:moveFrom>{run('Old.')}</w:moveFrom>") + par(f"<w:moveTo>{run('New.')}</w:moveTo>"), ["New."]),
    "content control": (f"<w:sdt><w:sdtContent>{par('In a control.')}</w:sdtContent></w:sdt>", ["In a control."]),
    "control in a line": (par("Name: ", f"<w:sdt><w:sdtContent>{run('Ida')}</w:sdtContent></w:sdt>"), ["Name: Ida"]),
    "link": (par(f"<w:hyperlink>{run('a link')}</w:hyperlink>"), ["a link"]),
    "field": (par("Page ", "<w:r><w:instrText>PAGE</w:instrText></w:r>", f"<w:fldSimple>{run('7')}</w:fldSimple>"), ["Page 7"]),
    "text box": (par("Beside.", BOX), ["Beside.", "In the box."]),
    "chart": (
        par("See", "<w:r><w:drawing><w:docPr descr='Sales &lt; 9 in May'/><w:graphic/></w:drawing></w:r>", "."),
        ["See Sales < 9 in May ."],
    ),
    "nested table": (table(row("outer", tc("<w:p/>" + table(row("key", "77")) + "<w:p/>"))), ["outer | key | 77"]),
    "empty cells": (table(row("Ann", tc("<w:p/>"), "1950")), ["Ann |  | 1950"]),
    "across": (table(row(tc(par("wide"), WIDE), "b"), row("a", "b", "c")), ["wide |  | b", "a | b | c"]),
    "down": (table(row("a", tc(par("tall"), TALL)), row("b", tc("<w:p/>", "<w:vMerge/>"))), ["a | tall", "b | tall"]),
    "deleted row": (table(row("gone", form="<w:del/>"), row("kept")), ["kept"]),
    "power": (par("10", run("6", "<w:vertAlign w:val='superscript'/>")), ["10⁶"]),
    "shifted": (par("10", run("6", "<w:position w:val='8'/>"), ", x", run("i", "<w:position w:val='-6'/>")), ["10⁶, x_i"]),
    "choice": (par("<w:r><w:ddList><w:result w:val='1'/><w:listEntry w:val='no'/><w:listEntry w:val='yes'/></w:ddList></w:r>"), ["yes"]),
    "formula": (par(f"<m:f {MATH}><m:num><m:r>{run('1')}</m:r></m:num><m:den><m:r>{run('2')}</m:r></m:den></m:f>"), ["1/2"]),
    "brackets": (par("3", f"<m:d {MATH}><m:dPr><m:endChr m:val=']'/></m:dPr><m:nary>{run('x')}</m:nary></m:d>"), ["3(∫x]"]),
    "joined": (par("<w:pPr><w:rPr><w:del/></w:rPr></w:pPr>", "Paid") + par(f"<w:ruby><w:rt>{run('x')}</w:rt></w:ruby>"), ["Paid(x)"]),
    "struck": (par(run("100", "<w:strike/>"), " 80"), ["80"]),
    "soft break": (
        par("Rebuilt in the year 1931 by Ellen", BREAK, "Marsh, an engineer."),
        ["Rebuilt in the year 1931 by Ellen Marsh, an engineer."],
    ),
    "address": (par("Hotel Sonne", BREAK, "Bahnhofstrasse 12", BREAK, "8001 Zürich"), ["Hotel Sonne\nBahnhofstrasse 12\n8001 Zürich"]),
    "signs": (par("well", "<w:r><w:noBreakHyphen/><w:t>known &lt;x&gt;</w:t></w:r>"), ["well-known <x>"]),
}


def written(body):
    document, out = Document(), io.BytesIO()
    for element in parse_xml(f"<w:body {nsdecls('w')}>{body}</w:body>"):
        document.element.body.insert(len(document.element.body) - 1, element)
    document.save(out)
    return out.getvalue()


@pytest.mark.parametrize(("body", "blocks"), BODIES.values(), ids=BODIES)
def test_every_container_is_visited(body, blocks):
    assert docx_text(written(body))[1].split("\n\n") == blocks


CHART = b"""<c:c xmlns:c='urn:c'><c:p><c:r><c:t>Boats</c:t></c:r></c:p><c:ser><c:tx><c:v>Velm</c:v></c:tx><c:cat><c:v>2024</c:v></c:cat>
<c:val><c:v>7.0999999999999996</c:v></c:val></c:ser></c:c>"""


def test_parts_beside_the_text_are_read_and_styles_mean_what_they_say(tmp_path):
    document, out = Document(), io.BytesIO()
    for name, kind, content in (
        ("a.html", "text/html", b"<p>In a &lt;page.</p>"),
        ("b.xml", "x/chart", CHART),
        ("c.docx", "x/docx", written(par("In a file."))),
    ):
        part = Part(PackURI(f"/word/{name}"), kind, content, document.part.package)
        reference = document.part.relate_to(part, "http://x/part")
        told = f"<w:altChunk {nsdecls('w', 'r')} r:id='{reference}'/>"
        if kind == "x/chart":
            told = f"<w:p {nsdecls('w', 'r')}><w:r><w:t>See</w:t><w:drawing><w:chart r:id='{reference}'/></w:drawing></w:r></w:p>"
        document.element.body.insert(len(document.element.body) - 1, parse_xml(told))
    for name, form in (("Up", "superscript"), ("Gone", "strike")):
        setattr(document.styles.add_style(name, WD_STYLE_TYPE.CHARACTER).font, form, True)
    paragraph = document.add_paragraph("10")
    for text, style in (("6", "Up"), (" for ", None), ("100", "Gone"), ("80", None)):
        paragraph.add_run(text, style)
    document.save(out)
    told = ["In a <page.", "See", "Boats", "Series | 2024", "Series: Velm | 2024: 7.1", "In a file.", "10\u2076 for 80"]
    assert docx_text(out.getvalue())[1].split("\n\n") == told
    with ZipFile(out) as made, ZipFile(tmp_path / "a.docx", "w") as bare:
        for name in made.namelist():
            bare.writestr(name, re.sub(rb"<Relationship [^>]*/core-properties[^>]*/>", b"", made.read(name)))
    assert next(iter_documents(tmp_path / "a.docx")).title == "a"


def test_headers_numbers_and_notes():
    document, out = Document(), io.BytesIO()
    document.sections[0].header.paragraphs[0].text = "Invoice 4711"
    document.sections[0].footer.paragraphs[0].text = "Velm Harbour Office"
    for text, style in (("first", "List Number"), ("second", "List Number"), ("point", "List Bullet")):
        document.add_paragraph(text, style=style)
    document.save(out)
    assert docx_text(out.getvalue())[1].split("\n\n") == ["Invoice 4711", "1. first", "2. second", "point", "Velm Harbour Office"]


def test_what_is_left_out_is_counted(tmp_path):
    (tmp_path / "a.docx").write_bytes(written(BODIES["insertion"][0] + par("<w:r><w:commentReference w:id='1'/></w:r>")))
    record, *told = iter_documents(tmp_path / "a.docx")
    assert isinstance(record, SourceDocument) and record.text == "on 17 June"
    assert [one.reason for one in told] == ["comment beside the text", "text that a tracked change deleted"]


def test_a_word_file(tmp_path):
    document = Document()
    document.core_properties.title = "Minutes"
    document.add_heading("Bridges", 1)
    document.add_paragraph("The bridge was repaired in 1931.")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip((cell for row in table.rows for cell in row.cells), ("Year", "Cost", "1931", "1931"), strict=True):
        cell.text = text
    document.add_paragraph("That is all.")
    for ending, kind in ("docx", "document"), ("dotx", "template"):
        document.part._content_type = f"application/vnd.openxmlformats-officedocument.wordprocessingml.{kind}.main+xml"
        document.save(tmp_path / f"minutes.{ending}")
    record, template = iter_documents(tmp_path)
    assert isinstance(record, SourceDocument) and (record.doc_id, record.title) == ("minutes.docx", "Minutes")
    assert isinstance(template, SourceDocument) and template.text == record.text
    assert record.text.split("\n\n") == ["Bridges", "The bridge was repaired in 1931.", "Year | Cost", "1931 | 1931", "That is all."]
    (tmp_path / "bad.docx").write_bytes((tmp_path / "minutes.docx").read_bytes()[:500])
    assert list(iter_documents(tmp_path / "bad.docx")) == [Rejected(str(tmp_path / "bad.docx"), 0, "damaged file")]
