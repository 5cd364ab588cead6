"""Line structure of a text whose source does not tell it: which line ends only wrap a paragraph, and which end something.

Canonical text first, in which every offset counts: line ends are ``\\n``, and control and invisible format characters are gone.

Paragraphs are wrapped; items of lists, fields of forms and mail, headings, rows of tables, addresses, verse and code stand on lines of
their own. Judged by a block of lines without an empty one: what its lines begin and end with, and whether the next line's first word would
have had room."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import regex

from realm.text.folding import MARGIN, REMARK, unbroken
from realm.text.words import TABLES

# Zero-width joiners shape Persian, Indic and emoji text, and the prepended marks (U+0600...) are visible: they stay.
_INVISIBLE = regex.compile(
    r"(?V1)[[\p{Cc}\p{Cf}]--[\t\n\r\v\f\x85\u200c\u200d\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]]+"
)
# Nearly all text has none of what the slower patterns look for: one fast search says so. It holds every Cc, Cf and line end but "\n".
_SUSPECT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
_LINE_ENDS = regex.compile(r"\r\n|[\r\v\f\x85\u2028\u2029]")
_SURROGATE = regex.compile(r"[\ud800-\udfff]")
# What terminals do not show: colours and links, and the letter that another is struck over ("N\bN" is a bold N in a saved manual page).
_UNSEEN = regex.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[()]\w)|[^\n\b]\x08(?=[^\n\x08])")


_MISREAD = {point: bytes([point]).decode("cp1252", "ignore") for point in range(0x80, 0xA0) if point != 0x85}
"""Controls that texts do not have, as the signs that Windows has in their place: a file in cp1252 often says that it is in Latin-1."""


def canonical_text(text: str) -> str:
    """Canonical form of a document's decoded text. Idempotent. Lone surrogates become U+FFFD."""
    if _SUSPECT.search(text) is None:
        return text
    return _SURROGATE.sub("\ufffd", _LINE_ENDS.sub("\n", _INVISIBLE.sub("", _UNSEEN.sub("", text).translate(_MISREAD))))


def canonical_line(text: str) -> str:
    """Canonical form of a title or an id: one line, single spaces, none around it."""
    return " ".join(canonical_text(text).split())


Range = tuple[int, int]
_LINE = regex.compile(r"[^\n\r\u2028\u2029\u0085\v\f]+")
_TWO_LINES = regex.compile(r"\S[ \t]*+\n[ \t]*+\S")
_QUOTED = regex.compile(rf"\A{MARGIN}")
_STARRED = regex.compile(
    rf"(?m)^[ \t]*+(?:/\*[^\n]*+(?:\n[ \t]*+\*[^\n]*+)++|(?P<mark>{REMARK})[ \t][^\n]*+(?:\n[ \t]*+(?P=mark)(?:[ \t][^\n]*+)?+$)++)"
)
_STAR = regex.compile(rf"\A(?:(?:/\*++|\*(?!>))[ \t]*+|{REMARK}(?:[ \t]++|\Z))")
"""A long comment of a program each line of which begins with a star or a word, and what begins a line of it."""
_MARKER = regex.compile(
    r"(?:[-*+•‣▪●◦–—]|\(?(?:\d{1,3}|[a-z]|[ivx]{1,5})[.)]|\[\d{1,3}\]|\.\.)[ \t]+(?=\S)|:\w[^:]{0,60}:(?:[ \t]+|$)|\\item\b"
)
_FIELD = regex.compile(r"(?:[\p{Lu}\d][\w .'/()-]{0,30}|[\p{Ll}_][\w.-]{0,30}):(?:[ \t]|$)")
_CODE = regex.compile(
    r"(?<!-)[{}]$|[)\]}\"']\s*;$|\w\(.*\)$|\w ?[-+*/:]?==?[ \w\"']|(?<!-)->"
    r"|^(?:def \w+\(|class \w+[(:]|import [\w.]+$|from \S+ import |#include|function \w*\(|\$ |>{3} |//|</?\w)"
)
_ALONE = regex.compile(
    r"\\(?:begin|end|(?:sub)*section|chapter|title|author|label|caption|documentclass|usepackage)\b.*\}$|\.[A-Z]{2}\b|#\+\w|\*{2,} "
)
"""A command of TeX or of a manual page, a heading of Org."""
_OPENS, _CLOSES = regex.compile(r"/\*|\"\"\"|'''|<!--|\{-|\(\*|<#"), regex.compile(r"(?:\*/|\"\"\"|'''|-->|-\}|\*\)|#>)$")
"""The beginning and the end of a long comment or string of a program."""
_ROW = regex.compile(r"\S(?:\t+| {3,})\S|\S ?\|(?:\s|$)")
_RULE = regex.compile(r"[^\p{L}\p{N}]*")
_ENDS = regex.compile(r"[.!?…:;。！？：；][\"'”’»)\]」』*_]*$")
_SENTENCE_ENDS = regex.compile(r"[.!?…。！？][\"'”’»)\]」』*_]*(?: ?\*/)?$")
_FIRST_LETTER = regex.compile(r"[\"'“‘«(\[¿¡*_]*(.)")
_CASELESS = regex.compile(r"\p{Lo}")
_FUNCTION_WORDS = frozenset(TABLES["function_words"].split())
_STARTERS = frozenset(TABLES["starters"].title().split())
LONGEST_WRAPPED = 160
"""Characters of a line above which it is a paragraph of its own."""
LONGEST_FULL = 120
"""Lines longer than this are not taken for full ones."""
LEAST_UNSPACED = 12
"""Characters of a line in letters without case that may continue: shorter ones are names."""
WIDE = 60
"""A line this long that ends in no stop continues."""
NARROW = 30
"""Below this width nothing is said by what would have had room."""
SLACK = 0.85
"""Of the width: a line whose next word would go beyond this was full."""


