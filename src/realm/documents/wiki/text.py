"""Wikitext to plain prose, in time linear in its length.

Order: elements (comments, references, formulas ...), closing sections, double brackets, single brackets, tags, then line by line headings,
lists and quotes, and entities at last. A full parser has no place here: after these steps four lines in 13 MB of real dumps held any
markup, and mwparserfromhell mends none of them (benchmarks/results).

Double brackets nest as they come, in two walks: the first pairs them on a stack, the second writes the text and asks what a template or
link becomes. What is dropped is skipped; nesting below ``DEPTH`` is dropped, so that no character is copied more than ``DEPTH`` times."""

import html
import json
import re
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from realm.documents.wiki.elements import CAPTION, ROW, captioned, table_text, with_tables, without_apart, without_elements, without_tags
from realm.documents.wiki.names import CLOSING_SECTIONS, FRAMES, SIDES, Namespaces, page_name
from realm.documents.wiki.templates import template_writer

# MediaWiki's own limit for templates in templates.
DEPTH = 40
# "|}" at the start of a line ends a table, but "|}}" is an empty last argument; "|}}}" is a table's end and then a template's.
_BRACKETS = re.compile(r"\{\{+|\}\}+|\[\[|\]\]|\n[ \t:]*\{\||\n[ \t]*\|\}(?=\}\}(?!\})|(?!\}))")
_HEAD = re.compile(r"[^|{}\[\]<]{0,200}")

TEMPLATE, LINK, TABLE = "{{", "[[", "{|"


class Span(NamedTuple):
    """A pair of brackets: the content is ``text[start:stop]``, the whole ``text[open:close]``."""

    open: int
    start: int
    stop: int
    close: int
    kind: str


