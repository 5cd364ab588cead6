"""HTML and SVG elements. Text is escaped by construction: only what :func:`tag` made passes as markup. Tables as plain text."""

import tomllib
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

WORDS: dict[str, dict[str, str]] = tomllib.loads((files("realm.report") / "words.toml").read_text("utf-8"))
"""Words of pages and tables, by subject."""
EMPTY_ELEMENTS = ("br", "meta", "circle", "line", "path", "rect", "col")


class Html(str):
    """Markup that is safe to put into a page as it is."""


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """One element; children are :class:`Html` as it is, None left out, anything else as escaped text.

    ``_`` in the names of attributes stands for ``-`` (``class_`` for class); None leaves one out, values are escaped."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items() if value is not None
    )
    if name in EMPTY_ELEMENTS and not children:
        return Html(f"<{name}{shown}>" if name in ("br", "meta", "col") else f"<{name}{shown}/>")
    return Html(f"<{name}{shown}>{join(*children)}</{name}>")


def join(*children: Any) -> Html:
    """Children side by side, escaped as in :func:`tag`."""
    return Html("".join(child if isinstance(child, Html) else escape(str(child)) for child in children if child is not None))


def table(head: list[Any], rows: list[list[Any]], caption: str, *, above: Html | None = None) -> Html:
    """A table that scrolls on a narrow screen; a row's first cell is its heading unless empty in ``head``; ``above``: group headings."""
    heading = tag("tr", *(tag("td") if cell == "" else tag("th", cell, scope="col") for cell in head))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    inner = tag("table", tag("caption", caption), tag("thead", above, heading), tag("tbody", *body))
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def document(title: str, main: Html) -> str:
    """A whole HTML page as text: one file that fetches nothing and runs nothing, whatever text it shows."""
    style = Html((files("realm.report") / "style.css").read_text("utf-8"))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        tag("title", title),
        tag("style", style),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', main), lang='en')}\n"


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Cells in columns: the first one to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]
