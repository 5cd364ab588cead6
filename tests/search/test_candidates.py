"""Candidates of different texts: of blocks that several documents hold word for word, the best alone is read."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

from realm.documents.store.blocks import Block
from realm.search.blocks import NO_ROW
from realm.search.candidates import Candidates, DenseCandidates, groups, newest


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


TEXT = list(range(100, 160))


@pytest.mark.parametrize(("texts", "grouped"), [
    ([TEXT, TEXT, [1, 2]], [[0, 1], [2]]),
    ([TEXT, TEXT[5:55], [*TEXT[:20], 7, 8, *TEXT[20:]]], [[0, 1, 2]]),  # a part of it, a version with other words
    ([TEXT, TEXT[30:] + list(range(30))], [[0], [1]]),  # half of it is another text
    ([[3, 1], TEXT, [3, 1], [3, 2], []], [[0, 2], [1], [3], [4]]),  # shorter than a sequence
    ([], []),
])  # fmt: skip
def test_texts_that_share_most_sequences_are_one(texts, grouped):
    assert groups([np.array(text, np.uint16) for text in texts]) == grouped


@pytest.mark.parametrize(("question", "titles", "changed", "read"), [
    ("When is leave granted?", ["Leave", "Leave"], [1, 2], 1), ("When is leave granted?", ["Leave", "Leave"], [2, 1], 0),
    ("When is leave granted in 2015?", ["Leave 2015", "Leave 2016"], [1, 2], 0),  # the version that the question names
    ("When is leave granted?", ["Leave", "Leave", "Leave"], [1, 2, 2], 1),
    ("When is leave granted?", ["Leave", "Leave"], [None, None], 0),  # no files
])  # fmt: skip
def test_the_newest_file_is_read_but_for_a_version_that_is_asked_for(tmp_path, question, titles, changed, read):
    blocks = []
    for number, (title, when) in enumerate(zip(titles, changed, strict=True)):
        path = tmp_path / str(number)
        if when is not None:
            path.touch()
            os.utime(path, (when, when))
        blocks.append(Block(number, str(number), title, "text", 0, str(path), 0))
    assert newest(question, blocks) == read
