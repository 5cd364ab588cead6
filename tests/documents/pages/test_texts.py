"""Files that are one document: encodings, binary data, Markdown, HTML."""

import json

import pytest

from realm.documents import streams
from realm.documents.pages.texts import plain_markdown
from realm.documents.records import Rejected, SourceDocument
from realm.documents.sources import SourceOptions, iter_documents
from realm.errors import MissingExtra

PAGE = """<!DOCTYPE html><html><head><title>The Rivers of Arvad | Atlas</title><script>var hidden = 1;</script></head><body>
<nav><a href="/">Home</a> <a href="/about">About the site</a></nav>
<article><h1>The Rivers of Arvad</h1><p>The longest river of Arvad is the Tirel, which rises in the northern hills &amp; flows south.</p>
<p>In spring the Tirel floods the plains near the capital, and the harvest of the following summer depends on it.</p></article>
<footer>Copyright 2019</footer></body></html>"""


def only(path, options=None):
    (record,) = iter_documents(path, options or SourceOptions())
    return record


def test_single_text_files(tmp_path):
    (path := tmp_path / "note.txt").write_text("# not a heading here")
    assert only(path) == SourceDocument("note.txt", "note", "# not a heading here", str(path), 0)
    cues = (
        "1\n00:00:01,000 --> 00:00:03,500\nBuilt by\n\n2\n00:03.6 --> 00:05.0 a:9\n<i>Ann</i> &amp; Bo.\n\n3\n0:06.0 --> 0:07.0\n<v Ida>Yes"
    )
    for name, data in (("a.srt", cues.replace("\n", "\r\n")), ("a.vtt", f"WEBVTT\n\nNOTE no\n\n{cues}"), ("b.txt", cues)):
        (tmp_path / name).write_bytes(data.encode())
        assert (only(tmp_path / name).text, only(tmp_path / name).structured) == ("Built by Ann & Bo.\nIda: Yes", True)
    (tmp_path / "a.ics").write_bytes(b"BEGIN:VCALENDAR\r\nSUMMARY:The new b\r\n oiler\\, at 9\\nRoom 5\r\nEND:VCALENDAR\r\n")
    assert only(tmp_path / "a.ics").text.splitlines()[1:3] == ["SUMMARY:The new boiler, at 9", "Room 5"]
    card = (
        b"BEGIN:VCARD\r\nFN;ENCODING=QUOTED-PRINTABLE:J=C3=BCrgen K=C3=\r\n=B6nig\r\nPHOTO;ENCODING=b:AAEC\r\n AwQF\r\n"
        b"LOGO;BASE64:AAEC\r\nKEY:data:x/y;base64,AA\r\nNOTE:Gate b: shut; see b, c\r\nEND:VCARD"
    )
    (tmp_path / "a.vcf").write_bytes(card)
    assert [line.rpartition(":")[2] for line in only(tmp_path / "a.vcf").text.splitlines()[1:3]] == [
        "J\u00fcrgen K\u00f6nig",
        " shut; see b, c",
    ]
    foot = "\n\n\nMarsh        Standard     [Page 3]\n\f\nRFC 9     Weirs      May 2020\n\n\n   "
    for before, after, apart in (("and the", "server answers.", "\n"), ("is shut.", "server 7 is on.", "\n\n"), ("List", "Server", "\n\n")):
        (tmp_path / "rfc9.txt").write_text(f"   It asks {before}{foot}{after}\n")
        assert only(tmp_path / "rfc9.txt").text == f"   It asks {before}{apart}   {after}\n"
    (tmp_path / "a.txt").write_bytes(b"A long enough line of text with one \0 in it.\n")
    assert isinstance(only(tmp_path / "a.txt"), SourceDocument)


