"""Load and check the atlas's fact tables (CSV) and their wordings (TOML)."""

from __future__ import annotations

import csv
import hashlib
import re
import string
import tomllib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

_MIN_STATEMENTS = 4
_MIN_QUESTIONS = 3


@dataclass(frozen=True)
class FactKind:
    """How one kind of fact (one column of a table) is stated and asked."""

    name: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    ask: bool


@dataclass(frozen=True)
class Entity:
    """One row of a table: a thing with a name and its cells."""

    domain: str
    name: str
    cells: dict[str, tuple[str, ...]]

    @property
    def key(self) -> str:
        """Path-like identifier, such as ``countries/france``."""
        return f"{self.domain}/{slug(self.name)}"

    def value(self, column: str) -> str | None:
        """First value of a column, the one used in text; None if empty."""
        if column == "name":
            return self.name
        values = self.cells.get(column, ())
        return values[0] if values else None

    def answers(self, kind: str) -> list[str]:
        """Accepted answers of a fact, without a leading article."""
        return list(dict.fromkeys(bare(value) for value in self.cells[kind]))


@dataclass(frozen=True)
class Domain:
    """A table together with its wordings."""

    name: str
    source: str
    licence: str
    titles: tuple[str, ...]
    intro: tuple[str, ...]
    filler: tuple[str, ...]
    groups: tuple[str, ...]
    related: str | None
    facts: dict[str, FactKind]
    entities: tuple[Entity, ...]

    def kinds_of(self, entity: Entity) -> list[FactKind]:
        """The kinds of fact for which this entity has a value."""
        return [kind for kind in self.facts.values() if entity.value(kind.name)]


def bare(text: str) -> str:
    """Drop a leading lower-case article: ``the North Sea`` -> ``North Sea``."""
    return text.removeprefix("the ")


def fold(text: str) -> str:
    """Lower-case and strip accents, as an uncased tokenizer would."""
    decomposed = unicodedata.normalize("NFD", text.lower())
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def normalise_answer(text: str) -> str:
    """Fold, drop articles and punctuation, and squeeze blanks."""
    words = re.sub(r"[^\w\s]", " ", fold(text)).split()
    return " ".join(word for word in words if word not in {"a", "an", "the"})


def slug(name: str) -> str:
    """An ASCII identifier of a name: ``the Côte d'Or`` -> ``cote-d-or``."""
    plain = fold(bare(name)).replace("ø", "o").replace("ł", "l").replace("ß", "ss")
    plain = plain.replace("æ", "ae").replace("ð", "d").replace("þ", "th").replace("ı", "i")
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def rank(seed: int, *parts: str) -> bytes:
    """A sort key that looks random but depends only on its arguments."""
    return hashlib.sha256("\x1f".join([str(seed), *parts]).encode("utf-8")).digest()


def shuffled(items: Iterable[str], seed: int, *parts: str) -> list[str]:
    """Strings in an order that depends only on the arguments."""
    return sorted(items, key=lambda item: rank(seed, *parts, item))


def fields(template: str) -> list[str]:
    """Names of the columns that a template uses, in order."""
    return [field for _, field, _, _ in string.Formatter().parse(template) if field]


def render(template: str, entity: Entity, kind: str | None = None) -> str | None:
    """Fill in a template as a sentence; None if a cell it needs is empty.

    ``{value}`` stands for the first value of the column ``kind``.  A sentence
    that would begin with a lower-case value (rather than with an article) is
    refused, since capitalising it would change the answer's spelling.
    """
    used = fields(template)
    cells = {f: entity.value(kind if f == "value" and kind else f) for f in used}
    if any(value is None for value in cells.values()):
        return None
    if used and template.startswith("{" + used[0] + "}") and used[0] != "name":
        first = cells[used[0]] or ""
        if first[0].islower() and not first.startswith("the "):
            return None
    text = template.format_map(cells)
    return text[0].upper() + text[1:]


def render_title(template: str, entity: Entity) -> str:
    """Fill in a title; an article of the name is dropped at its beginning."""
    text = bare(render_plain(template, entity))
    return text[0].upper() + text[1:]


def render_plain(template: str, entity: Entity) -> str:
    """Fill in a template that must not lack any cell."""
    cells = {field: entity.value(field) for field in fields(template)}
    missing = [field for field, value in cells.items() if value is None]
    if missing:
        raise ValueError(f"{entity.key}: no {missing} for {template!r}")
    return template.format_map(cells)


