"""The share of a reference conversion's words that our readers keep: PDF against pdfium's raw text, HTML against all visible words.

    python -m benchmarks.documents.bench_words_kept FILES AND FOLDERS

Words are counted, not placed; a word that occurs twice must be kept twice. What we leave out on purpose is left out of the reference:
lines that recur at the edges of pages, and of HTML the navigation, head and foot that its tags name.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from statistics import median

import pypdfium2

from realm.documents.records import SourceDocument
from realm.documents.sources import iter_documents

ASKED = 0.97
EDGE_LINES, RECURS = 3, 3
_HYPHEN = re.compile("[-\u2010\u00ad\ufffe\x02]\\s*")
_WORD = re.compile(r"[^\W_]+")
_LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl"})


def words(text: str) -> Counter[str]:
    """Words in lower case with their counts, hyphens closed up."""
    return Counter(_WORD.findall(_HYPHEN.sub("", text.translate(_LIGATURES)).lower()))


def raw_pdf(path: Path) -> str:
    """The text of a PDF as pdfium gives it, without lines that recur at the edges of pages."""
    pages = [page.get_textpage().get_text_range().splitlines() for page in pypdfium2.PdfDocument(path)]
    bare = [[re.sub(r"[\divxlc]+", "#", line.strip()) for line in lines] for lines in pages]
    edges = Counter(line for lines in bare for line in {*lines[:EDGE_LINES], *lines[-EDGE_LINES:]})
    kept = ([line for line, key in zip(*both, strict=True) if edges[key] < RECURS] for both in zip(pages, bare, strict=True))
    return "\n".join("\n".join(lines) for lines in kept)


class _Visible(HTMLParser):
    """Collects the text that a browser shows, less navigation."""

    HIDDEN = frozenset(("script", "style", "head", "nav", "template", "noscript", "svg"))

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in self.HIDDEN:
            self._hidden.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def raw_html(path: Path) -> str:
    """The visible text of a page."""
    page = _Visible()
    page.feed(path.read_text("utf-8", "replace"))
    return " ".join(page.parts)


READERS = {".pdf": raw_pdf, ".html": raw_html, ".htm": raw_html}


def kept(path: Path) -> tuple[float, int, list[str]]:
    """The share of the reference's words that our records hold, how many words it has, and the most frequent that are lost."""
    ours = words("\n".join(record.text for record in iter_documents(path) if isinstance(record, SourceDocument) and not record.media))
    reference = words(READERS[path.suffix.lower()](path))
    lost = reference - ours
    return 1 - lost.total() / max(1, reference.total()), reference.total(), [word for word, _ in lost.most_common(6)]


def files(places: Sequence[str]) -> Iterator[Path]:
    for place in map(Path, places):
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (path for path in found if path.suffix.lower() in READERS and path.is_file())


def main() -> None:
    shares: dict[str, list[float]] = {}
    for path in files(sys.argv[1:]):
        share, count, lost = kept(path)
        if count:
            shares.setdefault(path.suffix.lower(), []).append(share)
            print(f"{share:.3f}  {count:7d}  {path.name}  {' '.join(lost)}", flush=True)
    for kind, found in shares.items():
        below = sum(share < ASKED for share in found)
        print(f"{kind}: {len(found)} files, mean {sum(found) / len(found):.3f}, median {median(found):.3f}, {below} below {ASKED}")


if __name__ == "__main__":
    main()
