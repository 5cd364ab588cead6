"""Facts as documents: rows of subject, relation and object become sentences, and all sentences about one subject one document.

    subject,relation,object                      Marie Curie
    Marie Curie,birthPlace,Warsaw        ->      Marie Curie birth place Warsaw.
    Marie Curie,field,physics                    Marie Curie field physics.

A subject's facts may stand anywhere in a file: the text of all is held in memory."""

from collections.abc import Iterator, Mapping
from heapq import merge
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import regex

from realm.documents import records, streams
from realm.documents.columns import ROLES_OF_TRIPLES, only_one, triple_columns
from realm.documents.links import title_key
from realm.documents.records import Record, Rejected, SourceDocument, SourceOptions
from realm.documents.sources.jsonl import first_keys, values_in
from realm.documents.sources.tables import Row, named_rows
from realm.errors import DataError
from realm.storage.files import json_value, toml_values
from realm.text.lines import canonical_line

_TEMPLATE = regex.compile(r"(?:[^{}]|\{\{|\}\}|\{(subject|relation|object)\})*")
_CAPITAL = regex.compile(r"(?<=[\p{Ll}\d])(?=\p{Lu})")


Fact = tuple[str, str, str]
"""Subject and object, names without addresses and underscores, around the relation as it was written."""


def read_triples(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """A document for each subject of a CSV, TSV or JSON file of triples, in the order of their first facts; its title is the subject, and
    it links to the documents that are titled by its objects. ``line`` is that of its first fact. Raises DataError: the file has no columns
    for subject, relation and object, or the templates cannot be used."""
    templates = read_templates(Path(options.templates)) if options.templates else {}
    subjects: dict[str, tuple[int, dict[Fact, str]]] = {}
    rejected: list[Rejected] = []
    for found in _rows(path):
        if isinstance(found, Rejected):
            rejected.append(found)
            continue
        facts = _facts(found[1])
        rejected += [Rejected(str(path), found[0], facts)] if isinstance(facts, str) else []
        for fact in facts if isinstance(facts, list) else ():
            known = subjects.setdefault(fact[0], (found[0], {}))[1]
            rejected += [Rejected(str(path), found[0], records.REPEATED_TRIPLE)] if fact in known else []
            known[fact] = sentence(fact, templates)
    documents: Iterator[SourceDocument | Rejected] = (
        SourceDocument(
            f"{name}#{title}", title, "\n".join(dict.fromkeys(facts.values())), str(path), line, structured=True, headings=()
        ).linked((words, title_key(words)) for _, _, words in facts)
        for title, (line, facts) in subjects.items()
    )
    yield from merge(documents, rejected, key=lambda record: record.line)


def _rows(path: Path) -> Iterator[tuple[int, Any] | Rejected]:
    """(line, row) of each row of a table, or of each value of a JSON file."""
    for row in values_in(path) if first_keys(path) else named_rows(path):
        if not isinstance(row, Row) or row.number:
            yield row if isinstance(row, Rejected) else row[-2:]
        elif columns := triple_columns(names := list(row.values.values())):
            for name in columns.values():
                only_one(name, names, path)
        else:
            raise DataError("no columns 'subject', 'relation' and 'object'", path=path, line=row.line, cure=f"It has {', '.join(names)}")


def _facts(row: Any) -> list[Fact] | str:
    """The facts of a row, one for each object; or why it has none."""
    if not isinstance(row, dict):
        return records.NOT_AN_OBJECT
    columns = triple_columns(list(row)) or {}
    subject, relation, objects = (row.get(columns.get(role, role)) for role in ROLES_OF_TRIPLES)
    values = ["" if cell is None else cell for cell in (subject, relation, *(objects if isinstance(objects, list) else [objects]))]
    if not all(isinstance(value, str | int | float) and not isinstance(value, bool) for value in values):
        return records.BAD_FIELD
    cells = [canonical_line(str(value)) for value in values]
    if len(cells) < 3 or not all(cells):
        return records.MISSING_CELL
    if not all(map(streams.is_utf8, cells)):
        return records.INVALID_UTF8
    return [(name_of(cells[0]), cells[1], name_of(cell)) for cell in cells[2:]]


def sentence(fact: Fact, templates: Mapping[str, str]) -> str:
    """The fact as a sentence, with a capital at its beginning; the relation ``birthPlace`` or ``birth_place`` is read "birth place"."""
    template = templates.get(fact[1]) or templates.get("*", "{subject} {relation} {object}.")
    words = canonical_line(_CAPITAL.sub(" ", name_of(fact[1])).replace("_", " ").replace("-", " ")).lower()
    text = template.format(subject=fact[0], relation=words, object=fact[2])
    return text[:1].upper() + text[1:]


def name_of(cell: str) -> str:
    """A name as people write it: of an address its last part, without underscores."""
    if "://" in cell:
        cell = unquote(regex.split(r"[/#]", cell.strip("<> ").rstrip("/#"))[-1]).replace("_", " ")
    return canonical_line(cell)


def read_templates(path: Path) -> dict[str, str]:
    """A file's template of each relation. Raises DataError: not TOML or JSON, or a template with other fields or without the object."""
    cure = 'Write a line such as  birthPlace = "{subject} was born in {object}."  for each relation'
    try:
        text = path.read_text("utf-8-sig")
        found = json_value(text) if path.suffix == ".json" else toml_values(text)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the templates: {error}", path=path, cure=cure) from error
    for relation, template in found.items() if isinstance(found, dict) else [("", None)]:
        match = _TEMPLATE.fullmatch(template) if isinstance(template, str) else None
        if match is None or "object" not in match.captures(1):
            raise DataError(f"the template of '{relation}' is not one of subject, relation and object", path=path, cure=cure)
    return dict(found)
