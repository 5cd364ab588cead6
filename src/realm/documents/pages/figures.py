"""Pictures as pages show them: which file, what the page says of it, and the paragraph around it."""

from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from typing import NamedTuple

import regex
from markdown_it.token import Token

MOST_PICTURES = 200
"""Of one page; the rest is left out."""
LEAST_SIDE = 33
"""Pixels: what a page shows smaller is an icon."""
CAPTION = regex.compile(r"(?i)(fig(ure|\.)|table|chart|plate|photo(graph)?|abb(ildung|\.)|tabelle|图|圖|表|그림|표)\s*\d")
"""Beginning of a paragraph that is the caption of a picture beside it."""
_PARAGRAPHS = regex.compile(
    "address|article|aside|blockquote|body|center|dd|div|dl|dt|figcaption|figure|footer|h[1-6]|header|hr|li|main|nav|ol|p|pre|section|"
    "table|td|th|tr|ul"
)
_UNREAD = ("data:", "javascript:", "blob:")


class Figure(NamedTuple):
    """A picture on a page: its reference, its alternative text, title and caption (some empty), and the paragraph around it."""

    reference: str
    said: list[str]
    around: str


def html_figures(html: str) -> list[Figure]:
    """The pictures of a page in its order, each reference once, ``MOST_PICTURES`` at most; no icons and no vector graphics."""
    page = _Page()
    page.feed(html)
    page.close()
    page.flush()
    return page.figures()


class _Page(HTMLParser):
    """Collects paragraphs and the pictures in them."""

    def __init__(self) -> None:
        super().__init__()
        self.paragraphs: list[str] = []
        self._words: list[str] = []
        self._found: dict[str, tuple[list[str], int]] = {}
        self._in_figure: list[list[str]] | None = None
        self._captioning = False
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style")
        if _PARAGRAPHS.fullmatch(tag):
            self.flush()
        if tag == "figure":
            self._in_figure = []
        self._captioning = self._captioning or tag == "figcaption"
        if tag == "img":
            self._picture({name: value or "" for name, value in attrs})

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style") and self._hidden > 0
        if tag == "figcaption":
            caption = " ".join("".join(self._words).split())
            self._words, self._captioning = [], False
            for said in self._in_figure or ():
                said.append(caption)
        if _PARAGRAPHS.fullmatch(tag):
            self.flush()
        if tag == "figure":
            self._in_figure = None

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._words.append(data)

    def _picture(self, attributes: dict[str, str]) -> None:
        reference = (attributes.get("src") or attributes.get("data-src") or "").strip()
        sides = [attributes.get(side, "").removesuffix("px") for side in ("width", "height")]
        if not _may_be_read(reference) or any(side.isdecimal() and int(side) < LEAST_SIDE for side in sides):
            return
        if reference not in self._found and len(self._found) < MOST_PICTURES:
            said = [attributes.get("alt", ""), attributes.get("title", "")]
            self._found[reference] = said, len(self.paragraphs)
            if self._in_figure is not None:
                self._in_figure.append(said)

    def flush(self) -> None:
        """The paragraph ends, if it has words or a picture."""
        text = "" if self._captioning else " ".join("".join(self._words).split())
        if not self._captioning:
            self._words = []
        if text or any(at == len(self.paragraphs) for _, at in list(self._found.values())[-1:]):
            self.paragraphs.append(text)

    def figures(self) -> list[Figure]:
        return [Figure(reference, said, around(self.paragraphs, at)) for reference, (said, at) in self._found.items()]


def markdown_figures(tokens: Sequence[Token], words: Sequence[str]) -> list[Figure]:
    """The same of a Markdown document.

    Args:
        tokens: of its parser.
        words: of each token of the kind "inline", its words without the pictures.
    """
    found: dict[str, Figure] = {}
    for at, token in enumerate(token for token in tokens if token.type == "inline"):
        for image in _images(token):
            reference = str(image.attrs.get("src", "")).strip()
            if _may_be_read(reference) and reference not in found and len(found) < MOST_PICTURES:
                found[reference] = Figure(reference, [image.content, str(image.attrs.get("title", ""))], around(words, at))
    return list(found.values())


def _images(token: Token) -> Iterator[Token]:
    return (child for child in token.children or () if child.type == "image")


def _may_be_read(reference: str) -> bool:
    bare = regex.split(r"[?#]", reference.lower(), maxsplit=1)[0]
    return bool(bare) and not bare.startswith(_UNREAD) and not bare.endswith((".svg", ".svgz"))


def around(paragraphs: Sequence[str], at: int) -> str:
    """Text around a picture in paragraph ``at``: that paragraph, else the next one if it is a caption, else the one before that is
    none, else the next one."""
    own = paragraphs[at] if at < len(paragraphs) else ""
    before = next((text for text in reversed(paragraphs[:at]) if text and not CAPTION.match(text)), "")
    after = next(filter(None, paragraphs[at + 1 :]), "")
    return own or (after if CAPTION.match(after) else before or after)
