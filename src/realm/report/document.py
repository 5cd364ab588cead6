"""The frame of every page: one file that fetches nothing and runs nothing, whatever text it shows."""

from importlib.resources import files

from realm.report.markup import Html, tag


def document(title: str, main: Html) -> str:
    """A whole HTML page as text."""
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
