"""What a corpus learnt of removed documents besides their text: the words in its tagger's casing table."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import regex

from realm import paths
from realm.corpus import manifest as manifests
from realm.corpus.blocks import BlockStore
from realm.errors import CorpusError

_WORD = regex.compile(r"\p{L}[\p{L}\p{M}]*")


def forget_words(store: BlockStore) -> None:
    """Take words that only removed blocks hold out of the corpus's casing table. Later additions meet them as unknown words.

    Reads the text of the live blocks if the removed ones hold a word of the table. The tokenizer's vocabulary cannot forget: another
    one would change the token ids of every block.

    Raises:
        CorpusError: the tagger cannot be read.
    """
    path = store.path / manifests.TAGGER_FILE
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CorpusError(f"cannot read the corpus's tagger: {error}", path=path, cure="Build the corpus again") from error
    tables = list(_tables(state))
    gone = {word for row in np.flatnonzero(~store.live).tolist() for word in _words(store, row)}
    gone &= {word for table in tables for word in table}
    for row in np.flatnonzero(store.live).tolist():
        if not gone:
            return
        gone -= _words(store, row)
    for table in tables:
        for word in gone & table.keys():
            del table[word]
    paths.write_atomic(path, json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n")


def _words(store: BlockStore, row: int) -> set[str]:
    """Lower-cased words of a block, cut as the casing table has them."""
    return {word.lower() for word in _WORD.findall(store.block(row).text)}


def _tables(state: Any) -> Iterator[dict[str, Any]]:
    """The casing tables in a tagger's state. Phrases of a gazetteer are the user's, not the documents'."""
    if isinstance(state, dict) and state.get("type") == "truecase":
        yield state["table"]
    elif isinstance(state, dict | list):
        for part in state.values() if isinstance(state, dict) else state:
            yield from _tables(part)