@dataclass(frozen=True)
class Line:
    """A line of a block: where it stands, its words, how far they are indented, and the marks before it."""

    start: int
    end: int
    words: str
    indent: int
    marks: str

    @property
    def initial(self) -> str:
        """Its first character behind quotes and brackets."""
        found = _FIRST_LETTER.match(self.words)
        return found[1] if found else ""

    @property
    def low(self) -> bool:
        return self.initial.islower()

    @property
    def reads_on(self) -> bool:
        """Return whether it ends in a word that ends nothing."""
        last = self.words.rsplit(None, 1)[-1]
        return (last.lower() if len(last) > 1 else last) in _FUNCTION_WORDS  # "Gate A" ends


def lines_of(text: str) -> list[Range]:
    """Ranges (start, end) of the lines that are not blank, trimmed of white space: of a text in which every line end ends something."""
    found = []
    for line in _LINE.finditer(text):
        if piece := line[0].strip():
            start = line.end() - len(line[0].lstrip())
            found.append((start, start + len(piece)))
    return found


def passages_of(text: str) -> list[Range]:
    """Ranges of the passages, trimmed: lines of which each continues in the next one are one passage, every other line is its own."""
    ranges = lines_of(text)
    if len(ranges) < 2 or not _TWO_LINES.search(text):
        return ranges
    passages: list[Range] = []
    for block in _blocks(text, ranges):
        goes_on = _goes_on(block)
        for line, joined in zip(block, [False, *goes_on], strict=True):
            if joined:
                passages[-1] = (passages[-1][0], line.end)
            else:
                passages.append((line.start, line.end))
    return passages


def joined_lines(text: str) -> str:
    """The text with the lines that continue in the next one joined, and every other line end as it is."""
    if "\n" not in text:
        return text
    joined: list[str] = []
    behind = 0
    for start, end in passages_of(text):
        joined += [text[behind:start], unbroken(text[start:end])]
        behind = end
    return "".join([*joined, text[behind:]])


def _blocks(text: str, ranges: Sequence[Range]) -> Iterator[list[Line]]:
    """Lines that follow one another without an empty one between them, quoted equally deep."""
    block: list[Line] = []
    comments = [match.span() for match in _STARRED.finditer(text)][::-1]
    for start, end in ranges:
        whole = text[start:end]
        while comments and comments[-1][1] <= start:
            comments.pop()
        mark = _STAR if comments and comments[-1][0] <= start else _QUOTED
        marks = whole[: len(whole) - len(mark.sub("", whole, count=1))].removeprefix("/" * (mark is _STAR))
        indent = start - 1 - text.rfind("\n", 0, start)
        line = Line(start, end, whole[len(marks) :].lstrip(), indent, "".join(marks.split()))
        if block and (text.count("\n", block[-1].end, start) > 1 or line.marks != block[-1].marks or _parted(block, line)):
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _parted(block: Sequence[Line], line: Line) -> bool:
    """Return whether a line begins what has nothing to do with the lines before it: one of both is empty, or a command, the one before is a
    rule, a long comment begins or ends, or a paragraph begins by its indent."""
    before, words = block[-1], line.words
    if not words or _RULE.fullmatch(before.words) or _ALONE.match(words) or _ALONE.match(before.words) or _OPENS.match(words):
        return True
    if before.words.startswith("* ") and len(before.words) < NARROW and line.initial.isupper() and line.indent <= before.indent:
        return True
    if _CLOSES.search(before.words) and not (_OPENS.match(before.words) and len(before.words) < 5):
        return True
    indented = line.indent > before.indent and block[0].indent in (line.indent, before.indent) and not _MARKER.match(before.words)
    return indented and not _MARKER.match(words) and _SENTENCE_ENDS.search(before.words) is not None


def _goes_on(block: Sequence[Line]) -> list[bool]:
    """Of each line but the last, whether it continues in the next one."""
    pairs = list(pairwise(block))
    heads = [line.words[:LONGEST_WRAPPED] for line in block]
    if not pairs or _share(map(_CODE.search, heads)) >= 0.4 or _share(map(_ROW.search, heads)) >= 0.5:
        return [False] * len(pairs)
    shape = _Shape.of(block)
    return [shape.goes_on(block, at) for at in range(len(pairs))]


