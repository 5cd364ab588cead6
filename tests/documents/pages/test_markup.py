"""XML, books, OpenDocument and notebooks: what is text in them, and files that are damaged."""

from zipfile import ZipFile

import pytest

from realm.documents.records import Rejected
from realm.documents.sources import iter_documents


def seen(path):
    return [(one.line, one.reason) if isinstance(one, Rejected) else (one.doc_id, one.title, one.text) for one in iter_documents(path)]


def zipped(path, files):
    with ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


@pytest.mark.parametrize(("xml", "title", "text"), [
    ("<a><b>One.</b><b>Two.</b></a>", "a", "One.\n\nTwo."),
    ("<a><title>Ferry</title><p>Run by <b>Ann</b>.</p></a>", "Ferry", "Ferry\n\nRun by Ann."),
    ("<a>Mixed <i>up</i> text</a>", "a", "Mixed up text"), ("<a><p>wrapped\n   line</p><!-- no --></a>", "a", "wrapped line"),
    ("<a><tr><td>Ann</td><td/><td>1950</td></tr></a>", "a", "Ann |  | 1950"), ("<a><p>one<br/>two</p></a>", "a", "one two"),
    ("<a><row><entry>Ann</entry><entry/><entry>1950</entry></row></a>", "a", "Ann |  | 1950"),
    ("<a><p>10<sup>6</sup>, CO<subscript>2</subscript>, <del>9</del>8</p></a>", "a", "10⁶, CO₂, 8"),
    ("<a><b name='Ida' role='mayor'/></a>", "a", "name: Ida | role: mayor"),
    ("<a><b name='Ida'>mayor</b><c title='Old'><p>Weir.</p></c></a>", "a", "Ida: mayor\n\nOld\n\nWeir."),
    ("<a><description>&lt;p>The &lt;b>mill&lt;/b></description></a>", "a", "The mill"),
    ("<a xmlns:m='u'><p>Of <m:math><m:msup><m:mn>10</m:mn><m:mn>6</m:mn></m:msup></m:math>, <m:mfrac><m:mi>a</m:mi>"
     "<m:mn>2</m:mn></m:mfrac>.</p></a>", "a", "Of 10⁶, a/2."),
    ("<a><table><tr><td rowspan='2'>Ann</td><td>1</td></tr><tr><td>2</td></tr></table></a>", "a", "Ann | 1\n\nAnn | 2"),
    ("<a>Of: <list><item>x</item><item>y</item></list><binary>iVBO</binary></a>", "a", "Of: x y"),
    ("<a>caf&eacute; &amp; bar</a>", "a", "caf\u00e9 & bar"),
    ("<!DOCTYPE a [<!ENTITY v '4.7'>]><a>&product; &v;, &the.author; &Lt;</a>", "a", "product 4.7, the.author \u226a"),
    ("<x:a xmlns:x='u'><x:p>Named.</x:p></x:a>", "a", "Named."), ("<a><script>no()</script><p>Yes.</p></a>", "a", "Yes."),
    ("<a>" * 3000 + "deep" + "</a>" * 3000, "a", "deep"),
])  # fmt: skip
def test_xml(tmp_path, xml, title, text):
    (tmp_path / "a.xml").write_text(xml, "utf-8")
    assert seen(tmp_path / "a.xml") == [("a.xml", title, text)]


BOOK = {
    "META-INF/container.xml": "<container><rootfiles><rootfile full-path='in/p.opf'/></rootfiles></container>",
    "in/p.opf": "<package><manifest><item id='a' href='one%20.xhtml'/><item id='b' href='two.xhtml'/></manifest>"
    "<spine><itemref idref='b'/><itemref idref='a'/></spine></package>",
    "in/one .xhtml": "<html><head><title>T</title></head><body><p>Call me Ishmael.</p></body></html>",
    "in/two.xhtml": "<!DOCTYPE html><html><head><title>T</title></head><body>"
    "<h1>Loomings&nbsp;1</h1><p><img src='s.svg' alt='S'/>ome years <i>ago</i>.</p>"
    "<p><img src='a.png' alt='The Spouter Inn'/><img src='b.png'/></p></body></html>",
}


def test_a_book_is_its_chapters_in_order(tmp_path):
    assert seen(zipped(tmp_path / "b.epub", BOOK)) == [
        ("b.epub#chapter=1", "Loomings\xa01", "Loomings\xa01\n\nSome years ago.\n\nThe Spouter Inn"),
        ("b.epub#chapter=2", "T", "Call me Ishmael."),
    ]