@pytest.mark.parametrize(("tex", "text"), [
    (r"Jos\'e, K\"oln, Espa\~na", "José, Köln, España"), (r"{\'e}t{\'{e}}, na\"{\i}ve, Mart\'\i nez", "été, naïve, Martínez"),
    (r"gar\c{c}on, \c Cankaya, Dvo\v{r}\'ak", "garçon, Çankaya, Dvořák"), (r"Erd{\H o}s, \k{a}, \r{u}, \u{g}", "Erdős, ą, ů, ğ"),
    (r"Stra\ss e, Gro{\ss}, S\o ren, \AA{}rhus", "Straße, Groß, Søren, Århus"), (r"\L\'od\'z, \.Zar, \=a, \d{s}", "Łódź, Żar, ā, ṣ"),
    (r"{\"Uber alles}, \^{o}, \`a la", "{Über alles}, ô, à la"), (r"R\&D took 5\% of \$30, a\_b, \#3", "R&D took 5% of $30, a_b, #3"),
    (plain := r"\section{Weir} \cite{b} \over \input{s} \omega, $f\'$ \\ C:\users", plain),
])  # fmt: skip
def test_letters_of_tex(tmp_path, tex, text):
    for name, found in (("a.tex", text), ("a.bib", text), ("a.txt", tex)):
        (tmp_path / name).write_text(tex, "utf-8")
        assert only(tmp_path / name).text == found


def test_compressed_text(tmp_path, pack):
    pack(path := tmp_path / "note.txt.gz", b"Packed.")
    assert only(path) == SourceDocument("note.txt.gz", "note", "Packed.", str(path), 0)
    path.write_bytes(path.read_bytes()[:-12])
    assert only(path) == Rejected(str(path), 0, "damaged compressed data")


