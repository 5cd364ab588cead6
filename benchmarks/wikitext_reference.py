"""A careful cleaning of wikitext with mwparserfromhell, node by node: slow, and what the fast cleaning is compared with.

Which sections close an article and which templates stand for words is policy, and shared with the package; the parser reads all markup.
"""

import re
from collections.abc import Iterable
from typing import Any

import mwparserfromhell
from mwparserfromhell import nodes

from realm.corpus.wiki.elements import with_small_numbers, without_apart
from realm.corpus.wiki.names import CLOSING_SECTIONS, Namespaces, name_set
from realm.corpus.wiki.templates import template_writer
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
