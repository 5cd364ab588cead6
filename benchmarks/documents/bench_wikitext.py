"""Cleaning of MediaWiki dumps: rate against mwparserfromhell, sentences kept, articles counted.

The rates are taken in turn within one run; medians. Prints a table over all dumps of a folder, and as its last line one JSON object.

    python -m benchmarks.documents.bench_wikitext ../shared/data/dumps --repeats 5
"""

import argparse
import bz2
import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import mwparserfromhell
from mwparserfromhell import nodes

from benchmarks.common import result
from realm.documents.records import Rejected
from realm.documents.wiki.dump import WikiPage, iter_pages, read_wikidump, why_left_out
from realm.documents.wiki.elements import with_small_numbers, without_apart
from realm.documents.wiki.names import CLOSING_SECTIONS, Namespaces, name_set
from realm.documents.wiki.templates import template_writer
from realm.documents.wiki.text import clean_wikitext
from realm.text.sentences import split_sentences

LINE = "\x1e"
DROP = name_set(
    """ref|references|gallery|math|chem|ce|pre|syntaxhighlight|source|timeline|score|hiero|imagemap|graph|mapframe|table|td|tr|th
    includeonly"""
)
MARKUP = re.compile(r"''|\[\[|\]\]|\{\{|\}\}|\{\||</?\w|&\w+;")
COMMAS = re.compile(r",?(?: ,)+(?= )")
HOLLOW = re.compile(r"\s?\([\s,;:/]*\)")
TRAILING = re.compile(r"(?<=[^\s,;:])[\s,;:]+(?=\))")
LEADING = re.compile(r"\([\s,;:]+(?=\S)")
SAMPLE = "enwiki-2013-shortened-pages-articles.xml.bz2"
MARKS = ("{{", "[[", "<ref", "{|", "'''")


def careful_cleaning(text: str, namespaces: Namespaces) -> str:
    """Paragraphs and list items, one a line."""
    lines: list[str] = []
    parsed = (_render(mwparserfromhell.parse(section).nodes, namespaces) for section in _sections(with_small_numbers(text)))
    for line in "\n\n".join(parsed).split("\n"):
        line, apart = line.strip(), line.startswith(LINE)
        if apart or not line or not lines:
            lines += [line.lstrip(LINE).replace(LINE, ":"), ""] if apart else [line]
        else:
            lines[-1] = f"{lines[-1]} {line}" if lines[-1] else line
    return "\n".join(_tidy(line) for line in lines if line)


def _tidy(line: str) -> str:
    line = " ".join(without_apart(line).replace(LINE, " ").split())
    return COMMAS.sub(",", LEADING.sub("(", TRAILING.sub("", HOLLOW.sub("", line))))


def _sections(text: str) -> list[str]:
    """The text section by section, without closing sections: an unbalanced quote must not hide a heading from the parser."""
    kept, dropped = [], 0
    for part in re.split(r"(?m)^(?==)", re.sub(r"(?s)<!--.*?(?:-->|\Z)", "", text)):
        match = re.match(r"(=+)\s*(.*?)\s*=+\s*$", part.partition("\n")[0])
        if match:
            dropped = 0 if len(match[1]) <= dropped else dropped
            dropped = len(match[1]) if not dropped and match[2].strip(" ':").lower() in CLOSING_SECTIONS else dropped
        if not dropped:
            kept.append(part)
    return kept


def _render(page: Iterable[Any], namespaces: Namespaces) -> str:
    return "".join(_node(node, namespaces) for node in page)


def _node(node: Any, namespaces: Namespaces) -> str:
    match node:
        case nodes.Text():
            return str(node.value)
        case nodes.HTMLEntity():
            return str(node.normalize())
        case nodes.Heading():
            return f"\n\n{_render(node.title.nodes, namespaces)}\n\n"
        case nodes.ExternalLink():
            return _render(node.title.nodes, namespaces) if node.title else "" if node.brackets else str(node.url)
        case nodes.Wikilink():
            return _link(node, namespaces)
        case nodes.Template():
            return _template(node, namespaces)
        case nodes.Tag():
            return _tag(node, namespaces)
    return ""  # comments, template parameters


def _link(node: Any, namespaces: Namespaces) -> str:
    if namespaces.drops(str(node.title).strip()):
        return ""
    label = _render(node.text.nodes, namespaces) if node.text else ""
    return label or str(node.title).strip().removeprefix(":")


def _template(node: Any, namespaces: Namespaces) -> str:
    write = template_writer(str(node.name).strip())
    if write is None:
        return ""
    parts = [str(node.name)]
    for parameter in node.params:
        value = _render(parameter.value.nodes, namespaces)
        parts.append(f"{parameter.name}={value}" if parameter.showkey else value)
    return _render(mwparserfromhell.parse(write("|".join(parts))).nodes, namespaces)


