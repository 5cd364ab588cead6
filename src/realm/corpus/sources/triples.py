"""Facts as documents: rows of subject, relation and object become sentences, and all sentences about one subject one document.

    subject,relation,object                      Marie Curie
    Marie Curie,birthPlace,Warsaw        ->      Marie Curie birth place Warsaw.
    Marie Curie,field,physics                    Marie Curie field physics.

Memory: the text of the file's facts, since a subject's may stand anywhere in it.
"""

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import regex

from realm.corpus import streams
from realm.corpus.links import title_key
from realm.corpus.records import (
    BAD_FIELD,
    BAD_ROW,
    INVALID_UTF8,
    MISSING_CELL,
    NOT_AN_OBJECT,
    REPEATED_TRIPLE,
    Record,
    Rejected,
    SourceDocument,
)
from realm.corpus.sources.columns import ROLES_OF_TRIPLES, triple_columns
from realm.corpus.sources.jsonl import first_keys, values_in
from realm.corpus.sources.options import SourceOptions
from realm.corpus.sources.tables import rows_of, style_of
from realm.decoding import json_value, toml_values
from realm.errors import DataError
from realm.text.canonical import canonical_line

ANY = "*"
"""The relation whose template serves all that have none of their own."""
PLAIN = "{subject} {relation} {object}."
_CAPITAL = regex.compile(r"(?<=[\p{Ll}\d])(?=\p{Lu})")
Values = tuple[Any, Any, Any]
"""Subject, relation and object as a row has them; an object may be a list of several."""


class Fact(NamedTuple):
    """One fact: names without addresses and underscores, the relation as it was written."""

    subject: str
    relation: str
    object: str


class Templates:
    """What each relation is put into.

    Args:
        by_relation: templates with {subject}, {relation} and {object}; that of ``ANY`` serves the other relations.
    """

    def __init__(self, by_relation: Mapping[str, str]):
        self._by_relation = dict(by_relation)

    @classmethod
    def from_file(cls, path: Path) -> "Templates":
        """Those of a TOML or JSON file, a key for each relation.

        Raises:
            DataError: the file is missing or not of that kind, or a template has other fields.
        """
        cure = 'Write a line such as  birthPlace = "{subject} was born in {object}."  for each relation'
        try:
            text = path.read_text("utf-8-sig")
            found = json_value(text) if path.suffix == ".json" else toml_values(text)
        except (OSError, ValueError) as error:
            raise DataError(f"cannot read the templates: {error}", path=path, cure=cure) from error
        if not isinstance(found, dict):
            raise DataError("the templates are not a table", path=path, cure=cure)
        for relation, template in found.items():
            if not isinstance(template, str) or not _sound(template):
                raise DataError(
                    f"the template of '{relation}' has other fields than {{subject}}, {{relation}} and {{object}}", path=path, cure=cure
                )
        return cls(found)

    def sentence(self, fact: Fact) -> str:
        """The fact as a sentence, with a capital at its beginning."""
        template = self._by_relation.get(fact.relation) or self._by_relation.get(ANY, PLAIN)
        text = template.format_map({**fact._asdict(), "relation": relation_words(fact.relation)})
        return text[:1].upper() + text[1:]


def _sound(template: str) -> bool:
    """Whether a template has nothing but plain fields, that of the object among them."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError:
        return False
    named = [(name, how, conversion) for _, name, how, conversion in parts if name is not None]
    return ("object", "", None) in named and all(name in ROLES_OF_TRIPLES and not how and not conversion for name, how, conversion in named)


def name_of(cell: str) -> str:
    """A name as people write it: of an address its last part, without underscores."""
    if "://" in cell:
        cell = unquote(regex.split(r"[/#]", cell.strip("<> ").rstrip("/#"))[-1]).replace("_", " ")
    return canonical_line(cell)


def relation_words(relation: str) -> str:
    """``birthPlace``, ``birth_place`` and ``http://example.org/birth-place`` as "birth place"."""
    return canonical_line(_CAPITAL.sub(" ", name_of(relation)).replace("_", " ").replace("-", " ")).lower()


