"""Pictures as pages show them: which file, what the page says of it, and the paragraph around it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import regex

MOST_PICTURES = 200
"""Of one page; the rest is left out."""
LEAST_SIDE = 33
"""Pixels: what a page shows smaller is an icon."""
CAPTION = regex.compile(r"(?i)(fig(ure|\.)|table|chart|plate|photo(graph)?|abb(ildung|\.)|tabelle|图|圖|表|그림|표)\s*\d")
"""Beginning of a paragraph that is the caption of a picture beside it."""
_UNREAD = ("data:", "javascript:", "blob:")


class Figure(NamedTuple):
    """A picture on a page: its reference, its alternative text, title and caption (some empty), and the paragraph around it."""

    reference: str
    said: list[str]
    around: str


def markdown_figures(tokens: Sequence[Any], words: Sequence[str]) -> list[Figure]:
    """The pictures of a Markdown document in its order, each reference once, ``MOST_PICTURES`` at most; no vector graphics. ``words``: of
    each token of the kind "inline", its words without the pictures."""
    found: dict[str, Figure] = {}
    for at, token in enumerate(token for token in tokens if token.type == "inline"):
        for image in (child for child in token.children or () if child.type == "image"):
            reference = str(image.attrs.get("src", "")).strip()
            if may_be_read(reference) and reference not in found and len(found) < MOST_PICTURES:
                found[reference] = Figure(reference, [image.content, str(image.attrs.get("title", ""))], around(words, at))
    return list(found.values())


def may_be_read(reference: str) -> bool:
    """Tell the reference of a picture from none, and from one of vector graphics or inside the page."""
    bare = regex.split(r"[?#]", reference.lower(), maxsplit=1)[0]
    return bool(bare) and not bare.startswith(_UNREAD) and not bare.endswith((".svg", ".svgz"))


def told_in_text(alternative: str) -> str:
    """The alternative text of a picture that is never read, if it says more than a name."""
    return f" {alternative} " if len(alternative.split()) > 2 else ""


def around(paragraphs: Sequence[str], at: int) -> str:
    """Text around a picture in paragraph ``at``: that paragraph, else the next if a caption, else the last that is none, else the next."""
    own = paragraphs[at] if at < len(paragraphs) else ""
    before = next((text for text in reversed(paragraphs[:at]) if text and not CAPTION.match(text)), "")
    after = next(filter(None, paragraphs[at + 1 :]), "")
    return own or (after if CAPTION.match(after) else before or after)