def _tag(node: Any, namespaces: Namespaces) -> str:
    name = str(node.tag).strip().lower()
    if name == "math" and re.fullmatch(r"[\w\s+\-=<>()\[\].,:;!/^*']{1,40}", str(node.contents)):
        return str(node.contents)
    if name in DROP:
        return ""
    if name in ("li", "dd", "dt") and node.wiki_markup:
        return LINE
    if name == "br":
        return "\n"
    content = _render(node.contents.nodes, namespaces) if node.contents else ""
    return f"\n\n{content}\n\n" if name in ("div", "p", "blockquote", "center", "ul", "ol", "li", "poem", "hr") else content


def prose_sentences(text: str) -> list[str]:
    """Sentences of at least five words that end with a full stop, white space normalised; none that still holds markup."""
    found = (" ".join(text[start:end].split()) for start, end in split_sentences(text))
    return [sentence for sentence in found if sentence.endswith(".") and len(sentence.split()) >= 5 and not MARKUP.search(sentence)]


def articles(path: Path) -> tuple[list[WikiPage], Namespaces]:
    """The articles of a dump with their wikitext."""
    pages, namespaces = [], Namespaces()
    for site, page in iter_pages(path):
        namespaces = Namespaces(site.namespaces)
        if isinstance(page, WikiPage) and why_left_out(page, namespaces) is None:
            pages.append(page)
    return pages, namespaces


def rates(ways: dict[str, Callable[[], Any]], size: int, repeats: int) -> dict[str, float]:
    """Median bytes (or characters) a second of each way, in millions, taken in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - started)
    return {name: size / 1e6 / statistics.median(taken) for name, taken in seconds.items()}


def cleaning_rates(path: Path, repeats: int) -> dict[str, float]:
    pages, namespaces = articles(path)
    ways: dict[str, Callable[[], Any]] = {
        "ours": lambda: [clean_wikitext(page.text, namespaces, page.title) for page in pages],
        "mwparserfromhell strip_code": lambda: [mwparserfromhell.parse(page.text).strip_code() for page in pages],
    }
    return rates(ways, sum(len(page.text) for page in pages), repeats)


def kept_sentences(path: Path) -> tuple[int, int, int]:
    """Prose sentences of the careful cleaning, those of them that ours has, and our articles with markup left."""
    pages, namespaces = articles(path)
    total = kept = marked = 0
    for page in pages:
        ours = clean_wikitext(page.text, namespaces, page.title)
        marked += any(mark in ours for mark in MARKS)
        line = " ".join(ours.split())
        sentences = prose_sentences(careful_cleaning(page.text, namespaces))
        total, kept = total + len(sentences), kept + sum(sentence in line for sentence in sentences)
    return total, kept, marked


def counted_in_xml(path: Path) -> int:
    """Pages of namespace 0 that are no redirects, by looking at the text of the XML alone."""
    data = bz2.decompress(path.read_bytes()) if path.suffix == ".bz2" else path.read_bytes()
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8")
    heads = (re.split(r"<revision>", page)[0] for page in text.split("<page>")[1:])
    return sum("<ns>0</ns>" in head and "<redirect" not in head for head in heads)


def dump_row(path: Path) -> dict[str, Any]:
    """One row of the table."""
    reasons: Counter[str] = Counter()
    for site, page in iter_pages(path):
        reasons[page.reason if isinstance(page, Rejected) else why_left_out(page, Namespaces(site.namespaces)) or "articles"] += 1
    documents = [record for record in read_wikidump(path) if not isinstance(record, Rejected)]
    marked = sum(any(mark in document.text for mark in MARKS) for document in documents)
    return {"dump": path.name, "in_xml": counted_in_xml(path), "documents": len(documents), "with_markup": marked, "pages": dict(reasons)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dumps", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    rows = [dump_row(path) for path in sorted(arguments.dumps.iterdir()) if path.name.endswith((".xml", ".xml.bz2"))]
    for row in rows:
        pages = row["pages"]
        left = ", ".join(f"{count} {reason}" for reason, count in sorted(pages.items()) if reason != "articles")
        print(f"{row['dump']:48s} {row['in_xml']:5d} in the XML, {row['documents']:4d} documents; left out: {left or 'none'}")
    sample = arguments.dumps / SAMPLE
    total, kept, marked = kept_sentences(sample)
    print(f"{kept} of {total} prose sentences kept, {marked} articles with markup left")
    cleaning = cleaning_rates(sample, arguments.repeats)
    for name, rate in cleaning.items():
        print(f"{name:30s} {rate:7.1f} MB/s")
    ratios = {
        "cleaning: ours / mwparserfromhell": cleaning["ours"] / cleaning["mwparserfromhell strip_code"],
        "prose sentences kept": kept / total,
    }
    methods = [{"method": name, "mb_per_second": rate} for name, rate in cleaning.items()]
    closing = result("wikitext", 2, rows=methods + [{"method": "count", **row} for row in rows], ratios=ratios)
    closing["versions"] |= {"mwparserfromhell": mwparserfromhell.__version__}
    print(json.dumps(closing, ensure_ascii=False))


if __name__ == "__main__":
    main()