class _Pairing:
    """The stack of the first walk."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._frames: list[tuple[str, int, int]] = []  # kind, start and end of the opener
        self._outer: list[int] = []  # those of the frames that are templates or tables
        self._braces = 0  # those that are templates

    def open(self, kind: str, start: int, end: int) -> None:
        if kind != LINK:
            self._outer.append(len(self._frames))
            self._braces += kind == TEMPLATE
        self._frames.append((kind, start, end))

    def close_link(self, start: int, end: int) -> None:
        if self._frames and self._frames[-1][0] == LINK:
            _, opener, content = self._frames.pop()
            self.spans.append(Span(opener, content, start, end, LINK))

    def close_table(self, start: int, end: int) -> None:
        """A table ends unless a template was opened in it; links left open in it are forgotten."""
        if self._outer and self._frames[self._outer[-1]][0] == TABLE:
            _, opener, content = self._frames[self._outer[-1]]
            del self._frames[self._outer.pop() :]
            self.spans.append(Span(opener, content, start, end, TABLE))

    def close_braces(self, start: int, end: int) -> None:
        """A run ends the nearest templates, three braces at a time where both sides have them; what was opened in them is forgotten."""
        while self._braces and end - start >= 2:
            while self._frames[self._outer[-1]][0] == TABLE:
                self._outer.pop()
            index = self._outer[-1]
            _, opener, content = self._frames[index]
            width = 3 if content - opener >= 3 and end - start >= 3 else 2
            self.spans.append(Span(content - width, content, start, start + width, TEMPLATE))
            del self._frames[index:]
            start += width
            if content - width - opener >= 2:
                self._frames.append((TEMPLATE, opener, content - width))
            else:
                self._outer.pop()
                self._braces -= 1


def pair_brackets(text: str) -> list[Span]:
    """All pairs, in order of their openers. Every bracket is pushed and popped at most once."""
    pairing = _Pairing()
    for match in _BRACKETS.finditer(text):
        token, (start, end) = match[0], match.span()
        if token[0] == "[":
            pairing.open(LINK, start, end)
        elif token[0] == "]":
            pairing.close_link(start, end)
        elif token[0] == "{":
            pairing.open(TEMPLATE, start, end)
        elif token[0] == "}":
            pairing.close_braces(start, end)
        elif token[-1] == "|":
            pairing.open(TABLE, start + 1, end)
        else:
            pairing.close_table(start, end)
    return sorted(pairing.spans)


class BracketWriter:
    """The second walk: writes wikitext without comments and dropped elements, with templates, links and tables replaced.
    ``template`` is given the name of ``{{name|arguments}}``, ``link`` the target of ``[[target|label]]``: they return what writes it from
    its rendered content, or None to drop it."""

    def __init__(self, text: str, template: "Chooser", link: "Chooser"):
        self._text = text
        self._spans = pair_brackets(text)
        self._openers = [span.open for span in self._spans]
        self._choosers = {TEMPLATE: template, LINK: link}
        self.copied = 0  # characters: what tests count to see that the work is linear

    def render(self) -> str:
        return self._render(0, len(self._text), 0, 0)

    def _render(self, start: int, stop: int, index: int, depth: int) -> str:
        """``text[start:stop]``, whose first pair may be that of ``index``."""
        pieces, at = [], start
        while index < len(self._spans) and self._openers[index] < stop:
            span = self._spans[index]
            pieces.append(self._text[at : span.open])
            late = self._ends_late(span)
            pieces.append(self._replacement(span, index, depth, "]" * late))
            at = span.close + late
            index = bisect_left(self._openers, span.stop, index + 1)
        pieces.append(self._text[at:stop])
        self.copied += stop - start
        return "".join(pieces)

    def _ends_late(self, span: Span) -> bool:
        """Return whether of "]]]" the first bracket closed an external link in the caption of a file, or in a label."""
        if span.kind != LINK or self._text[span.close : span.close + 1] != "]":
            return False
        return self._text.rfind("[", span.start, span.stop) > self._text.rfind("]", span.start, span.stop)

    def _replacement(self, span: Span, index: int, depth: int, late: str) -> str:
        if span.start - span.open == 3 or depth == DEPTH:
            return ""
        if span.kind == TABLE:
            return table_text(self._render(span.start, span.stop, index + 1, depth + 1))
        head = _HEAD.match(self._text, span.start, span.stop)
        write = self._choosers[span.kind](head[0].strip() if head else "")
        if write is None:
            return ""
        return write(self._render(span.start, span.stop, index + 1, depth + 1) + late)


Chooser = Callable[[str], Callable[[str], str] | None]


_HEADING = re.compile(r"^=[^\n]*=[ \t]*$", re.MULTILINE)
# No class admits its own opener: every character is read from one opener only.
_EXTERNAL = re.compile(r"\[(?:https?:|ftp:|mailto:|//)[^\s\[\]]*[ \t]*([^\[\]\n]*)\]", re.IGNORECASE)
_VARIANT = re.compile(r"-\{([^{}]*)\}-")
_SWITCH = re.compile(r"__[A-Z]{3,24}__")
_QUOTES = re.compile(r"('{2,})")
_SPACES = re.compile(r"[ \t\u00a0\u2002-\u200a\u202f\u3000]{2,}|[\t\u00a0\u2002-\u200a\u202f]")
# What dropped templates leave behind: brackets with nothing but separators, separators after an opening bracket.
_HOLLOW = re.compile(r" ?[(（][ ,;:、，；/]*[)）]")
_TRAILING = re.compile(r"(?<=[^ ,;:、，；])[ ,;:、，；]+(?=[)）])")
_LEADING = re.compile(r"(?<=[(（])[ ,;:、，；]+(?=\S)")
_COMMAS = re.compile(r",?(?: ,)+(?= )")
_PAGE_NAMES = frozenset(["pagename", "basepagename", "fullpagename", "pagenamebase"])
_STOPS = frozenset([".", ",", ";", "!", "?", "。"])
_LEADING_MARKS = re.compile(r"^(?:[,;.] )+")
# Coordinates that are all of a line belong to the margin.
_PLACE = re.compile(r"(?:[\d.]+[°′″])+[NSEW] ?(?:[\d.]+[°′″])+[NSEW]|-?\d+\.\d+, -?\d+\.\d+")
_OPTION = re.compile(r"[\w-]{3,12}=.*|(?:\d*x)?\d+ ?(?:px|بك|пкс|像素|ピクセル|픽셀)|", re.DOTALL)
_REMAINS = re.compile(r"[\[\]{}|]{2,}|'{3,}|</?ref[^<>]*>?", re.IGNORECASE)
_MARKS = ("{{", "}}", "[[", "]]", "{|", "|}", "'''", "<ref", "</ref")


def clean_wikitext(text: str, namespaces: Namespaces | None = None, title: str = "", links: list[tuple[str, str]] | None = None) -> str:
    """The prose of a page: paragraphs and headings apart by an empty line, list items one a line.

    Links keep their labels, tables their rows, framed files their captions. References, code and closing sections go, templates too except
    infoboxes and those that stand for words or values; ``title`` is what ``{{PAGENAME}}`` becomes. No double bracket, ``'''``, ``{|``
    or ``<ref`` is left, whatever the input. ``links``, if given, gets the words and the title of each link in what is kept."""
    namespaces = namespaces or Namespaces()
    text = without_closing_sections(with_tables(without_elements("\n" + text)))
    text = BracketWriter(text, _template_chooser(title, namespaces), _link_chooser(namespaces, links)).render()
    text = _SWITCH.sub("", _EXTERNAL.sub(r"\1", _VARIANT.sub(_variant, text)))
    return "\n\n".join(_Prose().read(without_tags(text)))


def cleaned_page(data: bytes) -> tuple[str, list[tuple[str, str]]]:
    """Text and links of a page for the limited child: JSON of its wikitext, its title and the namespaces of its wiki."""
    text, title, namespaces = json.loads(data or b'["", "", []]')
    links: list[tuple[str, str]] = []
    return clean_wikitext(text, Namespaces(dict(namespaces)), title, links), links


def without_closing_sections(text: str) -> str:
    """Leave out the sections that hold references and links, with their subsections."""
    pieces, at, dropped = [], 0, 0
    for match in _HEADING.finditer(text):
        level, title = heading(match[0])
        if dropped and level <= dropped:
            at, dropped = match.start(), 0
        if not dropped and title.strip(" ':").lower() in CLOSING_SECTIONS:
            pieces.append(text[at : match.start()])
            dropped = level
    return "".join(pieces) if dropped else "".join(pieces) + text[at:]


def heading(line: str) -> tuple[int, str]:
    """Level and title of a heading's line; level 0 where it is none."""
    line = line.strip()
    if len(line) < 3 or line[0] != "=" or line[-1] != "=":
        return 0, ""
    before = sum(1 for _ in takewhile("=".__eq__, line))
    after = sum(1 for _ in takewhile("=".__eq__, reversed(line)))
    level = min(before, after, (len(line) - 1) // 2, 6)
    return level, line[level : len(line) - level].strip()


def _template_chooser(title: str, namespaces: Namespaces) -> Chooser:
    def choose(name: str) -> Callable[[str], str] | None:
        lower = name.lower()
        if lower in _PAGE_NAMES:
            return lambda content: title
        if lower.startswith("formatnum:") and not namespaces.groups_by_comma:
            return lambda content: content.partition(":")[2].partition("|")[0].strip()  # how this wiki groups is not known
        return template_writer(name)

    return choose


def _link_chooser(namespaces: Namespaces, links: list[tuple[str, str]] | None) -> Chooser:
    kept: list[tuple[str, str]] = [] if links is None else links

    def choose(target: str) -> Callable[[str], str] | None:
        if namespaces.drops(target):
            return partial(_caption, kept, len(kept))
        name = "" if links is None else page_name(target)
        if links is None or not name:
            return _label

        def write(content: str) -> str:
            label = _label(content)
            links.append((without_quotes(label), name))
            return label

        return write

    return choose


def _caption(links: list[tuple[str, str]], known: int, content: str) -> str:
    """Text that ``[[File:content]]`` shows under a picture in a frame; empty, with no more links than were ``known``, of one within a line
    and of what is no file."""
    options = [option.strip() for option in content.split("|")[1:]]
    said = [option for option in options if option.lower() not in FRAMES | SIDES and not _OPTION.fullmatch(option)]
    if said and any(option.lower() in FRAMES for option in options):
        return captioned(said[-1])
    del links[known:]
    return ""


def _label(content: str) -> str:
    """Text that ``[[content]]`` shows: its label, or the target; ``[[Bar (tool)|]]`` shows "Bar"."""
    target, bar, label = content.partition("|")
    if not bar:
        return content.strip().removeprefix(":")
    return label if label.strip() else target.partition(" (")[0].rpartition(":")[2]


def _variant(match: re.Match[str]) -> str:
    """The first form of Chinese text that is written in several: ``-{zh-hans:计算机; zh-hant:電腦}-``."""
    flags, bar, rest = match[1].partition("|")
    if bar and flags.strip() in ("T", "H", "-"):
        return ""
    first = (rest if bar else match[1]).split(";")[0]
    return first.partition(":")[2] or first


def without_quotes(line: str) -> str:
    """Remove the quotes of bold and italic, by MediaWiki's rules for apostrophes beside them."""
    if "''" not in line:
        return line
    parts = _QUOTES.split(line)
    lengths = [len(run) for run in parts[1::2]]
    bold = sum(length != 2 for length in lengths)
    italic = sum(length == 2 or length >= 5 for length in lengths)
    apostrophe = _apostrophe(parts) if bold % 2 and italic % 2 else 0
    for at in range(1, len(parts), 2):
        length = len(parts[at])
        kept = at == apostrophe or (length == 4 and (parts[at - 1][-1:].isalnum() or parts[at + 1][:1].isalnum()))
        parts[at] = "'" if kept else ""  # six and more, or four in a space: something between them was dropped
    return "".join(parts)


def _apostrophe(parts: list[str]) -> int:
    """Place at which a run of three is an apostrophe and italics: after one letter (l'''amour''), else after a word; 0 for nowhere."""
    bolds = [at for at in range(1, len(parts), 2) if len(parts[at]) == 3]
    single = [at for at in bolds if parts[at - 1][-2:-1] in ("", " ") and parts[at - 1][-1:].strip()]
    words = [at for at in bolds if parts[at - 1][-1:].strip()]
    return (single or words or [0])[0]


class _Prose:
    """Collects lines into paragraphs; headings wait until there is text below them."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._lines: list[str] = []
        self._headings: list[tuple[int, str]] = []
        self._in_list = False
        self._counts: dict[str, int] = {}
        self._captions: list[str] = []

    def read(self, text: str) -> list[str]:
        for line in text.split("\n"):
            parts = line.split(CAPTION)
            self._take("".join(parts[::2]))
            self._captions += filter(None, map(_plain, parts[1::2]))
            if not any(map(str.strip, parts[::2])):
                self._end()
        self._end()
        return self._done

    def _take(self, line: str) -> None:
        bare = line.strip()
        if not bare:
            self._counts = {}
            return
        level, title = heading(bare) if bare[0] == "=" else (0, "")
        if level:
            self._end()
            while self._headings and self._headings[-1][0] >= level:
                self._headings.pop()
            title = _plain(title)
            self._headings.append((level, title if any(map(str.isalnum, title)) else ""))
        elif bare[0] == ROW:
            self._add(bare[1:], row=True)
        elif bare[0] == "|" or bare.startswith(("{|", "----")) or (bare[0] == "!" and "!!" in bare):
            self._end()  # a row of a table that never ended
        else:
            self._add(bare, listed=bare[0] in "*#:;" or line[0] == " ")

    def _add(self, bare: str, *, listed: bool = True, row: bool = False) -> None:
        """Lines of one paragraph are one line; list items, rows of tables, indented and preformatted lines stay apart."""
        text = _plain(bare.lstrip("*#:; ") if listed and not row else bare)
        marks = "" if row else bare[: len(bare) - len(bare.lstrip("*#:;"))]
        self._counts = {item: count for item, count in self._counts.items() if marks.startswith(item)}
        if marks.endswith("#") and text:
            self._counts[marks] = self._counts.get(marks, 0) + 1
            text = f"{self._counts[marks]}. {text}"
        if text in _STOPS and self._lines and not listed and not self._in_list:
            self._lines[-1] += text  # what stood between was dropped
        if not any(map(str.isalnum, text)) or _PLACE.fullmatch(text):
            return
        if listed != self._in_list:
            self._end()
        self._in_list = listed
        self._lines.append(text if self._lines and not listed else _LEADING_MARKS.sub("", text))

    def _end(self) -> None:
        if self._lines or self._captions:
            self._done += [title for _, title in self._headings if title]
            self._headings = []
        if self._lines:
            text = ("\n" if self._in_list else " ").join(self._lines)
            self._done.append(_COMMAS.sub(",", text) if " ," in text else text)
            self._lines = []
        self._done += self._captions
        self._captions = []


def _plain(line: str) -> str:
    """One line without quotes, entities, hollow brackets and whatever markup is left."""
    line = without_quotes(line)
    line = html.unescape(line) if "&" in line else line
    line = without_apart(line)
    line = _SPACES.sub(" ", line)
    if "(" in line or "（" in line:
        line = _LEADING.sub("", _TRAILING.sub("", _HOLLOW.sub("", line)))
    if any(mark in line for mark in _MARKS):
        line = _SPACES.sub(" ", _REMAINS.sub(" ", line))
    return line.strip()
