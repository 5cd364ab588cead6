"""Copies and versions of one text, and which of them is read."""

import os

import numpy as np
import pytest

from realm.documents.store.blocks import Block
from realm.search.copies import groups, newest

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
    ("When is leave granted?", ["Leave", "Leave"], [1, 2], 1),
    ("When is leave granted?", ["Leave", "Leave"], [2, 1], 0),
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
