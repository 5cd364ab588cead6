"""Load the atlas's fact tables (CSV) and their wordings (TOML); tests check what is in them."""

import csv
import hashlib
import re
import string
import tomllib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class FactKind:
    """Templates by which one column of a table is stated and asked."""

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

    ``{value}`` is the first value of the column ``kind``. A sentence that would begin with a lower-case value is refused: capitalised, the
    answer's spelling would change."""
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
    cells = {field: entity.value(field) for field in fields(template)}
    missing = [field for field, value in cells.items() if value is None]
    if missing:
        raise ValueError(f"{entity.key}: no {missing} for {template!r}")
    text = bare(template.format_map(cells))
    return text[0].upper() + text[1:]


def load_domains() -> list[Domain]:
    """Every domain that has a table and wordings, sorted by name."""
    root = resources.files("realm.experiments.world")
    names = sorted(item.name.removesuffix(".csv") for item in root.joinpath("tables").iterdir() if item.name.endswith(".csv"))
    domains = []
    for name in names:
        table = root.joinpath("tables", f"{name}.csv").read_text(encoding="utf-8")
        wording = root.joinpath("wordings", f"{name}.toml").read_text(encoding="utf-8")
        domains.append(parse_domain(name, table, wording))
    return domains


def parse_domain(name: str, table: str, wording: str) -> Domain:
    """Parse one table and its wordings; lines of the table that begin with # are notes."""
    spec = tomllib.loads(wording)
    if spec["domain"] != name:
        raise ValueError(f"{name}.toml is for the domain {spec['domain']!r}")
    groups = spec.get("group", ())  # one column or several, by which entities are related
    return Domain(
        name=name,
        titles=tuple(spec["titles"]),
        intro=tuple(spec.get("intro", ())),
        filler=tuple(spec.get("filler", ())),
        groups=(groups,) if isinstance(groups, str) else tuple(groups),
        related=spec.get("related"),
        facts={
            kind: FactKind(kind, tuple(body["statements"]), tuple(body.get("questions", ())), body.get("ask", True))
            for kind, body in spec["facts"].items()
        },
        entities=tuple(_parse_table(name, table)),
    )


def _parse_table(name: str, table: str) -> list[Entity]:
    entities = []
    for row in csv.DictReader((line for line in table.splitlines() if line.strip() and not line.startswith("#")), strict=True):
        if None in row or None in row.values():
            raise ValueError(f"{name}.csv: wrong number of cells in {row}")
        cells = {column: tuple(part.strip() for part in cell.split("|") if part.strip()) for column, cell in row.items()}
        entities.append(Entity(name, cells.pop("name")[0], cells))
    return entities
