"""Which documents a text speaks of, and which blocks speak of them: entities, without any outside linker.

An entity is what the documents of one title are about. A text names it by that title, or by words that mostly carry links to it
elsewhere ("the UK"); a name counts where mentions.py lets it. A block speaks of an entity if it is of a document about it, links to one, or
names it. All is looked up among the documents that are live at the time of the search: nothing is stored but the links with their words.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import regex

from realm.corpus.keyed import KeyedDocuments
from realm.corpus.links import document_key, title_key
from realm.corpus.mentions import LONGEST, Mention, mentions
from realm.corpus.store.blocks import Block, BlockStore
from realm.text.sentences import split_sentences
from realm.text.words import STOPWORDS

ABOUT, NAMED = 1.0, 0.5
"""What a block of a document about an entity counts, and one that links to it or names it."""
_SMALL = STOPWORDS | {"de", "from", "la", "le", "van", "von"}
"""Words that a title may write small."""
_ASKING = "are did do does has have how i it its me my our us was we were what when where which who whom whose why you your"
_NO_NAMES = STOPWORDS.union(_ASKING.split())
"""Words that alone are no name in a text without capital letters, though a title may be written like them ("Who", "US")."""
_WORD = regex.compile(r"[\w'’.&-]*\w")


@dataclass(frozen=True)
class Entity:
    """An entity that a text names.

    Attributes:
        title: of the documents about it.
        name: how the text calls it.
        start, end: where, in code points of the text.
    """

    title: str
    name: str
    start: int
    end: int


class Entities:
    """The entities of one version of a corpus.

    Args:
        store: its blocks.
    """

    def __init__(self, store: BlockStore):
        self.store = store
        self._documents = KeyedDocuments(store)

    def named_in(self, text: str) -> tuple[Entity, ...]:
        """The entities that a text names, each once, in its order; of names that overlap the first, and of these the longest.

        Where letter case tells nothing, at the beginning of a sentence and in a text without capitals ("where is new york"), a word is of a
        name unless the document about it writes it small.
        """
        sentences = split_sentences(text)
        places, doubtful = mentions(text, sentences), {start for start, _ in sentences}
        if text == text.lower() != text.upper():
            places, doubtful = places + small_mentions(text), set(range(len(text)))
        else:
            places += [[Mention(word[0], *word.span())] for start, end in sentences if (word := _WORD.match(text, start, end))]
        found: dict[str, Entity] = {}
        for mention, title in self._resolved(sorted(filter(None, places), key=lambda place: place[0].start), doubtful):
            found.setdefault(title, Entity(title, text[mention.start : mention.end], mention.start, mention.end))
        return tuple(found.values())

    def spoken_of(self, row: int, entity: Entity) -> float:
        """How much the block at ``row`` speaks of an entity: ``ABOUT``, ``NAMED`` or 0."""
        block = self.store.block(row)
        if title_key(block.title) == title_key(entity.title):
            return ABOUT
        return NAMED if self._links_to(row, entity) or self._names(block, row, entity) else 0.0

    def overlap(self, entities: Sequence[Entity], rows: np.ndarray) -> np.ndarray:
        """float64 [c]: how much each of c blocks speaks of the entities, from 0 to 1; 0 where there are none."""
        if not entities:
            return np.zeros(len(rows))
        return np.array([sum(self.spoken_of(row, entity) for entity in entities) for row in rows.tolist()]) / len(entities)

    def _resolved(self, places: Sequence[Sequence[Mention]], doubtful: Container[int] = ()) -> Iterator[tuple[Mention, str]]:
        """The mentions that stand for something, and the titles of what they stand for.

        Args:
            places: mentions by the place where they begin, in order, at one place the preferred one first.
            doubtful: where an ordinary word stands for nothing.
        """
        names = [mention for place in places for mention in place]
        keys, behind = [title_key(mention.name) for mention in names], 0
        known = self._documents.are_titles(np.array(keys, np.uint64)).tolist()
        for mention, key, is_title in zip(names, keys, known, strict=True):
            if mention.start < behind or not (is_title or key in self._aliases):
                continue
            if title := self._title(key, small=mention.start in doubtful):
                behind = mention.end
                yield mention, title

    def _title(self, key: int, *, small: bool) -> str:
        """The title of what the key of a name stands for; empty where it stands for nothing."""
        for row in self._documents.titled(key):
            title = self.store.block(row).title
            if not (small and self._is_written_small(row, title)):
                return title
        target = self._aliases.get(key)
        row = -1 if target is None else next(self._documents.of_key(target), -1)
        return "" if row < 0 else self.store.block(row).title

    def _is_written_small(self, row: int, title: str) -> bool:
        """Whether the first block of a document writes its title small somewhere: an ordinary word."""
        small = title.lower()
        return small != title and regex.search(rf"\b{regex.escape(small)}\b", self.store.block(row).text) is not None

    def _links_to(self, row: int, entity: Entity) -> bool:
        links = self.store.links(row)
        return len(links) > 0 and bool(np.isin(links, self._keys(entity.title)).any())

    def _keys(self, title: str) -> np.ndarray:
        """uint64 [n]: by what links may lead to the documents of a title."""
        key = title_key(title)
        return np.array([key, *(document_key(self.store.doc_id(row).encode()) for row in self._documents.titled(key))], np.uint64)

    def _names(self, block: Block, row: int, entity: Entity) -> bool:
        """Whether a block's text names an entity by its title, or by the words of the text that asks; no name crosses sentences."""
        names = {entity.title, entity.name}
        ranges = [(start, end) for start, end in self.store.sentences(row).chars.tolist() if any(n in block.text[start:end] for n in names)]
        found = self._resolved(mentions(block.text, ranges)) if ranges else ()
        return any(title == entity.title and mention.name in names for mention, title in found)

    @cached_property
    def _aliases(self) -> dict[int, int]:
        """Keys of words that carry links and are no title, and the key of what more than half of these links lead to."""
        pairs, times = np.unique(self.store.anchors(), axis=0, return_counts=True)
        pairs, times = pairs[pairs[:, 0] > 0], times[pairs[:, 0] > 0]
        names, place = np.unique(pairs[:, 0], return_inverse=True)
        most = times * 2 > np.bincount(place, times, len(names))[place]
        other = most & (pairs[:, 0] != pairs[:, 1]) & ~self._documents.are_titles(pairs[:, 0])
        return dict(zip(pairs[other, 0].tolist(), pairs[other, 1].tolist(), strict=True))


