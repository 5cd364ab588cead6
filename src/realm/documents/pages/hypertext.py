"""HTML as blocks of text: a walk that visits every container, keeps the rows of tables, the numbers of lists and what marks mean, and knows
of each block whether it looks like the frame of a site instead of its content. On its way it collects links and pictures."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

import regex

from realm.documents.links import MOST_LINKS
from realm.documents.outline import PERMALINKS
from realm.documents.pictures import LEAST_SIDE, MOST_PICTURES, Figure, around, may_be_read, told_in_text
from realm.text.lines import joined_lines

_BLOCKS_SPELLED = """address article aside blockquote body button caption center dd details dialog dir div dl dt fieldset figcaption figure
footer form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main menu nav ol optgroup option p pre search section select summary table
tbody td textarea tfoot th thead tr ul"""
_BLOCKS = frozenset(_BLOCKS_SPELLED.split())
_HIDDEN = frozenset(["canvas", "head", "iframe", "metadata", "rp", "script", "style", "template", "title"])
_VOID = frozenset(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"])
_INLINE_SPELLED = """a abbr acronym b bdi bdo big cite code data datalist del dfn em font i ins kbd label map mark math meter nobr noframes
noscript object output picture progress q rb rt ruby s samp slot small span strike strong sub sup svg time tt u var video audio"""
_INLINE = frozenset(_INLINE_SPELLED.split())
_KNOWN = _BLOCKS | _HIDDEN | _VOID | _INLINE
_LISTS = frozenset(["ol", "ul", "menu", "dir"])
_CLOSED_BY_NEXT = frozenset(["p", "li", "td", "th", "tr", "dt", "dd", "option"])
_DELETED = frozenset(["del", "s", "strike"])
_MOVED = frozenset(["sup", "sub", "mrow"])
_SAID_BY_STYLE = {"line-through": "s", "vertical-align:super": "sup", "vertical-align:sub": "sub"}
_SAID_BY_STYLE |= {"display:table-cell": "td", "display:table-row": "tr", "display:table": "table", "display:block": "div"}
"""Parts of a style, its blanks left out, and the tag that would say the same."""
_SAID_BY_ROLE = {"row": "tr", "cell": "td", "gridcell": "td", "columnheader": "th", "rowheader": "th", "table": "table", "grid": "table"}
_SAID_OTHERWISE = {"xmp": "pre", "listing": "pre", "plaintext": "pre", "marquee": "div", "rtc": "rt"}
_STYLED = frozenset(["b", "div", "em", "font", "i", "label", "small", "span", "strong", "u"])
_MATH = {"mfrac": ("mrow", "mrow"), "msup": ("", "sup"), "msub": ("", "sub"), "msubsup": ("", "sub", "sup"), "munder": ("", "sub")}
_MATH |= {"mover": ("", "sup"), "munderover": ("", "sub", "sup"), "msqrt": ("mrow",), "semantics": ("", "template", "template")}
"""Tags of formulas whose children mean something by their order, and the tags that say what."""
_SIGNS = {"q": ("“", "”"), "msqrt": ("√", "")}
_UNSEEN_INPUTS = frozenset(["hidden", "password", "submit", "reset", "button", "image", "checkbox", "radio", "file"])
_FRAME_TAGS, _FRAME_ROLES = frozenset(["nav"]), frozenset(["navigation", "search"])
_FRAME_NAMES = regex.compile(
    r"(?i)(?:^|[\s_-])(?:nav|navbar|navigation|breadcrumbs?|cookies?|consent|sharing|social|newsletter|subscribe|log-?in|ads?"
    r"|pagination|comments?)(?:[\s_-]|$)"
)
_FOOT_ROLES, _FOOT_NAMES = frozenset(["contentinfo", "banner"]), regex.compile(r"(?i)(?:^|[\s_-])footer(?:[\s_-]|$)")
_OF_A_FOOT = regex.compile(r"(?i)(?:©|\(c\)|copyright|all rights reserved|powered by)|[^\s\d]+(?:\s[^\s\d]+)?$")
"""A line of a foot that says nothing: a copyright, or one or two words."""
_LABEL = regex.compile(r"[^\d:.!?]*")
_CLOSING = regex.compile(r"</([\w-]+)")
_BLANKS = regex.compile(r" {2,}")
_SPACES = regex.compile(r"[ \t\n\r\f]+")
DEEPEST = 20
"""Tables in tables, and raised text in raised text; what is deeper is read as the text that it is in."""
LONGEST_ROW = 300
"""Characters of a table's row whose cells hold several paragraphs."""
MOST_SPANNED = 50
"""Columns or rows that one cell of a table takes at most."""
_SUPERSCRIPTS = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_ROMAN_LETTERS = ("m", "cm", "d", "cd", "c", "xc", "l", "xl", "x", "ix", "v", "iv", "i")
_ROMAN = tuple(zip(_ROMAN_LETTERS, (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1), strict=True))
_ORDINAL = regex.compile(r"(?i)st|nd|rd|th|er|re|e|ère|ème|ers|res|es|o|a|os|as|le|lle|me|mes|\[[^\]]*\]|\([^)]*\)|[*†‡]+|tm|®|™")


