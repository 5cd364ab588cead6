"""Comments and XML-like elements of wikitext: what is dropped whole, what is kept literally, what loses only its tags.

Everything here is one walk forward through the text. An element's end is looked up once and remembered, so that openers without an
end cost no second search."""

import re

from realm.documents.wiki.names import TABLES, name_set

# Attributes stop at the next "<", so that no character is looked at from two openers.
_OPENER = re.compile(rf"<(?:!--|(nowiki|{TABLES['dropped_elements'].strip()})(?=[\s/>])([^<>]*)>)", re.IGNORECASE)
_TAG = re.compile(r"</?([a-z][a-z0-9]*)(?![a-z0-9])[^<>]*>", re.IGNORECASE)
# TeX that reads as text: names, numbers and plain operators.
_PLAIN_MATH = re.compile(r"[\w\s+\-=<>()\[\].,:;!/^*']{1,40}")

# A formula's H<sub>2</sub>O is written H2O, but 20<sub>16</sub> must not be 2016.
_RAISED = re.compile(r"<sup>\s*([+\-−]|[+\-−]?\d{1,6}[+\-−]?)\s*</sup>", re.IGNORECASE)
_LOWERED = re.compile(r"(?<=\d)<sub>\s*(\d{1,6})\s*</sub>", re.IGNORECASE)
_SUPERSCRIPTS = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
# Stands where something was taken out between two signs that must not run together.
APART = "\x1f"
# Stands before a row of a table, and on both sides of a caption.
ROW, CAPTION = "\x02", "\x03"
_MIXED = re.compile(rf"(?<=\d){APART}(?=\d+/)")

_BLOCK_TAGS, _INLINE_TAGS = name_set(TABLES["block_tags"]), name_set(TABLES["inline_tags"])
_TABLE_TAG = re.compile(r"<(/?)(table|caption|tr|t[dh])(?![a-z0-9])([^<>]*)>|</?t(?:head|body|foot)>", re.IGNORECASE)
_OPENED = {"table": "\n{|", "caption": "\n|+", "tr": "\n|-", "td": "\n|", "th": "\n|"}
BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_SPAN = re.compile(r"(col|row)span\s*=\s*[\"']?(\d{1,2})", re.IGNORECASE)
_FRAMING = re.compile(r"class\s*=[^\n]*(?:navbox|mbox|metadata|noprint|sistersite)", re.IGNORECASE)
_LITERAL = str.maketrans({mark: f"&#{ord(mark)};" for mark in "[]{}|'<>*#:;=&_-~"})


class _Ends:
    """Places of the elements' closing tags, and for references of the next opener: each found once."""

    def __init__(self, text: str):
        self._text = text
        self._found: dict[str, tuple[int, int]] = {}

    def find(self, pattern: str, at: int) -> tuple[int, int]:
        """Start and end of the first match at or after ``at``; the text's length twice where there is none."""
        start, end = self._found.get(pattern, (-1, -1))
        if start < at:
            match = re.compile(pattern, re.IGNORECASE).search(self._text, at)
            start, end = match.span() if match else (len(self._text), len(self._text))
            self._found[pattern] = start, end
        return start, end


def without_elements(text: str) -> str:
    """Take out comments, references, formulas that do not read as text, code and HTML tables; escape ``<nowiki>``; part galleries.

    An element without an end loses its tag only; an unclosed comment runs to the end, as in MediaWiki."""
    pieces, at, ends = [], 0, _Ends(text)
    while match := _OPENER.search(text, at):
        pieces.append(text[at : match.start()])
        name = (match[1] or "").lower()
        if not name:
            at = ends.find("-->", match.end())[1]
            if text[match.start() - 1 : match.start()] == "\n" and text[at : at + 1] == "\n":
                at += 1  # a comment that fills its line takes the line with it
        elif match[2].endswith("/"):
            at = match.end()
        else:
            content, at = _content(text, name, match.end(), ends)
            pieces.append(_kept(name, content))
    pieces.append(text[at:])
    return "".join(pieces)


def _content(text: str, name: str, start: int, ends: _Ends) -> tuple[str, int]:
    """An element's content and where the text after it starts."""
    close, end = ends.find(rf"</{name}\s*>", start)
    if close == len(text):
        return "", start
    if name in ("ref", "table") and ends.find(rf"<{name}[\s>]", start)[0] < close:
        return "", start  # the slash or the end was forgotten: the next one's end is not ours
    return text[start:close], end


