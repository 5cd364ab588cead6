"""Lines as paragraphs: of pages that were made to be looked at, and of pictures of them."""

import re

FULL = 0.75
"""A line this long, in parts of its page's longest, continues in the next one, unless it ends a sentence or the next begins a point."""
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u00ad]$")
_POINT = re.compile(r"[•‣▪–—*-] |\(?[0-9a-z]{1,2}[.)] ")
_ENDS = tuple(".!?:;。！？")


def unwrapped(text: str) -> str:
    """Lines of a page as paragraphs: what only the width of the page has parted is joined, words parted by a hyphen too.

    Example: "The bridge was re-\\npaired in 1931 by the com-\\npany of Smith." is one line, "The bridge was repaired in 1931 by ...".
    """
    lines = [" ".join(line.split()) for line in text.splitlines()]
    widest = max(map(len, lines), default=0)
    paragraphs: list[str] = []
    going_on = False
    for line in lines:
        if not line:
            going_on = False
            continue
        if going_on and not _POINT.match(line):
            before, parted = paragraphs[-1], line[0].islower() and _HYPHEN.search(paragraphs[-1])
            paragraphs[-1] = before[:-1] + line if parted else f"{before} {line}"
        else:
            paragraphs.append(line)
        going_on = len(line) >= FULL * widest and not (line.endswith(_ENDS) and len(line) < widest * 0.9)
    return "\n\n".join(paragraphs)