def raised(text: str, before: str) -> str:
    """Superscript text behind some other: 10⁶, 2^n, x^(n+1), but 1er and 2019[3]."""
    text = text.strip()
    if not text.strip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻"):
        return text
    if regex.fullmatch(r"[+\-−]?\d+[+\-−]?|[+\-−]", text):
        return text.translate(_SUPERSCRIPTS)
    if not before[-1:].strip() or _ORDINAL.fullmatch(text):
        return text
    return f"^{text}" if len(text) == 1 else f"^({text})"


def lowered(text: str, before: str) -> str:
    """Subscript text behind some other: CO₂, 20_16, x_i."""
    text = text.strip()
    figure = before[-1:].isdigit()
    if text.isdigit() and text.isascii() and not figure:
        return text.translate(_SUBSCRIPTS)
    if not text or not before[-1:].strip() or len(text) > 6:
        return text
    return f"_{text}" if regex.fullmatch(r"\w+", text) else f"_({text})"


def numeral(count: int, form: str) -> str:
    """The number of an item as ``form`` writes the first: 1, a, A, i or I."""
    text, left = "", min(count, 3999)
    if form in ("a", "A"):
        text = chr(ord("a") + (count - 1) % 26) * (1 + (count - 1) // 26)
    elif form in ("i", "I"):
        for letters, value in _ROMAN:
            text, left = text + letters * (left // value), left % value
    return (text if form.islower() else text.upper()) or str(count)


@dataclass(frozen=True)
class Block:
    """A paragraph, a heading, an item or a row. ``framing``: it stands in what frames a page, or is a bare link; ``level``: a heading's."""

    text: str
    framing: bool
    level: int = 0


@dataclass
class _Table:
    """A table that is being read: the cells of its row so far, each of some blocks, and cells that reach down into the rows below."""

    cells: list[list[Block]] = field(default_factory=list)
    cell: list[Block] | None = None
    reaching: dict[int, tuple[int, list[Block]]] = field(default_factory=dict)

    def begin_cell(self, across: int, down: int) -> None:
        self._reach_down()
        self.cell = []
        if down > 1:
            self.reaching[len(self.cells)] = down, self.cell
        self.cells += [self.cell, *([] for _ in range(across - 1))]

    def end_row(self) -> list[Block]:
        """The row as one block, its cells apart; where cells are long and of several blocks, as in pages laid out by tables, those."""
        if not self.cells:
            return []
        self._reach_down()
        self.reaching = {at: (left - 1, blocks) for at, (left, blocks) in self.reaching.items() if left > 1}
        cells, self.cells, self.cell = self.cells, [], None
        found = [block for cell in cells for block in cell]
        if len(found) > len(cells) and sum(len(block.text) for block in found) > LONGEST_ROW:
            return found
        text = " | ".join(" ".join(block.text for block in cell) for cell in cells).strip()
        return [Block(text, all(block.framing for block in found))] if found else []

    def _reach_down(self) -> None:
        while (reaching := self.reaching.get(len(self.cells))) is not None:
            self.cells.append(reaching[1])


@dataclass
class _Open:
    """An element that is open: its tag, the one that says what it means, whether it frames the page, and how many children it had."""

    tag: str
    name: str
    frames: bool
    children: int = 0


class _Walk(HTMLParser):
    """Collects the blocks of a page or a fragment; ``literal``: tags of unknown names are text, as in Markdown that says <timeout>."""

    def __init__(self, *, literal: bool):
        super().__init__()
        self.blocks: list[Block] = []
        self._literal, self._closing = literal, frozenset[str]()
        self._open: list[_Open] = []
        self._tags: Counter[str] = Counter()
        self._names: Counter[str] = Counter()
        self._tables: list[_Table] = []
        self._lists: list[tuple[int, int, str] | None] = []
        self._parts: list[str] = []
        self._deleted: list[str] = []
        self._moved: list[tuple[int, str]] = []
        self._prefix, self._in_term = "", False
        self._readings: list[str] = []
        self._term: Block | None = None
        self._linked = self._framing = self._hidden = 0
        self.links: dict[tuple[str, str], None] = {}
        self._reference, self._words = "", list[str]()
        self._pictures: dict[str, tuple[list[str], int]] = {}
        self._paragraphs: list[str] = []
        self._shown: list[list[str]] = []
        self._pictured = False
        self.says_pictures = False

    def feed(self, data: str) -> None:
        if self._literal:
            self._closing = frozenset(_CLOSING.findall(data.lower()))
        super().feed(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._is_text(tag, attrs):
            return self.handle_data(self.get_starttag_text() or "")
        if (tag in _CLOSED_BY_NEXT and self._open and self._open[-1].tag == tag) or (tag == "a" and self._names["a"]):
            self.handle_endtag(tag)
        attributes = dict(attrs)
        name = self._meant(tag, attributes)
        if name in _BLOCKS or (self._names["svg"] and tag != "tspan"):
            self._flush()
        if tag not in _VOID:
            self._open.append(_Open(tag, name, _frames(name, attributes)))
            self._count(self._open[-1], 1)
        self._begin(name, attributes)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if not self._is_text(tag, attrs):
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._is_text(tag, ()) and not self._tags[tag]:
            return self.handle_data(f"</{tag}>")
        while self._tags[tag]:
            opened = self._open.pop()
            self._end(opened.name)
            self._count(opened, -1)
            if opened.tag == tag:
                return

    def unknown_decl(self, data: str) -> None:
        if data.startswith("CDATA["):
            self.handle_data(data.removeprefix("CDATA["))

    def handle_data(self, data: str) -> None:
        if self._reference:
            self._words.append(data)
        if self._hidden or ("#" in self._reference and data.strip() in {*PERMALINKS}):
            return
        text = data if self._names["pre"] else _SPACES.sub(" ", data)
        (self._readings if self._names["rt"] else self._deleted if any(self._names[tag] for tag in _DELETED) else self._parts).append(text)
        self._linked += len(text.strip()) if self._names["a"] else 0

    def finish(self) -> list[Block]:
        self.close()
        self._flush()
        while self._tables:
            self._end_row()
            self._tables.pop()
        return self.blocks

    def figures(self) -> list[Figure]:
        """The pictures in their order, each reference once, ``MOST_PICTURES`` at most; no icons and no vector graphics."""
        return [Figure(reference, said, around(self._paragraphs, at)) for reference, (said, at) in self._pictures.items()]

    def _is_text(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> bool:
        """Tell a tag that is none: in Markdown one of no known name, or that HTML would close, as in "<time-out>" or "a<b and c>d"."""
        if not self._literal or self._names["svg"]:
            return False
        words = tag in _INLINE and attrs and all(value is None for _, value in attrs)
        return (words or "-" in tag) and tag not in self._closing if tag in _KNOWN or "-" in tag else True

    def _meant(self, tag: str, attributes: dict[str, str | None]) -> str:
        """The tag that says what an element means: by its style, by its place in a formula, or its own."""
        if tag == "template" and "shadowrootmode" in attributes:
            return "div"
        if attributes.get("role") in _FOOT_ROLES or _FOOT_NAMES.search(f"{attributes.get('class') or ''} {attributes.get('id') or ''}"):
            return "footer" if tag in _BLOCKS else tag
        if "noteref" in f"{attributes.get('epub:type')} {attributes.get('role')}":
            return "sup"
        parent = self._open[-1] if self._open else None
        if parent is not None and parent.tag in _MATH:
            parent.children += 1
            if parent.tag == "mfrac" and parent.children == 2:
                self._parts.append("/")
            places = _MATH[parent.tag]
            return (places[parent.children - 1] if parent.children <= len(places) else "") or tag
        if tag not in _STYLED:
            return _SAID_OTHERWISE.get(tag, tag)
        style = "".join((attributes.get("style") or "").lower().split())
        styled = next((name for said, name in _SAID_BY_STYLE.items() if said in style), tag)
        return _SAID_BY_ROLE.get(attributes.get("role") or "", styled)

    def _count(self, opened: "_Open", by: int) -> None:
        self._tags[opened.tag] += by
        self._names[opened.name] += by
        self._hidden += by * (opened.name in _HIDDEN)
        self._framing += by * opened.frames

    def _begin(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag in _SIGNS:
            self._parts.append(_SIGNS[tag][0])
        if tag == "br":
            self._parts.append("\n")
        elif "-" in tag and "".join(self._parts[-1:])[-1:].strip(" \n([{\"'“‘"):
            self._parts.append(" ")  # custom elements are boxes of a page more often than parts of a word
        elif tag in _MOVED and len(self._moved) < DEEPEST:
            self._moved.append((len(self._parts), tag))
        elif tag == "ol":
            step = -1 if "reversed" in attributes else 1
            counted = step > 0 or attributes.get("start")
            first = _number(attributes.get("start"), 1, 10**6) - step
            self._lists.append((first, step, attributes.get("type") or "1") if counted else None)
        elif tag in _LISTS:
            self._lists.append(None)
        elif tag == "li" and self._lists and (before := self._lists[-1]) is not None:
            count, step, form = before
            count = _number(attributes.get("value"), count + step, 10**6)
            self._lists[-1], self._prefix = (count, step, form), f"{numeral(count, form)}. "
        elif tag == "table" and len(self._tables) < DEEPEST:
            self._tables.append(_Table())
        elif tag == "tr" and self._tables:
            self._end_row()
        elif tag == "tr":  # of a fragment
            self._tables.append(_Table())
        elif tag in ("td", "th") and self._tables:
            spans = (_number(attributes.get(name), 1, MOST_SPANNED) for name in ("colspan", "rowspan"))
            self._tables[-1].begin_cell(*spans)
        elif tag == "input" and attributes.get("type") in ("checkbox", "radio") and not self._hidden:
            self._parts.append("☑ " if "checked" in attributes else "☐ ")
        elif tag == "input" and attributes.get("type") not in _UNSEEN_INPUTS and not self._hidden:
            self._parts.append(f" {attributes.get('value') or ''}")
        elif tag == "optgroup":
            self._parts.append(f"{attributes.get('label') or ''} ")
        elif tag == "dt":
            self._in_term = True
        elif tag == "dd":
            settled, self._in_term = self._settled(), False
            if self._term is not None and settled and settled[-1] is self._term:
                self._prefix = f"{settled.pop().text.rstrip(':')}: "
        elif tag == "a":
            self._reference, self._words = attributes.get("href") or "", []
        elif tag == "figure":
            self._shown = []
        elif tag == "iframe" and (inside := attributes.get("srcdoc")):
            self._settled().extend(blocks_of(inside))
        elif tag == "img" and self.says_pictures:
            said = attributes.get("alt") or ""
            self._parts.append(said if len(said) == 1 else f" {said} ")  # a large first letter of a word
        elif tag == "img":
            self._show(attributes)

    def _show(self, attributes: dict[str, str | None]) -> None:
        held = [(attributes.get(name) or "").strip() for name in ("src", "data-src")]
        reference, alternative = next(filter(may_be_read, held), ""), attributes.get("alt") or ""
        sides = [(attributes.get(side) or "").removesuffix("px") for side in ("width", "height")]
        if any(side.isdecimal() and int(side) < LEAST_SIDE for side in sides):
            return
        if not reference:  # one that is never read is told in the text
            self._parts.append(told_in_text(alternative))
            return
        if reference not in self._pictures and len(self._pictures) < MOST_PICTURES:
            said = [alternative, attributes.get("title") or ""]
            self._pictures[reference] = said, len(self._paragraphs)
            self._pictured = True
            if self._names["figure"]:
                self._shown.append(said)

    def _end(self, tag: str) -> None:
        if tag in _MOVED and self._moved and sum(self._names[name] for name in _MOVED) <= len(self._moved):
            at, kind = self._moved.pop()
            text, before = "".join(self._parts[at:]), "".join(self._parts[max(0, at - 4) : at])
            one = text if regex.fullmatch(r"\s*[\w.,]*\s*|\(.*\)", text) else f"({text.strip()})"  # a part of a formula as one value
            self._parts[at:] = [one if kind == "mrow" else raised(text, before) if kind == "sup" else lowered(text, before)]
        elif tag in _BLOCKS:
            self._flush()
        if tag in _SIGNS:
            self._parts.append(_SIGNS[tag][1])
        elif tag == "ruby":
            self._tell_readings()
        elif tag == "dt":
            self._in_term = False
        elif tag == "a" and self._reference:
            if len(self.links) <= MOST_LINKS:
                self.links["".join(self._words), self._reference] = None
            self._reference = ""
        elif tag in _LISTS and self._lists:
            self._lists.pop()
        elif tag in ("td", "th") and self._tables:
            self._tables[-1].cell = None
        elif tag in ("tr", "table") and self._tables:
            self._end_row()
            if tag == "table" and self._names["table"] <= len(self._tables):
                self._tables.pop()

    def _end_row(self) -> None:
        row = self._tables[-1].end_row()  # which ends its cell: the row goes into the cell around the table, or into the page
        self._settled().extend(row)

    def _settled(self) -> list[Block]:
        """The place of the next block: the cell that is open, or the page."""
        return next((table.cell for table in reversed(self._tables) if table.cell is not None), self.blocks)

    def _trimmed(self, text: str) -> str:
        """The text of a block without blanks around its lines, unless it is preformatted, and, of a page, without lines that only wrap."""
        if self._names["pre"]:
            return joined_lines(text.strip("\n").rstrip())
        text = "\n".join(filter(None, (_BLANKS.sub(" ", line).strip() for line in text.split("\n"))))
        return text if self._literal else joined_lines(text)

    def _tell_readings(self) -> None:
        """Write how small letters above others say that those are read, behind them, so that what is written stays one word."""
        if said := "".join(self._readings).strip():
            self._parts.append(f"({said})")
        self._readings = []

    def _flush(self) -> None:
        self._tell_readings()
        text, deleted = self._trimmed("".join(self._parts)), " ".join("".join(self._deleted).split())
        if not text and deleted:
            text = f"~~{deleted}~~"
        if self._names["figcaption"]:
            for said in self._shown:
                said.append(" ".join(text.split()))
        elif text or self._pictured:
            self._paragraphs.append(" ".join(text.split()))
            self._pictured = False
        if text:
            words = len(text.split())
            link = 2 * self._linked > len(text) and words <= 4 and _LABEL.fullmatch(text) is not None
            level = next((level for level in range(1, 7) if self._names[f"h{level}"]), 0)
            foot = self._names["footer"] > 0 and _OF_A_FOOT.match(text) is not None
            block = Block(self._prefix + text, link or foot or self._framing > 0, level)
            self._settled().append(block)
            self._prefix, self._term = "", block if self._in_term else None
        self._parts, self._deleted, self._moved, self._linked = [], [], [], 0


def _frames(tag: str, attributes: dict[str, str | None]) -> bool:
    """Return whether an element frames a page, by its kind or by what its author calls it."""
    names = f"{attributes.get('class') or ''} {attributes.get('id') or ''}"
    return tag in _FRAME_TAGS or attributes.get("role") in _FRAME_ROLES or _FRAME_NAMES.search(names) is not None


def _number(value: str | None, least: int, most: int) -> int:
    digits = (value or "").strip()
    return min(max(int(digits[:9]), least), most) if digits.isascii() and digits.isdigit() else least


def page_of(html: str) -> tuple[list[Block], list[tuple[str, str]], list[Figure]]:
    """The blocks of a page; words and reference of each link, no two alike and one more than are kept at most; its pictures."""
    walk = _Walk(literal=False)
    walk.feed(html)
    return walk.finish(), list(walk.links), walk.figures()


def blocks_of(html: str, *, literal: bool = False) -> list[Block]:
    """Blocks of a page or a fragment, with words of pictures; ``literal``: unknown tags are text, and pictures are others' to read."""
    walk = _Walk(literal=literal)
    walk.says_pictures = not literal
    walk.feed(html)
    return walk.finish()


def text_of(blocks: Iterable[Block]) -> str:
    """Blocks apart by an empty line."""
    return "\n\n".join(block.text for block in blocks)


def headings_of(blocks: Iterable[Block]) -> list[tuple[int, str]]:
    """Level and first line of each heading."""
    return [(block.level, block.text.partition("\n")[0]) for block in blocks if block.level]


def without_frame(blocks: list[Block], main: str) -> list[Block]:
    """The blocks of a page without what frames it and does not stand in its main text as an extractor found it; all where none is left."""
    words = _words(main)
    said: set[tuple[str, ...]] = {*pairwise(words), *zip(words)}
    return [block for block in blocks if not block.framing or _stands_in(_words(block.text), said)] or blocks


def _stands_in(words: list[str], said: set[tuple[str, ...]]) -> bool:
    pairs: list[tuple[str, ...]] = [*pairwise(words)] or [*zip(words)]
    return 2 * sum(pair in said for pair in pairs) > len(pairs)


def _words(text: str) -> list[str]:
    return regex.findall(r"\w+", text.lower())