def _kept(name: str, content: str) -> str:
    if name == "nowiki":
        return content.translate(_LITERAL)
    if name == "math" and _PLAIN_MATH.fullmatch(content):
        return content.strip().translate(_LITERAL)
    if name == "gallery":
        lines = (line.partition("|") for line in without_elements(content).split("\n"))
        return "".join(f"\n[[File:{file}|thumb|{said}]]\n" for file, _, said in lines if said)
    return ""


def without_tags(text: str) -> str:
    """Remove HTML tags: block tags end the paragraph, ``<br>`` ends the line, inline tags leave nothing. Unknown names stay."""
    return _TAG.sub(_tag, with_small_numbers(text)) if "<" in text else text


def captioned(text: str) -> str:
    """Mark what stands under a picture as that, on one line."""
    return f"{CAPTION}{' '.join(without_tags(text).split())}{CAPTION}"


def with_small_numbers(text: str) -> str:
    """Raised numbers as superscripts, 10⁶, and lowered ones behind a number as subscripts, 20₁₆, which would else read as one number."""
    text = _RAISED.sub(lambda match: match[1].translate(_SUPERSCRIPTS), text)
    return _LOWERED.sub(lambda match: match[1].translate(_SUBSCRIPTS), text)


def with_tables(text: str) -> str:
    """Tables of HTML as those of wikitext."""
    return _TABLE_TAG.sub(_table_tag, text) if "<t" in text.lower() else text


def _table_tag(match: re.Match[str]) -> str:
    name = (match[2] or "").lower()
    if not name or match[1]:
        return "\n|}\n" if name == "table" else ""
    return _OPENED[name] + match[3] + ("|" if name[0] == "t" and len(name) == 2 and name != "tr" else "\n" if name != "caption" else "|")


def table_text(content: str) -> str:
    """The rows of a table, each on a line of its own behind ``ROW``, from what stands between its brackets, rendered; a cell that spans
    rows is in each of them. Tables that frame a page have none."""
    attributes, _, body = content.partition("\n")
    if _FRAMING.search(attributes):
        return ""
    rows: list[list[tuple[str, str]]] = [[]]
    for line in map(str.strip, BREAK.sub(" ", body).split("\n")):
        if line[:2] in ("|-", "|+"):
            rows += [[("", line[2:].rpartition("|")[2])], []] if line[1] == "+" else [[]]
        elif line[:1] in ("|", "!") and line:
            cells = re.split(r"\|\||!!" if line[0] == "!" else r"\|\|", line[1:])
            rows[-1] += [(head, text) if bar else ("", head) for head, bar, text in (cell.partition("|") for cell in cells)]
        elif line and rows[-1]:
            attributes, text = rows[-1].pop()
            rows[-1].append((attributes, f"{text} {line.lstrip(f'*#:; {ROW}')}"))
    above: dict[int, tuple[int, str]] = {}
    return "\n\n" + "".join(f"{ROW}{text}\n" for row in rows if any(map(str.isalnum, text := _row(row, above)))) + "\n"


def _row(cells: list[tuple[str, str]], above: dict[int, tuple[int, str]]) -> str:
    """The cells of a row, by their attributes and texts, with those that reach down from ``above``, which it keeps."""
    row: list[str] = []
    for attributes, text in cells:
        while len(row) in above:
            row.append(above[len(row)][1])
        spans = {name.lower(): min(int(count), 50) for name, count in _SPAN.findall(attributes)}
        if (down := spans.get("row", 1)) > 1:
            above[len(row)] = down, text.strip()
        row += [text.strip(), *[""] * (spans.get("col", 1) - 1)]
    while len(row) in above:
        row.append(above[len(row)][1])
    if cells:
        kept = {at: (left - 1, text) for at, (left, text) in above.items() if left > 1}
        above.clear()
        above.update(kept)
    return " | ".join(row).strip() if cells else ""


def without_apart(line: str) -> str:
    """Take out ``APART``; between a whole number and its fraction, 1{{frac|1|4}}, a space takes its place."""
    return _MIXED.sub(" ", line).replace(APART, "") if APART in line else line


def _tag(match: re.Match[str]) -> str:
    name = match[1].lower()
    if name == "br":
        return "\n"
    if name in _BLOCK_TAGS:
        return "\n\n"
    if name not in _INLINE_TAGS:
        return match[0]
    # Else the quotes of ''θ''<sub>''i''</sub> would be read as one run.
    return APART if match.string[match.start() - 1 : match.start()] == match.string[match.end() : match.end() + 1] == "'" else ""
