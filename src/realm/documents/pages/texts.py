"""Files that are one document each: plain text, Markdown, HTML."""

import codecs
import html
import itertools
import logging
import quopri
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import regex
from markdown_it import MarkdownIt
from markdown_it.token import Token

from realm.documents import streams
from realm.documents.detect import stem
from realm.documents.limited import Beyond, read_limited
from realm.documents.links import reference_key
from realm.documents.pages.hypertext import blocks_of, headings_of, page_of, text_of, without_frame
from realm.documents.pages.pictures import page_pictures
from realm.documents.pictures import Figure, markdown_figures, may_be_read, told_in_text
from realm.documents.records import BAD_HTML, BINARY, Record, Rejected, SourceOptions, document_or_rejected
from realm.errors import require_package
from realm.text.lines import joined_lines


def read_text(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """A file of plain text, or subtitles without their numbers and times. Its title is its name without the ending."""
    text = _text_of(path)
    if isinstance(text, Rejected):
        yield text
        return
    if "\f" in text:
        text = _PAGE_END.sub(lambda end: end[1] + "\n" * (1 + (end[1] in ".!?:" or not end[3].islower())) + end[2], text)
    text = _ACCENTED.sub(_letter, text) if _TEX.intersection(path.suffixes) else text
    head, *cues = _CUE.split(text.replace("\r\n", "\n"))
    spoken = bool(cues) and (not head.strip(" \n0123456789") or head.startswith("WEBVTT"))
    if card := text.startswith(("BEGIN:VCALENDAR", "BEGIN:VCARD")):
        text = _QUOTED.sub(lambda line: line[1] + quopri.decodestring(line[2].encode("utf-8", "replace")).decode("utf-8", "replace"), text)
        text = _FOLDED.sub(lambda found: "\n" if found[1] in ("n", "N") else found[1] or "", text)
        text = _BYTES.sub("", text)
    yield document_or_rejected(name, stem(path), "\n".join(_said(cues)) if spoken else text, str(path), 0, structured=spoken or card)


def read_markdown(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """A Markdown file without its markup, and its pictures. Its title is that of its front matter, its first heading, or its name."""
    text = _text_of(path)
    if isinstance(text, Rejected):
        yield text
        return
    found = read_limited("markdown", text.encode("utf-8", "replace"), options.document_seconds)
    if isinstance(found, Beyond):
        yield Rejected(str(path), 0, found.reason)
        return
    title, plain, headings, figures = found
    yield document_or_rejected(name, title or stem(path), plain, str(path), 0, structured=True, headings=headings)
    yield from page_pictures([Figure(*figure) for figure in figures], path, name, title or stem(path), options)


def read_html(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The main text of an HTML file, titled as the page or its name, and its pictures. Raises MissingExtra: no extractor is installed."""
    data = streams.read_document(path)
    if isinstance(data, Rejected):
        yield data
        return
    record, title, figures = html_page(data, None, name, stem(path), str(path), 0, options.document_seconds)
    yield record
    yield from page_pictures(figures, path, name, title, options)


_FOLDED = regex.compile(r"\r?\n[ \t]|\\([\\;,nN])")
"""Line ends within a line of a calendar or an address card, and signs that stand for themselves or for a line end."""
_QUOTED = regex.compile(r"(?im)^([^:\n]*;(?:ENCODING=)?QUOTED-PRINTABLE[^:\n]*:)((?:[^\n]*=\r?\n)*+[^\n]*)")
_BYTES = regex.compile(r"(?im)^[^\n]{0,200}?[;=:](?:B|BASE64)[;:,][^\n]*\n?")
_PAGE_END = regex.compile(r"(\S)\s*\n[^\n]*\[Page \w+\]\s*\f\s*[^\n]*\n\s*\n([ \t]*)(?=(\S))")
"""The foot of a page of a standard of the internet and the head of the next, within a sentence or between two."""
_TEX = frozenset((".tex", ".ltx", ".latex", ".bib", ".bbl"))
_MARKS = dict(zip("`'^~=u.\"rHvdckb", bytes.fromhex("00010203040607080a0b0c23272831"), strict=True))
_SPELT = "ss=ß o=ø O=Ø l=ł L=Ł ae=æ AE=Æ oe=œ OE=Œ aa=å AA=Å i=ı j=ȷ dh=ð DH=Ð th=þ TH=Þ dj=đ DJ=Đ"
_LETTERS = dict(pair.split("=") for pair in _SPELT.split())
_ACCENTED = regex.compile(
    r"""(\{)?\\(?:(?P<mark>[`'^~=."]|[urHvdckb](?=[ {\\]))[ ]*+(\{)?+(?P<letter>\p{L}|\\[ij](?![a-zA-Z])(?:\{\}|[ ])?)(?(3)\})"""
    rf"""|(?P<name>{"|".join(_LETTERS)})(?![a-zA-Z])(?:\{{\}}|[ ])?|(?P<sign>[&%$#_]))(?(1)\}})"""
)


def _letter(found: "regex.Match[str]") -> str:
    """A letter or a sign that TeX spells with a command: é, ß, &."""
    if mark := found["mark"]:
        return unicodedata.normalize("NFC", found["letter"].strip("\\{} ") + chr(0x300 + _MARKS[mark]))
    return found["sign"] or _LETTERS[found["name"]]


def _text_of(path: Path) -> str | Rejected:
    data = streams.read_document(path)
    return data if isinstance(data, Rejected) else streams.decoded(data, str(path))


_TIME = r"(?:\d+:)?\d{1,2}:\d\d[.,]\d{1,3}"
_CUE = regex.compile(rf"(?m)^[ \t]*+{_TIME}[ \t]*+(?:-->|,)[ \t]*+{_TIME}[^\n]*+\n?")
_GAP, _TAG = regex.compile(r"\n[ \t]*\n"), regex.compile(r"<[^<>\n]*>|\{\\[^{}\n]*\}")
_SPEAKER = regex.compile(r"<v(?:\.\S+)?[ \t]+([^<>\n]+)>")
_WHOLE = regex.compile(r"[.!?…。！？♪)\]][\"'”’»]*$")
LONGEST_SAID = 300
"""Characters of subtitles without a full stop that are one line."""


def _said(cues: Sequence[str]) -> list[str]:
    """The sentences of subtitles, which continue in the next cue; what is said twice in a row is said once."""
    found, last = list[str](), ""
    for at, cue in enumerate(cues, 1):
        *said, named = _GAP.split(cue)
        said += [] if said and at < len(cues) else [named]  # else it is the next cue that it names
        for line in "\n".join(part for part in said if not part.startswith("NOTE")).split("\n"):
            words = " ".join(html.unescape(_TAG.sub("", _SPEAKER.sub(r"\1: ", line))).split())
            if words and words != last:
                new = not found or _WHOLE.search(found[-1]) or words[0] in "-–—" or "<v" in line or len(found[-1]) > LONGEST_SAID
                found, last = [*found, words] if new else [*found[:-1], f"{found[-1]} {words}"], words
    return found


_FRONT_MATTER = regex.compile(
    r"\A(---|\+{3})[ \t]*\n(?=[\w-]+[ \t]*[:=])(.*?)^(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", regex.DOTALL | regex.MULTILINE
)
_FRONT_TITLE = regex.compile(r"""^title[ \t]*[:=][ \t]*(["']?)(.+?)\1[ \t]*$""", regex.MULTILINE)


def plain_markdown(text: str) -> tuple[str, str]:
    """(title, text) of a Markdown document: words of headings, paragraphs, lists, links, code, without images; HTML is read as in pages,
    tags of no known name are text. The title is that of the front matter, else the first heading, else empty."""
    return marked_down(text)[:2]


def marked_down(text: str | bytes) -> tuple[str, str, list[tuple[int, str]], list[Figure]]:
    """Title and text of a Markdown document as ``plain_markdown`` says, its headings, and its pictures."""
    text = (text if isinstance(text, str) else text.decode("utf-8")).replace("\r\n", "\n")
    title = ""
    if front := _FRONT_MATTER.match(text):
        text = text[front.end() :]
        if named := _FRONT_TITLE.search(front.group(2)):
            title = named.group(2)
    tokens = _parser().parse(text)
    words = [_inline_text(token.children or []).strip() for token in tokens if token.type == "inline"]
    headings = list(_headings(tokens))
    if headings and all(level > headings[0][0] for level, _ in headings[1:]):  # else it is one section of several
        title = title or " ".join(headings[0][1].split())
    return title, "\n\n".join(joined_lines(text) for text in _paragraphs(tokens) if text), headings, markdown_figures(tokens, words)


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _headings(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Level and first line of each heading, of Markdown or of HTML in it."""
    for opening, inside in itertools.pairwise([Token("", "", 0), *tokens]):
        if opening.type == "heading_open" and (words := _inline_text(inside.children or []).strip()):
            yield int(opening.tag[1]), words.partition("\n")[0]
        elif inside.type == "html_block":
            yield from headings_of(blocks_of(inside.content, literal=True))


def _paragraphs(tokens: Sequence[Token]) -> Iterator[str]:
    """The text of each block: an item of a numbered list with its number, the cells of a table's row on one line, an empty one too."""
    cells, counts, number = list[str](), list[int](), ""
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "inline":
            inline = _inline_text(token.children or []).strip()
            if before is not None and before.type in ("td_open", "th_open"):
                cells.append(inline)
            else:
                yield number + inline
                number = ""
        elif token.type == "ordered_list_open":
            counts.append(0)
        elif token.type == "ordered_list_close":
            counts.pop()
        elif token.type == "list_item_open" and token.info:
            counts[-1] = max(counts[-1] + 1, int(token.info))
            number = f"{counts[-1]}{token.markup} "
        elif token.type == "list_item_open":
            number = ""
        elif token.type == "tr_close":
            yield " | ".join(cells).strip() if any(cells) else ""
            cells = []
        elif token.type in ("fence", "code_block"):
            yield token.content.rstrip()
        elif token.type == "html_block":
            yield text_of(blocks_of(token.content, literal=True))


_PLAIN_TOKENS = {"softbreak": " ", "hardbreak": "\n"}
_MARKED_TOKENS = {"softbreak": " ", "hardbreak": "<br>", "s_open": "<s>", "s_close": "</s>"}


_WORDS = ("text", "code_inline")


def _inline_text(children: Sequence[Token]) -> str:
    """The words of a paragraph, with a space where the author only wrapped a line; tags and deletions have their say (hypertext.py)."""
    for token in children:
        if token.type == "image" and not may_be_read(str(token.attrs.get("src", "")).strip()):
            token.type, token.content = "text", told_in_text(_inline_text(token.children or []))
    for before, token, after in zip(children, children[1:], children[2:], strict=False):
        if token.tag in ("em", "strong") and before.content[-1:].isdigit() and after.content[:1].isdigit():
            token.type, token.content = "text", token.markup  # 2*3*4
    if not any(token.type in ("html_inline", "s_open") for token in children):
        return "".join(token.content if token.type in _WORDS else _PLAIN_TOKENS.get(token.type, "") for token in children)
    marked = {"html_inline": lambda token: token.content, **dict.fromkeys(_WORDS, lambda token: html.escape(token.content))}
    said = (marked[token.type](token) if token.type in marked else _MARKED_TOKENS.get(token.type, "") for token in children)
    return text_of(blocks_of("".join(said), literal=True))


_META_CHARSET = regex.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)""", regex.IGNORECASE)
_META_WITHIN = 4096
_NO_CHARSETS = ("utf-16", "utf-32", "utf-7", "punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem")
"""Python's names of encodings that no page has: it could not be read so far, or no browser knows them (and some take quadratic time)."""
_READ_AS = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs", "iso8859-9": "cp1254"}
"""Encodings that browsers read as larger ones, since pages that state them use signs of those."""


def html_page(
    data: bytes, charset: str | None, doc_id: str, title: str, path: str, line: int, seconds: float
) -> tuple[Record, str, list[Figure]]:
    """A page as a document, its title, and the pictures that it shows. ``charset`` is known beside the page, ``title`` for a page that has
    none, ``seconds`` are of computing. Raises MissingExtra: the extractor is not installed."""
    page = _decoded(data, charset)
    if page is None or not streams.is_text(page):
        return Rejected(path, line, BINARY), title, []
    require_package("trafilatura", "reading HTML", "html")
    found = read_limited("html", page.encode("utf-8", "replace"), seconds, BAD_HTML)
    if isinstance(found, Beyond):
        return Rejected(path, line, found.reason), title, []
    found_title, text, headings, anchors, figures = found
    title, shown = found_title.rstrip(" ¶🔗") or title, [Figure(*figure) for figure in figures]
    record = document_or_rejected(doc_id, title, text, path, line, structured=True, headings=headings)
    if isinstance(record, Rejected):
        return record, title, shown
    links = ((words, reference_key(doc_id, reference)) for words, reference in anchors)
    return record.linked((words, key) for words, key in links if key is not None), title, shown


def _decoded(data: bytes, charset: str | None) -> str | None:
    """Text by byte order mark, then as declared with bad bytes replaced, as browsers do; else as it looks like; None of binary data."""
    if marked := streams.encoding_of(data):
        return data.decode("utf-8-sig" if marked == "utf-8" else marked, "replace")
    inside = _META_CHARSET.search(data, endpos=_META_WITHIN)
    for declared in (charset, inside.group(1).decode("ascii", "replace") if inside else None):
        try:
            # A page that a regular expression could read is not UTF-16, whatever it says.
            if declared and (name := codecs.lookup(declared).name) not in _NO_CHARSETS:
                return data.decode(_READ_AS.get(name, name), "replace")
        except (LookupError, ValueError):
            continue
    text = streams.decoded(data, "")
    return text if isinstance(text, str) else None


def main_text(data: bytes) -> tuple[str, str, list[tuple[int, str]], list[tuple[str, str]], list[Figure]]:
    """(title, text, headings, links, pictures) of a page in UTF-8, without what frames it, unless trafilatura finds it in the main part."""
    import trafilatura

    page = data.decode("utf-8")
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # it logs a line for every page without text; those are counted here
    whole = page if "<html" in page[:_META_WITHIN].lower() else f"<html><body>{page}</body></html>"
    found: Any = trafilatura.bare_extraction(whole, with_metadata=True, include_comments=False)
    title, main = ("", "") if found is None else (found.title, found.text)
    read, links, figures = page_of(page)
    blocks = without_frame(read, main or "")
    return title or "", text_of(blocks), headings_of(blocks), links, figures
