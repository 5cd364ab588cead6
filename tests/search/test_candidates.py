"""Candidates of different texts: of blocks that several documents hold word for word, the best alone is read."""

from types import SimpleNamespace

import numpy as np
import pytest

from realm.search.blocks import NO_ROW
from realm.search.candidates import Candidates, DenseCandidates


def source(texts):
    """Over blocks of these texts, the first of them the best for every question."""

    def near(_, query_emb, k):
        rows = np.tile(np.arange(min(k, len(texts))), (len(query_emb), 1))
        return Candidates(rows, -rows.astype(np.float32))

    found = DenseCandidates(None, None, texts, None)
    store = SimpleNamespace(token_ids=lambda row: np.array([ord(texts[row])]), block=lambda _: SimpleNamespace(full_title="", source=""))
    store.title_ids = lambda _: np.zeros(1, np.uint16)
    found.inputs, found.near, found.embedded = SimpleNamespace(store=store), near, np.array
    return found


@pytest.mark.parametrize(("texts", "k", "rows"), [
    ("abcdef", 3, [0, 1, 2]), ("aabcde", 3, [0, 2, 3]), ("abab", 2, [0, 1]), ("aaaabc", 2, [0, 4]), ("aaaab", 1, [0]),
    ("aaa", 2, [0, NO_ROW]), ("abb", 3, [0, 1, NO_ROW]), ("a", 5, [0]), ("ab", 5, [0, 1]),
    ("a" * 40 + "b", 2, [0, NO_ROW]),  # not looked for any wider
])  # fmt: skip
@pytest.mark.parametrize("learning", [False, True])
def test_blocks_of_one_text_are_read_once(texts, k, rows, learning):
    found = source(texts).different([""] * 2, np.ones((2, 1)), k, learning=learning)
    assert found.rows.tolist() == [rows, rows]
    assert found.scores.tolist() == [[0.0 if row == NO_ROW else -float(row) for row in rows]] * 2


def test_a_block_names_the_rows_that_it_stands_for():
    assert source("abaca").find([""], [[1]], 3).copies == [{0: [2, 4], 1: [], 3: []}]
