"""Double brackets of wikitext: ``{{templates}}``, ``[[links]]`` and ``{| tables |}``, nested as they come.

Two walks. The first pairs openers with closers on a stack and looks at every bracket once. The second writes the text, asking the
caller what a template or link becomes; what is dropped is skipped from opener to closer, and nesting below ``DEPTH`` is dropped,
so that no character is copied more than ``DEPTH`` times. Brackets without a partner stay for the caller to remove.
"""

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

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
    """The second walk: writes the text with templates and links replaced and tables left out.

    Args:
        text: wikitext without comments and dropped elements.
        template: what ``{{name|arguments}}`` becomes, given the name; None drops it. The function gets the rendered content.
        link: what ``[[target|label]]`` becomes, given the target; None drops it. The function gets the rendered content.
    """

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
            replacement = self._replacement(span, index, depth)
            pieces.append(replacement)
            at = span.close + (not replacement and self._ends_late(span))
            index = bisect_left(self._openers, span.stop, index + 1)
        pieces.append(self._text[at:stop])
        self.copied += stop - start
        return "".join(pieces)

    def _ends_late(self, span: Span) -> bool:
        """Whether of "]]]" the first bracket closed an external link in the caption of a file."""
        if span.kind != LINK or self._text[span.close : span.close + 1] != "]":
            return False
        return self._text.rfind("[", span.start, span.stop) > self._text.rfind("]", span.start, span.stop)

    def _replacement(self, span: Span, index: int, depth: int) -> str:
        if span.kind == TABLE or span.start - span.open == 3 or depth == DEPTH:
            return ""
        head = _HEAD.match(self._text, span.start, span.stop)
        write = self._choosers[span.kind](head[0].strip() if head else "")
        if write is None:
            return ""
        return write(self._render(span.start, span.stop, index + 1, depth + 1))


Chooser = Callable[[str], Callable[[str], str] | None]
