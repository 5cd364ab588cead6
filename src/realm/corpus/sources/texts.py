"""Files that are one document each: plain text, Markdown, HTML."""

from collections.abc import Iterator
from pathlib import Path

from realm.corpus import streams
from realm.corpus.records import Record, Rejected, document_or_rejected
from realm.corpus.sources.detect import COMPRESSED
from realm.corpus.sources.options import SourceOptions


def read_text(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """A file of plain text. Its title is its name without the ending."""
    text = _text_of(path)
    yield text if isinstance(text, Rejected) else document_or_rejected(name, stem(path), text, str(path), 0)


def read_markdown(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """A Markdown file without its markup. Its title is that of its front matter, its first heading, or its name."""
    from realm.corpus.sources.markdown import plain_markdown

    text = _text_of(path)
    if isinstance(text, Rejected):
        yield text
    else:
        title, plain = plain_markdown(text)
        yield document_or_rejected(name, title or stem(path), plain, str(path), 0)


def read_html(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The main text of an HTML file. Its title is the page's, or its name. Raises MissingExtra: the extractor is not installed."""
    from realm.corpus.sources.html import html_record

    data = streams.read_document(path)
    yield data if isinstance(data, Rejected) else html_record(data, None, name, stem(path), str(path), 0)


def stem(path: Path) -> str:
    """A file's name without its ending, and without that of its compression."""
    name = path.name
    for ending in COMPRESSED:
        if name.lower().endswith(ending):
            name = name[: -len(ending)]
    return Path(name).stem


def _text_of(path: Path) -> str | Rejected:
    data = streams.read_document(path)
    return data if isinstance(data, Rejected) else streams.decoded(data, str(path))
