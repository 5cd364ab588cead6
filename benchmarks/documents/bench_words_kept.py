"""The share of a reference's words that our readers keep, file by file, and the most frequent of those that are lost.

References: of PDF pdfium's raw text; of HTML and EPUB all visible words; of Word, slides, sheets and ODT the text nodes of their XML; of
RTF the text without its control words; of mail its text parts as the standard library decodes them; of notebooks the cells' sources and
texts of outputs; of Outlook's messages the streams of subject, sender and text; of source code and logs the whole file; of an archive that
of each file in it. A sheet's strings may stand in no cell.

    python -m benchmarks.documents.bench_words_kept FILES AND FOLDERS    # of PDF, pypdf beside it where that is installed

Words are counted, not placed; a word that occurs twice must be kept twice. What we leave out on purpose is left out of the reference:
lines that recur at the edges of pages, and of HTML the navigation, head and foot that its tags name.
"""

import io
import json
import re
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from email import message_from_bytes, policy
from html.parser import HTMLParser
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import olefile
import pypdfium2

with suppress(ImportError):
    import pypdf

from realm.documents.records import SourceDocument
from realm.documents.sources import iter_documents

ASKED = 0.97
EDGE_LINES, RECURS = 3, 3
_HYPHEN = re.compile("[-\u2010\u00ad\ufffe\x02]\\s*")
_PARTED = re.compile(r"[^\W\d_]-\n\s*[a-z]")
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


def _visible(text: str) -> str:
    page = _Visible()
    page.feed(text)
    return " ".join(page.parts)


PARTS = {
    ".docx": r"word/(document|footnotes|endnotes)\.xml",
    ".pptx": r"ppt/slides/slide\d+\.xml|ppt/notesSlides/.*\.xml",
    ".xlsx": r"xl/sharedStrings\.xml",
    ".odt": r"content\.xml",
    ".epub": r".*\.x?html?",
}
"""The parts of an archive that hold its words."""
ENDS = frozenset(("p", "h", "si", "br", "tab", "s", "line-break", "tc", "table-cell"))
"""Elements after which a word ends."""
_CONTROL = re.compile(r"\\'([0-9a-f]{2})|\\u(-?\d+) ?\??|\\(?:par|line|tab|cell|row)\b ?|\\[A-Za-z]+-?\d* ?|\\\*|[{}\r\n]")
_DATA = re.compile(r"\{\\(?:\*|fonttbl|colortbl|stylesheet|info|pict|header|footer)(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*\}")


def raw_parts(path: Path) -> str:
    """The text nodes of the parts of an archive that hold its words."""
    with zipfile.ZipFile(path) as archive:
        parts = [archive.read(name) for name in archive.namelist() if re.fullmatch(PARTS[path.suffix.lower()], name)]
    return " ".join(_visible(data.decode("utf-8", "replace")) if path.suffix.lower() == ".epub" else _nodes(data) for data in parts)


def _nodes(data: bytes) -> str:
    found = []
    with suppress(ElementTree.ParseError):  # a file that attacks its reader
        for _, node in ElementTree.iterparse(io.BytesIO(data)):
            if node.tag.rpartition("}")[2] == "tableStyleId":  # a number that nobody sees
                continue
            found.append(f"{node.text or ''}{' ' * (node.tag.rpartition('}')[2] in ENDS)}{node.tail or ''}")
    return "".join(found)


def raw_rtf(path: Path) -> str:
    """A rich text without its tables and control words."""
    text, before = path.read_text("latin-1"), ""
    while text != before:
        before, text = text, _DATA.sub("", text)
    page = re.search(r"\\ansicpg(\d+)", text)
    page_name = f"cp{page.group(1)}" if page else "cp1252"

    def said(match: re.Match[str]) -> str:
        if match.group(1):
            return bytes.fromhex(match.group(1)).decode(page_name, "replace")
        if match.group(2):
            return chr(int(match.group(2)) % 65536)
        return " " if re.match(r"\\(par|line|tab|cell|row)", match.group()) else ""

    return _CONTROL.sub(said, text)


