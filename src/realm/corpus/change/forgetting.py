"""What a corpus learnt of removed documents besides their text: words and terms in the state of its tagger."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import regex

from realm.corpus.store import manifest as manifests
from realm.corpus.store.blocks import BlockStore
from realm.errors import CorpusError
from realm.storage import files

_WORD = regex.compile(r"\p{L}[\p{L}\p{M}]*")


def forget_words(store: BlockStore) -> None:
    """Take words and terms that only removed blocks hold out of what the corpus's tagger learnt. Later additions meet them as unknown.

    Reads the text of the live blocks if the removed ones hold any. The tokenizer's vocabulary cannot forget: another one would change
    the token ids of every block.

    Raises:
        CorpusError: the tagger cannot be read.
    """
    path = store.path / manifests.TAGGER_FILE
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        words = {word for part in _parts(state, "truecase") for word in part["table"]}
        terms = {term for part in _parts(state, "collocations") for term in part["terms"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"cannot read the corpus's tagger: {error}", path=path, cure="Build the corpus again") from error
    other_words, other_terms = _not_held(store, np.flatnonzero(~store.live), words, terms)
    gone_words, gone_terms = _not_held(store, np.flatnonzero(store.live), words - other_words, terms - other_terms)
    if not gone_words and not gone_terms:
        return
    for part in _parts(state, "truecase"):
        part["table"] = {word: counts for word, counts in part["table"].items() if word not in gone_words}
    for part in _parts(state, "collocations"):
        part["terms"] = [term for term in part["terms"] if term not in gone_terms]
    files.write_atomic(path, json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n")


def _not_held(store: BlockStore, rows: np.ndarray, words: set[str], terms: set[str]) -> tuple[set[str], set[str]]:
    """Those of ``words`` and ``terms`` that stand in none of the blocks at ``rows``."""
    words, terms = set(words), set(terms)
    for row in rows.tolist():
        if not words and not terms:
            break
        text = store.block(row).text
        if words:
            words -= {word.lower() for word in _WORD.findall(text)}  # cut as the casing table has them
        terms -= {term for term in terms if term in text}
    return words, terms


def _parts(state: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Parts of a tagger's state that are of one type. A gazetteer is the user's, not learnt from documents."""
    if isinstance(state, dict) and state.get("type") == kind:
        yield state
    elif isinstance(state, dict | list):
        for part in state.values() if isinstance(state, dict) else state:
            yield from _parts(part, kind)