def load_domains() -> list[Domain]:
    """Every domain that has a table and wordings, sorted by name."""
    root = resources.files("realm.demo")
    names = sorted(item.name.removesuffix(".csv") for item in root.joinpath("tables").iterdir() if item.name.endswith(".csv"))
    domains = []
    for name in names:
        table = root.joinpath("tables", f"{name}.csv").read_text(encoding="utf-8")
        wording = root.joinpath("wordings", f"{name}.toml").read_text(encoding="utf-8")
        domains.append(parse_domain(name, table, wording))
    check_names(domains)
    return domains


def parse_domain(name: str, table: str, wording: str) -> Domain:
    """Parse and check one table and its wordings."""
    notes, entities = _parse_table(name, table)
    spec = tomllib.loads(wording)
    if spec["domain"] != name:
        raise ValueError(f"{name}.toml is for the domain {spec['domain']!r}")
    facts = {kind: _parse_kind(name, kind, body) for kind, body in spec["facts"].items()}
    domain = Domain(
        name=name,
        source=notes.get("source", ""),
        licence=notes.get("licence", ""),
        titles=tuple(spec["titles"]),
        intro=tuple(spec.get("intro", ())),
        filler=tuple(spec.get("filler", ())),
        groups=_groups(spec.get("group", ())),
        related=spec.get("related"),
        facts=facts,
        entities=tuple(entities),
    )
    _check_domain(domain)
    return domain


def _parse_table(name: str, table: str) -> tuple[dict[str, str], list[Entity]]:
    """Split a table into its ``# key: text`` notes and its rows."""
    notes: dict[str, str] = {}
    rows: list[str] = []
    for line in table.splitlines():
        if line.startswith("#"):
            key, _, text = line.lstrip("# ").partition(":")
            notes.setdefault(key.strip().lower(), text.strip())
        elif line.strip():
            rows.append(line)
    entities = []
    for row in csv.DictReader(rows, strict=True):
        if None in row or None in row.values():
            raise ValueError(f"{name}.csv: wrong number of cells in {row}")
        cells = {column: tuple(part.strip() for part in cell.split("|") if part.strip()) for column, cell in row.items()}
        entities.append(Entity(name, cells.pop("name")[0], cells))
    return notes, entities


def _parse_kind(domain: str, kind: str, body: dict[str, object]) -> FactKind:
    """Check one ``[facts.X]`` table."""
    statements = tuple(str(text) for text in _list(body["statements"]))
    questions = tuple(str(text) for text in _list(body.get("questions", [])))
    ask = bool(body.get("ask", True))
    where = f"{domain}.toml, facts.{kind}"
    if len(set(statements)) < _MIN_STATEMENTS:
        raise ValueError(f"{where}: fewer than {_MIN_STATEMENTS} statements")
    if ask and len(set(questions)) < _MIN_QUESTIONS:
        raise ValueError(f"{where}: fewer than {_MIN_QUESTIONS} questions")
    for text in statements:
        if "value" not in fields(text) or "name" not in fields(text):
            raise ValueError(f"{where}: no {{name}} or {{value}} in {text!r}")
    for text in questions:
        if "value" in fields(text) or "name" not in fields(text) or not text.endswith("?"):
            raise ValueError(f"{where}: bad question {text!r}")
    return FactKind(kind, statements, questions, ask)


def _groups(value: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """One column or several, by which entities are related."""
    return (value,) if isinstance(value, str) else tuple(value)


def _list(value: object) -> list[object]:
    """A TOML array, or a ValueError."""
    if not isinstance(value, list):
        raise ValueError(f"expected a list, not {value!r}")
    return value


def _check_domain(domain: Domain) -> None:
    """Refuse wordings that name unknown columns, and too few titles."""
    if not 2 <= len(set(domain.titles)) <= 3:
        raise ValueError(f"{domain.name}: needs 2 or 3 distinct titles")
    columns = {"name", *(column for e in domain.entities for column in e.cells)}
    used = {f for text in (*domain.titles, *domain.intro, *domain.filler) for f in fields(text)}
    for kind in domain.facts.values():
        used |= {kind.name}
        used |= {f for t in (*kind.statements, *kind.questions) for f in fields(t)} - {"value"}
    used |= {column for column in (*domain.groups, domain.related) if column}
    if used - columns:
        raise ValueError(f"{domain.name}: no such columns: {sorted(used - columns)}")


def check_names(domains: Iterable[Domain]) -> None:
    """Refuse two entities of the same name anywhere in the atlas."""
    seen: dict[str, str] = {}
    for domain in domains:
        for entity in domain.entities:
            plain = slug(entity.name)
            if plain in seen:
                raise ValueError(f"{entity.key} has the same name as {seen[plain]}")
            seen[plain] = entity.key