@dataclass(frozen=True)
class _Shape:
    """Shape of a block of lines as a whole: the width of its longest line; how many lines begin with the mark of an item; whether its lines
    were cut where no more words had room, or behind words that end nothing, or continue in small letters; whether it is verse, an address
    or a list without marks; whether each of its least indented lines has others below it, as a term its definition."""

    width: int
    markers: int
    prose: bool
    apart: bool
    hangs: bool

    @classmethod
    def of(cls, block: Sequence[Line]) -> "_Shape":
        block = [line for line in block if not _RULE.fullmatch(line.words)] or block
        width = max(len(line.words) for line in block)
        markers = sum(_MARKER.match(line.words) is not None for line in block)
        pairs = [(before, after) for before, after in pairwise(block) if not _MARKER.match(after.words)]
        low = _share(after.low for _, after in pairs)
        full = _share(_is_full(before, after, width) for before, after in pairs) if NARROW <= width <= LONGEST_FULL else 0.0
        listed = len(pairs) >= 2 and not markers and not any(before.reads_on for before, _ in pairs)
        if listed and _SENTENCE_ENDS.search(block[-1].words) and (len(block[-2].words) >= WIDE or (full >= 0.8 and width >= 40)):
            listed = _ENDS.search(block[-2].words) is not None if len(block[-2].words) >= WIDE else not _names_begin(pairs)
        capitals = listed and not any(after.low or _CASELESS.match(after.initial) for _, after in pairs) and (full < 0.8 or width < WIDE)
        bare = listed and width < WIDE and not any(line.initial.isupper() or _ENDS.search(line.words) for line in block) and full < 0.5
        wrapped = len(pairs) >= 2 and ((full >= 0.6 and width >= 40) or any(before.reads_on for before, _ in pairs))
        base = block[0].indent
        under = all(min(before.indent, after.indent) >= base < max(before.indent, after.indent) for before, after in pairs)
        hangs = under and not markers and block[-1].indent > base and (width >= NARROW or [line.indent for line in block].count(base) > 1)
        return cls(width, markers, low >= 0.3 or wrapped, capitals or bare, hangs)

    def goes_on(self, block: Sequence[Line], at: int) -> bool:
        """Return whether line ``at`` continues in the next one."""
        before, after = block[at], block[at + 1]
        if _RULE.fullmatch(before.words) or _RULE.fullmatch(after.words) or len(before.words) > LONGEST_WRAPPED:
            return False
        if self._begins_an_item(before, after) or (_FIELD.match(after.words) and _FIELD.match(block[0].words)):
            return False
        if regex.search(r"\p{L}-$", before.words) and after.low:
            return True
        if self.apart:
            return False
        if self.hangs and block[0].indent in (before.indent, after.indent):
            may = self.width >= NARROW and (before.indent < after.indent or (after.low and not _ENDS.search(before.words)))
            return before.reads_on or (may and _is_full(before, after, self.width))
        return after.low or self._reads_on(before, after, first=at == 0)

    def _begins_an_item(self, before: Line, after: Line) -> bool:
        """Return whether the next line begins with the mark of an item, or as a paragraph does by its indent."""
        if _MARKER.match(after.words):
            return self.markers > 1 or _ENDS.search(before.words) is not None
        return after.indent > before.indent and not _MARKER.match(before.words) and _SENTENCE_ENDS.search(before.words) is not None

    def _reads_on(self, before: Line, after: Line, *, first: bool) -> bool:
        """``goes_on`` for a next line that begins with a capital, a figure or a letter without case."""
        full = _is_full(before, after, self.width)
        if _ENDS.search(before.words):
            return self.width <= LONGEST_FULL and full
        if before.reads_on or (_MARKER.match(before.words) and after.indent > before.indent):
            return True
        if _CASELESS.match(after.initial):
            return full and len(before.words) >= LEAST_UNSPACED
        if self.prose:
            return full or not first or len(before.words) >= WIDE
        if len(before.words) >= WIDE:
            return True
        told = sum(word in _FUNCTION_WORDS for word in before.words.split())
        return told >= 2 and after.words.split(None, 1)[0] not in _STARTERS and _SENTENCE_ENDS.search(after.words) is not None


def _names_begin(pairs: Sequence[tuple[Line, Line]]) -> bool:
    """Return whether lines may begin with capitals and figures by chance, which in verse they do not: few lines, most of which end in no
    mark, and no next one begins with a small word."""
    ended = sum(regex.search(r"\p{P}$", before.words) is not None for before, _ in pairs)
    firsts = [after.words.split(None, 1)[0] for before, after in pairs if not _ENDS.search(before.words)]
    small = any(first in _STARTERS or first.lower() in _FUNCTION_WORDS for first in firsts)
    return len(pairs) <= 3 and 2 * ended <= len(pairs) and not small


def _is_full(before: Line, after: Line, width: int) -> bool:
    """Return whether the first word of the next line had no room in the one before it."""
    word = 1 if _CASELESS.match(after.initial) and " " not in after.words else 1 + len(after.words.split(None, 1)[0])
    return len(before.words) + word > SLACK * width


def _share(flags: Iterable[object]) -> float:
    known = [bool(flag) for flag in flags]
    return sum(known) / len(known) if known else 0.0
