"""Write the atlas's articles, so that every fact is stated at least twice."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from realm.experiments.world.tables import Domain, Entity, FactKind, fields, render, render_title, shuffled

MIN_TOKENS = 60
"""Words and punctuation marks in an article, a lower bound of its WordPieces."""

_MIN_FACTS_FOR_THREE = 6
_COPIES = 2


@dataclass
class Article:
    """An article being written."""

    id: str
    title: str
    sentences: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The sentences, joined."""
        return " ".join(self.sentences)

    def is_short(self) -> bool:
        """Tell whether the article still needs another sentence."""
        return count_tokens(f"{self.title} {self.text}") < MIN_TOKENS


@dataclass
class Ledger:
    """Facts stated by each article, and their words."""

    seed: int
    stated: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    used: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def note(self, entity: Entity, kind: str, article_id: str) -> None:
        """Record that an article states a fact."""
        ids = self.stated.setdefault((entity.key, kind), [])
        if article_id not in ids:
            ids.append(article_id)

    def first_use(self, entity: Entity, template: str) -> bool:
        """Tell whether a filler sentence is new to the articles on an entity."""
        used = self.used.setdefault((entity.key, ""), set())
        is_new = template not in used
        used.add(template)
        return is_new

    def fresh(self, entity: Entity, kind: FactKind) -> str | None:
        """A template for stating the fact in words not used for it before."""
        used = self.used.setdefault((entity.key, kind.name), set())
        for template in shuffled(kind.statements, self.seed, "statement", entity.key, kind.name):
            sentence = render(template, entity, kind.name)
            if sentence is not None and sentence not in used:
                used.add(sentence)
                return template
        return None


def count_tokens(text: str) -> int:
    """Words and punctuation marks: never more than the WordPieces."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def write_domain(domain: Domain, ledger: Ledger) -> list[Article]:
    """All articles of a domain; the ledger learns what they state."""
    articles: dict[str, list[Article]] = {}
    for entity in domain.entities:
        articles[entity.key] = write_entity(domain, entity, ledger)
    for entity in domain.entities:
        for article in articles[entity.key]:
            _pad_with_relatives(domain, entity, article, ledger)
    return [article for group in articles.values() for article in group]


def write_entity(domain: Domain, entity: Entity, ledger: Ledger) -> list[Article]:
    """Two or three articles on an entity, with each fact in two of them."""
    kinds = {kind.name: kind for kind in domain.kinds_of(entity)}
    count = len(domain.titles) if len(kinds) >= _MIN_FACTS_FOR_THREE else _COPIES
    articles = [Article(f"{entity.key}/{number}", render_title(title, entity)) for number, title in enumerate(domain.titles[:count])]
    _open(domain, entity, articles, ledger)
    order = shuffled(kinds, ledger.seed, "share", entity.key)
    for number, article in enumerate(articles):
        mine = [k for i, k in enumerate(order) if count == _COPIES or i % count != number]
        for name in shuffled(mine, ledger.seed, "order", article.id):
            _state(domain, entity, kinds[name], article, ledger)
        _fill(domain, entity, article, ledger)
    return articles


def _open(domain: Domain, entity: Entity, articles: list[Article], ledger: Ledger) -> None:
    """Give each article another opening sentence."""
    openings = shuffled(domain.intro, ledger.seed, "intro", entity.key)
    ready = [template for template in openings if render(template, entity) is not None]
    for article, template in zip(articles, ready, strict=False):
        _add(domain, template, entity, article, ledger)


def _state(domain: Domain, entity: Entity, kind: FactKind, article: Article, ledger: Ledger) -> None:
    """Add a statement of a fact in fresh words, unless the opening states it."""
    if article.id in ledger.stated.get((entity.key, kind.name), ()):
        return
    template = ledger.fresh(entity, kind)
    if template is None:
        raise ValueError(f"{entity.key}: too few usable statements of {kind.name}")
    _add(domain, template, entity, article, ledger, kind.name)


def _fill(domain: Domain, entity: Entity, article: Article, ledger: Ledger) -> None:
    """Lengthen a short article with sentences on the entity itself."""
    for template in shuffled(domain.filler, ledger.seed, "filler", entity.key):
        if not article.is_short():
            return
        if ledger.first_use(entity, template):
            _add(domain, template, entity, article, ledger)


def _add(domain: Domain, template: str, entity: Entity, article: Article, ledger: Ledger, kind: str | None = None) -> None:
    """Add a sentence, noting every fact that it contains."""
    sentence = render(template, entity, kind)
    if sentence is None:
        return
    article.sentences.append(sentence)
    for column in fields(template):
        column = kind if column == "value" and kind else column
        if column in domain.facts:
            ledger.note(entity, column, article.id)


def _pad_with_relatives(domain: Domain, entity: Entity, article: Article, ledger: Ledger) -> None:
    """Lengthen a short article with facts on related entities."""
    if not article.is_short():
        return
    for other in _relatives(domain, entity):
        names = shuffled((k.name for k in domain.kinds_of(other)), ledger.seed, "relative", article.id)
        for name in names[:2]:
            template = ledger.fresh(other, domain.facts[name])
            if template is None:
                continue
            _add(domain, template, other, article, ledger, name)
            if not article.is_short():
                return
    raise ValueError(f"{article.id} is too short")


def _relatives(domain: Domain, entity: Entity) -> Iterator[Entity]:
    """Other entities of the domain: a named relative, then those of its groups, the nearest rows first."""
    relative = entity.value(domain.related) if domain.related else None
    own = [(column, entity.value(column)) for column in domain.groups]

    place = {other.key: number for number, other in enumerate(domain.entities)}

    def order(other: Entity) -> tuple[list[bool], int]:
        alien = [value is None or other.value(column) != value for column, value in own]
        distance = abs(place[other.key] - place[entity.key])
        return [other.name != relative, *alien], distance

    yield from sorted((o for o in domain.entities if o is not entity), key=order)
