"""Parts of links between documents: keys of names, references of pages to files, bounds, redirects.

A link names its target by a key: 64 bits of a document's id, or of its title. The document is looked up when the link is followed
(search/links.py), so that a link survives every change of the corpus and never points at what is gone."""

import hashlib
import posixpath
from collections.abc import Iterable
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import numpy as np

from realm.text.lines import canonical_line

Links = tuple[tuple[str, int], ...]
"""Links of a document in its order: the words that carry each, and the key of what it leads to."""

MOST_LINKS = 1_000
"""Of one document; the rest is left out and counted."""
_REDIRECTS = 5
"""Redirects that are followed from one to the next, as far as any wiki's are; a circle of them ends there too."""


def document_key(doc_id: bytes) -> int:
    """The key of a document by its id, in UTF-8."""
    return int.from_bytes(hashlib.blake2b(doc_id, digest_size=8).digest(), "little")


def title_key(title: str) -> int:
    """The key of the documents with a title; its first letter may be small or capital, as in a wiki's links."""
    name = canonical_line(title)
    name = name[:1].upper() + name[1:]
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8"), digest_size=8, person=b"title").digest(), "little")


def bounded(links: Iterable[tuple[str, int]]) -> tuple[Links, bool]:
    """The first ``MOST_LINKS`` of a document's links, one of each target, words in canonical form; and whether there were more."""
    kept: dict[int, str] = {}
    for words, key in links:
        if key in kept or not (words := canonical_line(words)):
            continue
        if len(kept) == MOST_LINKS:
            return tuple((words, key) for key, words in kept.items()), True
        kept[key] = words
    return tuple((words, key) for key, words in kept.items()), False


def reference_key(doc_id: str, reference: str) -> int | None:
    """The key of the document that a page refers to; None where there is none. ``doc_id`` is the page's: its path or its address."""
    try:
        if "://" in doc_id:
            return document_key(urldefrag(urljoin(doc_id, reference.strip()))[0].encode("utf-8", "replace"))
        parts = urlsplit(reference.strip())
    except ValueError:
        return None
    if parts.scheme or parts.netloc or not parts.path or parts.path.startswith("/"):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(doc_id), unquote(parts.path)))
    return document_key(canonical_line(path).encode("utf-8", "replace"))


class Redirects:
    """Names that stand for other names, by ``pairs`` of their keys, uint64 [r, 2]; of two for one name the first counts."""

    def __init__(self, pairs: np.ndarray):
        self._names, first = np.unique(pairs[:, 0], return_index=True)
        self._targets = pairs[first, 1]

    def resolve(self, keys: np.ndarray) -> np.ndarray:
        """uint64 [n]: each key, or where its redirects lead; in a circle some name of the circle."""
        keys = keys.copy()
        for _ in range(_REDIRECTS if len(self._names) else 0):
            at = np.minimum(np.searchsorted(self._names, keys), len(self._names) - 1)
            moved = self._names[at] == keys
            if not moved.any():
                break
            keys[moved] = self._targets[at[moved]]
        return keys