def raw_notebook(path: Path) -> str:
    """Sources of cells, and outputs that are text."""
    book = json.loads(path.read_text("utf-8"))
    cells = [cell for sheet in book.get("worksheets", [book]) for cell in sheet["cells"]]
    found = [cell.get("source", cell.get("input", "")) for cell in cells]
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        found += [output.get("text", ""), output.get("data", {}).get("text/plain", ""), output.get("evalue", "")]
    return "\n".join(map("".join, found))


def _message(data: bytes) -> str:
    message = message_from_bytes(data.partition(b"\n")[2] if re.match(rb"\S+ .*\d{4}\n", data) else data, policy=policy.default)
    body = message.get_body(("plain", "html"))
    try:
        text = "" if body is None else body.get_content()
    except LookupError:  # an encoding that does not exist
        text = str(body)
    text = _visible(text) if body is not None and body.get_content_subtype() == "html" else text
    return f"{message['subject']} {message['from']} {text}"


def raw_outlook(path: Path) -> str:
    """Subject, sender and text as a message's streams hold them."""
    names = [f"__substg1.0_{number}{kind}" for number in ("0037", "0C1A", "1000") for kind in ("001F", "001E")]
    with olefile.OleFileIO(path) as held:
        found = [(name, held.openstream(name).read()) for name in names if held.exists(name)]
    return "\n".join(data.decode("utf-16-le" if name.endswith("F") else "cp1252", "replace") for name, data in found)


def raw_text(path: Path) -> str:
    """A file of text as it stands; nothing of another."""
    text = (data := path.read_bytes()).decode("utf-8", "replace")
    return "" if "\0" in text else data.decode("cp1252", "replace") if "\ufffd" in text and b"\xef\xbf\xbd" not in data else text


def raw_zip(path: Path) -> str:
    """All files of an archive."""
    with zipfile.ZipFile(path) as archive, TemporaryDirectory() as room:
        archive.extractall(room)
        return "\n".join(READERS.get(one.suffix.lower(), raw_text)(one) for one in Path(room).rglob("*") if one.is_file())


READERS = {
    ".pdf": raw_pdf,
    **dict.fromkeys((".html", ".htm"), lambda path: _visible(path.read_text("utf-8", "replace"))),
    ".rtf": raw_rtf,
    ".eml": lambda path: _message(path.read_bytes()),
    ".mbox": lambda path: "\n".join(map(_message, re.split(rb"(?m)^From (?=.*\d{4}$)", path.read_bytes())[1:])),
    ".ipynb": raw_notebook,
    ".msg": raw_outlook,
    ".zip": raw_zip,
    **dict.fromkeys((".c", ".h", ".java", ".js", ".log", ".pl", ".py", ".sh"), raw_text),
    **dict.fromkeys(PARTS, raw_parts),
}


def our_text(path: Path) -> str:
    """The titles and texts of our records."""
    records = (record for record in iter_documents(path) if isinstance(record, SourceDocument) and not record.media)
    return "\n".join(f"{record.title}\n{record.text}" for record in records)


def beside_pypdf(path: Path) -> str:
    """pypdf's text of a PDF and ours: share of the reference, seconds, words that a hyphen at the end of a line parts."""
    told, reference = [], words(raw_pdf(path))
    for read in (lambda place: "\n".join(page.extract_text() for page in pypdf.PdfReader(place).pages), our_text):
        start, text = time.perf_counter(), read(path)
        seconds, share = time.perf_counter() - start, 1 - (reference - words(text)).total() / max(1, reference.total())
        told.append(f"{share:.3f} in {seconds:.2f} s, {len(_PARTED.findall(text))} parted")
    return "       pypdf {}; ours {}".format(*told)


def kept(path: Path) -> tuple[float, int, list[str]]:
    """The share of the reference's words that our records hold, how many words it has, and the most frequent that are lost."""
    reference = words(READERS[path.suffix.lower()](path))
    lost = reference - words(our_text(path))
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
            if "pypdf" in sys.modules and path.suffix.lower() == ".pdf":
                print(beside_pypdf(path), flush=True)
    for kind, found in shares.items():
        below = sum(share < ASKED for share in found)
        print(f"{kind}: {len(found)} files, mean {sum(found) / len(found):.3f}, median {median(found):.3f}, {below} below {ASKED}")


if __name__ == "__main__":
    main()