class EntityOverlap:
    """How much blocks speak of what a text names, in the newest version of the corpus.

    Args:
        store: as the caller has it open; later versions are opened as they come.
    """

    def __init__(self, store: BlockStore):
        self._entities = Entities(store)

    def __call__(self, text: str, block_ids: np.ndarray) -> np.ndarray:
        """float64 [c]: of each of c blocks, from 0 to 1; 0 for one that is gone.

        Args:
            text: a question, or what is left of a masked sentence.
            block_ids: int64 [c].
        """
        newest = self._entities.store.newest()
        if newest is not self._entities.store:
            self._entities = Entities(newest)
        named, found = self._entities.named_in(text), np.zeros(len(block_ids))
        if named:
            here = newest.is_live(block_ids)
            found[here] = self._entities.overlap(named, newest.rows_of(block_ids[here]))
        return found


def small_mentions(text: str) -> list[list[Mention]]:
    """Names that may begin at each word of a text without capital letters, as titles would write them; the longest first."""
    words, found = list(_WORD.finditer(text)), []
    for at, first in enumerate(words):
        names = []
        for last in range(min(at + LONGEST, len(words)) - 1, at - 1, -1):
            written = " ".join(text[first.start() : words[last].end()].split())
            variants = dict.fromkeys((_as_title(written, _SMALL), _as_title(written, frozenset()), written.upper(), written))
            if written not in _NO_NAMES and written.lower() != written.upper():  # numbers alone are no names
                names += [Mention(name, first.start(), words[last].end()) for name in variants]
        found.append(names)
    return found


def _as_title(name: str, small: frozenset[str]) -> str:
    """A name with capital letters, but for some words."""
    return " ".join(word if word in small and number else word[:1].upper() + word[1:] for number, word in enumerate(name.split(" ")))
