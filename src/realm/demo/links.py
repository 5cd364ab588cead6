"""Find facts that an article on another entity states the other way round."""

import tomllib
from collections import defaultdict
from importlib.resources import files

from realm.demo.articles import Ledger
from realm.demo.tables import Domain, Entity, bare


def note_links(domains: list[Domain], ledger: Ledger) -> None:
    """Record the articles that state a fact by its inverse.

    Such an article also answers a question on the fact, so it must count as a positive. ``inverses.toml`` has the kinds.
    """
    inverses = tomllib.loads((files("realm.demo") / "inverses.toml").read_text("utf-8"))
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
            for other, inverse in inverses.get(entity.domain, {}).get(kind, []):
                for article_id in stated.get((other, inverse, value, name), []):
                    ledger.note(entity, kind, article_id)


def _pair(entity: Entity, kind: str) -> tuple[str, str]:
    """The entity's name and the value of its fact, without articles."""
    return bare(entity.name), bare(str(entity.value(kind)))