def test_opendocument_text(tmp_path):
    inside = (
        "<t:tracked-changes><t:p>deleted</t:p></t:tracked-changes><t:h>Head</t:h><t:p>The <t:span>mill</t:span><t:s/>was<t:line-break/>"
        "sold."
        "<t:note><t:note-citation>1</t:note-citation><t:p>By Ann.</t:p></t:note><t:annotation><t:p>no</t:p></t:annotation></t:p>"
        "<t:list t:style-name='L'><t:list-item t:start-value='4'><t:p>item</t:p></t:list-item></t:list>"
        "<t:table-row><t:table-cell t:number-columns-spanned='3'><t:p>A</t:p>"
        "</t:table-cell><t:covered-table-cell t:number-columns-repeated='2'/><t:table-cell><t:p>B</t:p></t:table-cell></t:table-row>"
        "<t:p>10<t:span t:style-name='U'>6</t:span> for <t:span t:style-name='S'>100</t:span>80</t:p><t:style t:name='U'>"
        "<t:p t:text-position='super 58%'/></t:style><t:style t:name='S'><t:p t:text-line-through-style='solid'/></t:style>"
        "<t:list-style t:name='L'><t:list-level-style-number t:level='1' t:num-format='1'/></t:list-style>"
    )
    inside += "<t:p>10<t:span t:style-name='A'>6</t:span>, <t:object t:href='./Object 1'/><s:title xmlns:s='svg'>Alt</s:title>end</t:p>"
    inside += "<t:style t:name='A' t:parent-style-name='V'/>"
    around = (
        "<t:style t:name='V'><t:p t:text-position='super'/></t:style><t:header><t:p>Contract 7</t:p></t:header><t:footer>Seal</t:footer>"
    )
    files = {"content.xml": inside, "styles.xml": around * 2, "Object 1/content.xml": "<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math>"}
    held = {name: f"<o:d xmlns:o='urn:o' xmlns:t='urn:t'>{text}</o:d>" for name, text in files.items()}
    body = "Head\n\nThe mill was sold. By Ann.\n\n4. item\n\nA |  |  | B\n\n10⁶ for 80\n\n10⁶, 1/2 Alt end"
    assert seen(zipped(tmp_path / "a.odt", held)) == [(0, "comment beside the text"), ("a.odt", "a", f"Contract 7\n\n{body}\n\nSeal")]


def test_a_notebook_is_its_cells(tmp_path):
    cells = (
        '{"cell_type": "markdown", "source": ["# Study\\n", "The **mean** is 3."]}, {"cell_type": "code", "source": "show()", '
        '"outputs": [{"text": ["a 1\\n"]}, {"data": {"text/plain": "b 2"}}, {"data": {"image/png": "x", "text/plain": "<Figure size 6>"}}, '
        '{"data": {"text/markdown": "c **3**", "text/plain": "<IPython.core.display.Markdown object>"}}, '
        '{"data": {"text/html": "<b>d</b> 4"}}, {"data": {"text/html": "<b>e</b>", "text/plain": "e 5"}}, {"data": {"text/latex": "$g$"}}, '
        '{"output_type": "error", "ename": "KeyError", "evalue": "f 6"}]}, '
        '{"cell_type": "raw", "source": "r"}'
    )
    (tmp_path / "n.ipynb").write_text(f'{{"cells": [{cells}]}}')
    (tmp_path / "old.ipynb").write_text('{"worksheets": [{"cells": [{"cell_type": "code", "input": ["x = 1"]}]}]}')
    assert seen(tmp_path / "n.ipynb") == [
        ("n.ipynb", "Study", "Study\n\nThe mean is 3.\n\nshow()\n\na 1\n\nb 2\n\nc 3\n\nd 4\n\ne 5\n\n$g$\n\nKeyError: f 6\n\nr")
    ]
    assert seen(tmp_path / "old.ipynb") == [("old.ipynb", "old", "x = 1")]


@pytest.mark.parametrize("name", ["a.xml", "a.odt", "a.epub", "a.ipynb"])
@pytest.mark.parametrize("data", [b"no", b"PK\x03\x04 no archive", b"[]", b'{"cells": 1}', b"<a><b></a>"])
def test_what_is_damaged_is_said_to_be(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    assert seen(tmp_path / name) == [(0, "damaged file")]


def test_a_book_without_its_parts(tmp_path):
    for missing in BOOK:
        files = {name: text for name, text in BOOK.items() if name != missing}
        first, *rest = seen(zipped(tmp_path / "b.epub", files))
        assert first == (0, "damaged file") and len(rest) == missing.endswith(".xhtml")


def test_a_chapter_that_is_no_xml_is_read_and_one_of_other_bytes_is_named(tmp_path):
    broken = {"in/one .xhtml": "<p>Call <br> me</p></i>", "in/two.xhtml": bytes(range(256)) * 9}
    assert seen(zipped(tmp_path / "b.epub", BOOK | broken)) == [(0, "damaged file"), ("b.epub#chapter=1", "b", "Call me")]
