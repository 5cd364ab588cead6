"""Find facts that an article on another entity states the other way round."""

from __future__ import annotations

from collections import defaultdict

from realm.demo.articles import Ledger
from realm.demo.tables import Domain, Entity, bare

INVERSES = {
    ("cities", "water"): [("rivers", "city"), ("lakes", "town")],
    ("cities", "country"): [("countries", "city"), ("countries", "capital")],
    ("cities", "region"): [("islands", "town"), ("us_states", "largest"), ("us_states", "capital")],
    ("cities", "landmark"): [("landmarks", "city")],
    ("landmarks", "city"): [("cities", "landmark")],
    ("inventions", "inventor"): [("scientists", "known_for")],
    ("scientists", "known_for"): [("inventions", "inventor")],
    ("lakes", "outflow"): [("rivers", "source")],
    ("lakes", "town"): [("cities", "water")],
    ("rivers", "source"): [("lakes", "outflow")],
    ("mountains", "country"): [("countries", "highest")],
    ("islands", "town"): [("cities", "region")],
    ("moons", "parent"): [("planets", "largest_moon")],
}
"""Kinds of fact, each with the kinds that say the same of (value, entity)."""


def note_links(domains: list[Domain], ledger: Ledger) -> None:
    """Record the articles that state a fact by its inverse.

    "Cologne stands on the banks of the Rhine", in an article on the Rhine, also
    answers a question on Cologne, so that article must count as a positive.
    """
    stated: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    entities = {entity.key: entity for domain in domains for entity in domain.entities}
    for (key, kind), ids in ledger.stated.items():
        name, value = _pair(entities[key], kind)
        stated[entities[key].domain, kind, name, value] += ids
    for entity in entities.values():
        for kind in entity.cells:
            if not entity.value(kind):
                continue
            name, value = _pair(entity, kind)
            for other, inverse in INVERSES.get((entity.domain, kind), []):
                for article_id in stated.get((other, inverse, value, name), []):
                    ledger.note(entity, kind, article_id)


def _pair(entity: Entity, kind: str) -> tuple[str, str]:
    """The entity's name and the value of its fact, without articles."""
    return bare(entity.name), bare(str(entity.value(kind)))
