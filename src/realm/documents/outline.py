"""Outline of a document: its headings, as its source marked them or as they show in plain text, and the path of headings above each place.

A path is the headings that a place stands under, the outermost first, without what the title says already."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import regex

from realm.text.folding import folded
from realm.text.lines import canonical_line

Marked = tuple[tuple[int, str], ...]
"""Headings in their order in a text, as its source marks them: level, 1 the highest, and words."""
Places = tuple[tuple[int, tuple[str, ...]], ...]
"""The chars of a text at which another path begins to hold, ascending, and the path."""

BETWEEN = ": "
"""Between the headings of a path."""
MOST_CHARS = 120
"""Characters of a heading; longer lines are text."""


class _Heading(NamedTuple):
    """A heading in a text: the place of its line, what it ranks by, and its words."""

    start: int
    rank: tuple[int, int]
    words: str


def places_of(text: str, title: str, marked: Marked | None, folder: str = "") -> Places:
    """The headings of a canonical text by their places, each with its path; none where there are neither headings nor a folder, whose words
    are the outermost of all. ``marked`` are those that the source marks; None: they are looked for."""
    above: tuple[str, ...] = (folder,) if folder and not _says(title, folder) else ()
    places, open_ = [(0, above)] if above else [], list[_Heading]()
    for heading in _shown(text) if marked is None else _located(text, marked):
        while open_ and open_[-1].rank >= heading.rank:
            open_.pop()
        open_.append(heading)
        places.append((heading.start, above + tuple(one.words for one in open_ if not _says(title, one.words))))
    return tuple(places)


def _says(title: str, heading: str) -> bool:
    return folded(heading).lower() in folded(title).lower()


def path_at(places: Places, position: int) -> tuple[str, ...]:
    """The path of headings above a place, with the heading that begins there."""
    at = bisect_right(places, position, key=lambda place: place[0]) - 1
    return places[at][1] if at >= 0 else ()


def paths_within(places: Places, start: int, end: int) -> str:
    """The path above the first of two places of a text; below it, a line for each heading between them: how far behind, and its path."""
    first, last = (bisect_left(places, position, key=lambda place: place[0]) for position in (start + 1, end))
    inner = (f"\n{at - start}\t{BETWEEN.join(path)}" for at, path in places[first:last])
    return BETWEEN.join(path_at(places, start)) + "".join(inner)


def path_within(paths: str, distance: int) -> str:
    """The path that holds so far behind the first place, of those from ``paths_within``."""
    inner = (path for at, path in regex.findall(r"\n(\d+)\t(.*)", paths) if int(at) <= distance)
    return [paths.partition("\n")[0], *inner][-1]


def _located(text: str, marked: Marked) -> Iterator[_Heading]:
    """Marked headings whose lines occur in the text, each looked for behind the one before."""
    behind = 0
    for level, words in marked:
        line = canonical_line(words)
        at = text.find(line, behind) if line else -1
        while at > 0 and text[at - 1] != "\n":
            at = text.find(line, at + 1)
        if at >= 0 and len(line) <= MOST_CHARS:
            yield _Heading(at, (0, level), line.rstrip(f" {PERMALINKS}"))
            behind = at + len(line)


PERMALINKS = "#¶§🔗"
"""Signs behind a heading or a term that link to it."""
_RULE = regex.compile(r"([-=~^\"'`#*+_:.])\1{2,}")
_HASHED = regex.compile(r"(#{1,6}|={1,5})[ \t]+(?=\S)(.*?)[ \t]*\1?")
_NUMBERED = regex.compile(r"(?:(\d{1,3}(?:\.\d{1,3})*)[.)]?|(?:\p{Lu}\p{Ll}+|§) (?:\d+|[IVX]+)[.:]?)(?:[ \t]+(\S.*))?")
_SENTENCE = regex.compile(r".*[.!?;,…。！？]")
_ITEM = regex.compile(r"[-*+•‣▪●◦–—>|$][ \t]|\(?(?:\d{1,3}|[a-z])[.)][ \t]")
_LETTERS = 3
_HANGING = 64
"""Characters of a line that stands out over an indented text; a longer one is the first of its paragraph."""
_MOST = 2
"""Of so many lines one may be a heading at most; where there are more of them, they are lines of a table, a list or a program."""


class _Row(NamedTuple):
    """A line that is not blank: its place, its indent, its words, and whether blank lines stand before and after it."""

    start: int
    indent: int
    words: str
    apart: bool
    last: bool


def _shown(text: str) -> list[_Heading]:
    """Headings in plain text: underlined, behind # or =, numbered, in capitals, or outdented. What shows first ranks highest."""
    rows, found, orders = _rows(text), list[_Heading](), dict[object, int]()
    for at, row in enumerate(rows):
        before, after = rows[at - 1] if at else None, rows[at + 1] if at + 1 < len(rows) else None
        shape = _shape(row, before, after)
        if shape is not None:
            kind, depth, words = shape
            found.append(_Heading(row.start, (1 + orders.setdefault(kind, len(orders)), depth), words))
    return found if _MOST * len(found) <= len(rows) else []


def _rows(text: str) -> list[_Row]:
    rows, blank, start = list[_Row](), True, 0
    for line in text.split("\n"):
        words = line.strip()
        if words:
            if rows and blank:
                rows[-1] = rows[-1]._replace(last=True)
            indent = len(line.expandtabs()) - len(line.expandtabs().lstrip())
            rows.append(_Row(start + line.index(words[0]), indent, words, blank, False))
        blank = not words
        start += len(line) + 1
    if rows:
        rows[-1] = rows[-1]._replace(last=True)
    return rows


def _shape(row: _Row, before: _Row | None, after: _Row | None) -> tuple[object, int, str] | None:
    """Kind of heading, its depth among those of its kind, and its words; None of a line that is none, or has nothing below it."""
    words = row.words
    if after is None or len(words) > MOST_CHARS or not regex.search(r"\p{L}", words) or _RULE.fullmatch(words):
        return None
    over = before is not None and _RULE.fullmatch(before.words) is not None and not before.last
    if not row.last and _RULE.fullmatch(after.words) and 2 * len(after.words) >= len(words) and (row.apart or over):
        return after.words[0] + "over" * over, 0, words
    if not row.apart:
        return None
    if (hashed := _HASHED.fullmatch(words)) is not None and row.last:
        return hashed[1][0], len(hashed[1]), hashed[2]
    if row.last and not _SENTENCE.fullmatch(words) and not _ITEM.match(after.words):
        numbered = _NUMBERED.fullmatch(words)
        if numbered is not None and (numbered[2] or not numbered[1]):
            return "number" if numbered[1] else words.split()[0], (numbered[1] or "").count("."), words
    letters = regex.findall(r"\p{L}", words)
    if len(letters) >= _LETTERS and words.upper() == words != words.lower() and (row.last or after.indent > row.indent):
        return "capitals", 0, words
    if len(words) <= _HANGING and after.indent > row.indent + 1 and not _ITEM.match(words) and not regex.search(r"[^:]:$|[.,;!?…]$", words):
        return "hanging", row.indent, regex.split(r" {3,}|\t|::$", words)[0]
    return None