@pytest.mark.parametrize(("data", "line", "reason"), [
    (b"", 0, "empty file"), (b" \n\t \xc2\xa0", 0, "empty text"), (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\xff", 0, "binary data"),
    (b"\x7fELF\2\1\1\0\0\0\xff", 0, "binary data"), (bytes(5000), 0, "binary data"), (b"x" * 2000, 0, "line or document too long"),
])  # fmt: skip
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html"])
def test_bad_texts(tmp_path, data, line, reason, name, monkeypatch):
    monkeypatch.setattr(streams, "LINE_LIMIT", 1999 if data[:1] == b"x" else 10**6)
    (tmp_path / name).write_bytes(data)
    assert only(tmp_path / name) == Rejected(str(tmp_path / name), line, reason)


@pytest.mark.parametrize(("markdown", "title", "text"), [
    ("# The *Head*\n\nBody **bold** _it_ `code`.", "The Head", "The Head\n\nBody bold it code."),
    ("intro\n\n## The Heading ##\nBody.", "The Heading", "intro\n\nThe Heading\n\nBody."),
    ("Setext\n======\nA [link](http://a.b 'title') and ![picture](a.png) end.", "Setext", "Setext\n\nA link and  end."),
    ("- one\n- two\n  more\n\n1. three", "", "one\n\ntwo more\n\n1. three"), ("> quoted\n> text", "", "quoted text"),
    ("```python\nx = 1\n# no heading\n```\n\n    indented", "", "x = 1\n# no heading\n\nindented"),
    ("| a | b |\n|---|---|\n| *c* | d |", "", "a | b\n\nc | d"),
    ("a<br>b <b>c</b>\n\n<div><p>In &amp; out</p><script>no()</script></div>", "", "a b c\n\nIn & out"),
    ("---\ntitle: 'From the front'\ndate: 2020\n---\n# Head\ntext", "From the front", "Head\n\ntext"),
    ('+++\ntitle = "From Hugo"\ndate = 2020\n+++\ntext', "From Hugo", "text"),
    ("hard  \nbreak\\\nand soft\nbreak", "", "hard\nbreak\nand soft break"), ("---\n\nno front matter\n\n---\n", "", "no front matter"),
    ("R&amp;D ~~gone~~ 2 \\* 3 <http://a.b>", "", "R&D 2 * 3 http://a.b"),
    ("A lake of 10<sup>6</sup> l, 25 m<sup>2</sup>, CO<sub>2</sub>, 20<sub>16</sub>", "", "A lake of 10⁶ l, 25 m², CO₂, 20_16"),
    ("The price is <del>100</del><ins>80</ins> crowns, ~~90~~ 70", "", "The price is 80 crowns, 70"),
    ("~~All of it~~", "", "~~All of it~~"),
    ("set `<timeout>` to 30, <timeout> to 20 and List<String> to x", "", "set <timeout> to 30, <timeout> to 20 and List<String> to x"),
    ("3. three\n4. four\n\n\n1) one", "", "3. three\n\n4. four\n\n1) one"),
    ("| N | B | D |\n|---|---|---|\n| Ann |  | 1950 |\n| Bob | 1901 |  |", "", "N | B | D\n\nAnn |  | 1950\n\nBob | 1901 |"),
    ("<table><tr><th>Item</th><th>Price</th></tr><tr><td>Chair</td><td>75</td></tr></table>", "", "Item | Price\n\nChair | 75"),
    ("<details><summary>Who?</summary>\n\nIda **Holm**\n\n</details>", "", "Who?\n\nIda Holm"),
    ("<!-- note -->Press <kbd>Ctrl</kbd>+C", "", "Press Ctrl+C"),
    ("![The mill *in* May](a.svg) ![Logo](b.svg) ![The old weir](c.png)", "", "The mill in May"),
    ("snake_case and 2*3*4", "", "snake_case and 2*3*4"), ("", "", ""), ("1. a\n1. b\n4. c", "", "1. a\n\n2. b\n\n4. c"),
])  # fmt: skip
def test_markdown(markdown, title, text):
    assert plain_markdown(markdown) == (title, text)


def test_html(tmp_path):
    pytest.importorskip("trafilatura")
    for name in ("rivers.html", "rivers.htm", "rivers"):
        (tmp_path / name).write_text(PAGE)
        record = only(tmp_path / name)
        assert isinstance(record, SourceDocument)
        assert (record.doc_id, record.title) == (name, "The Rivers of Arvad")
        assert "rises in the northern hills & flows south." in record.text and "In spring the Tirel" in record.text
        assert not any(word in record.text for word in ("About the site", "hidden", "Copyright", "<p>"))


@pytest.mark.parametrize(("data", "title", "words"), [
    (b"<p>A fragment without a head.</p>", "a", "A fragment without a head."), (b"<html><body><p>Short.</p></body></html>", "a", "Short."),
    ('<html><head><meta charset="windows-1251"></head><body><p>Привет, мир.</p></body></html>'.encode("cp1251"), "a", "Привет, мир."),
    ("<html><body><p>Größe und Länge.</p></body></html>".encode("utf-16"), "a", "Größe und Länge."),
    ('<html><head><meta charset="gb2312"></head><body><p>镕镕。</p></body></html>'.encode("gbk"), "a", "镕镕。"),
    ('<html><head><meta charset="utf-16"></head><body><p>Länge.</p></body></html>'.encode(), "a", "Länge."),
    (b'<html><head><meta charset="no-such"></head><body><p>Plain.</p></body></html>', "a", "Plain."),
    (b'<html><head><meta charset="utf-8"></head><body><p>One bad \xff byte.</p></body></html>', "a", "One bad \ufffd byte."),
])  # fmt: skip
def test_pages(tmp_path, data, title, words):
    pytest.importorskip("trafilatura")
    (tmp_path / "a.html").write_bytes(data)
    record = only(tmp_path / "a.html")
    assert isinstance(record, SourceDocument) and record.title == title and words in record.text


def test_html_without_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "trafilatura", None)
    (tmp_path / "a.html").write_text(PAGE)
    with pytest.raises(MissingExtra, match=r"needs the extra 'html'.*pip install 'realm-qa\[html\]'"):
        only(tmp_path / "a.html")


def test_format_overrides_the_name(tmp_path):
    (tmp_path / "notes.txt").write_text(json.dumps({"id": "a", "text": "Alpha."}))
    assert only(tmp_path / "notes.txt", SourceOptions(format="jsonl")) == SourceDocument("a", "", "Alpha.", str(tmp_path / "notes.txt"), 1)
    (tmp_path / "b.log").write_text("[10:00:01] plain")  # which is no list of JSON
    assert only(tmp_path / "b.log") == SourceDocument("b.log", "b", "[10:00:01] plain", str(tmp_path / "b.log"), 0)