@dataclass
class _Subject:
    """What is said of one subject.

    Attributes:
        line: of its first fact.
        sentences: in order, each once.
        objects: in order.
    """

    line: int
    sentences: dict[str, None] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)


def read_triples(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """A document for each subject of a CSV, TSV or JSON file of triples, in the order of their first facts; its title is the subject, and
    it links to the documents that are titled by its objects. ``line`` is that of its first fact.

    Raises:
        DataError: the file has no columns for subject, relation and object, or the templates cannot be used.
    """
    templates = Templates.from_file(Path(options.templates)) if options.templates else Templates({})
    subjects: dict[str, _Subject] = {}
    rejected: list[Rejected] = []
    seen: set[Fact] = set()
    for found in _rows(path):
        if isinstance(found, Rejected):
            rejected.append(found)
            continue
        line, values = found
        facts = _facts(values)
        if isinstance(facts, str):
            rejected.append(Rejected(str(path), line, facts))
            continue
        for fact in facts:
            if fact in seen:
                rejected.append(Rejected(str(path), line, REPEATED_TRIPLE))
                continue
            seen.add(fact)
            subject = subjects.setdefault(fact.subject, _Subject(line))
            subject.sentences[templates.sentence(fact)] = None
            subject.objects.append(fact.object)
    documents: Iterator[SourceDocument | Rejected] = (_document(title, subject, str(path), name) for title, subject in subjects.items())
    yield from merge(documents, rejected, key=lambda record: record.line)


def _document(title: str, subject: _Subject, path: str, name: str) -> SourceDocument:
    document = SourceDocument(f"{name}#{title}", title, "\n".join(subject.sentences), path, subject.line)
    return document.linked((words, title_key(words)) for words in subject.objects)


def _facts(values: Values) -> list[Fact] | str:
    """The facts of a row, one for each object; or why it has none."""
    subject, relation, objects = values
    found = [_cell(value) for value in (subject, relation, *(objects if isinstance(objects, list) else [objects]))]
    if None in found:
        return BAD_FIELD
    cells = [str(cell) for cell in found]
    if len(cells) < 3 or not all(cells):
        return MISSING_CELL
    if not all(map(streams.is_utf8, cells)):
        return INVALID_UTF8
    return [Fact(name_of(cells[0]), cells[1], name_of(cell)) for cell in cells[2:]]


def _cell(value: Any) -> str | None:
    """A value as text, empty where there is none; None: it is neither text nor a number."""
    if value is None:
        return ""
    return canonical_line(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _rows(path: Path) -> Iterator[tuple[int, Values] | Rejected]:
    """(line, values) of each row of a table, or of each object of a JSON file."""
    if first_keys(path):
        for found in values_in(path):
            if isinstance(found, Rejected):
                yield found
            elif not isinstance(found[1], dict):
                yield Rejected(str(path), found[0], NOT_AN_OBJECT)
            else:
                yield found[0], _by_role(found[1], triple_columns(list(found[1])) or {})
        return
    header: list[str] = []
    columns: dict[str, str] = {}
    for found in rows_of(path, style_of(path, ",;\t|")):
        if isinstance(found, Rejected):
            yield found
            continue
        line, row = found
        if not header:
            if row:
                header, columns = list(row), _columns(row, path, line)
        elif isinstance(row, str) or len(row) < len(header) or any(row[len(header) :]):
            if row != []:
                yield Rejected(str(path), line, row if isinstance(row, str) else BAD_ROW)
        else:
            yield line, _by_role(dict(zip(header, row, strict=False)), columns)


def _columns(header: list[str] | str, path: Path, line: int) -> dict[str, str]:
    """The column of each role. Raises DataError: one is missing."""
    columns = triple_columns(header) if isinstance(header, list) else None
    if columns is None:
        there = f"Columns are: {', '.join(header) if isinstance(header, list) else 'none'}"
        raise DataError("no columns 'subject', 'relation' and 'object'", path=path, line=line, cure=there)
    return columns


def _by_role(row: Mapping[str, Any], columns: Mapping[str, str]) -> Values:
    """Subject, relation and object of a row; None where it has none."""
    subject, relation, value = (row.get(columns.get(role, role)) for role in ROLES_OF_TRIPLES)
    return subject, relation, value
