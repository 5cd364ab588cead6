"""The head of a block within so many wordpieces, and the links that are the block's."""

from types import SimpleNamespace

import pytest

from realm.documents.ingest.packed import bounded_head, links_of_blocks


@pytest.mark.parametrize(("title", "parts", "most", "ids"), [
    ([1, 2], [[3], [4, 5]], 5, [1, 2, 3, 4, 5]),
    ([1, 2], [[3], [4, 5]], 4, [1, 2, 4, 5]),  # the outer heading goes first
    ([1, 2, 3], [[4, 5, 6]], 4, [1, 2, 4, 5]), ([1], [[4, 5, 6]], 3, [1, 4, 5]), ([1, 2, 3], [[4]], 2, [1, 4]),
])  # fmt: skip
def test_a_long_head_keeps_title_and_innermost_heading(title, parts, most, ids):
    assert bounded_head(title, parts, most) == ids


def test_a_link_is_the_block_s_in_which_its_words_begin():
    document = SimpleNamespace(text="Ann met Bob. Bob saw Ann.", links=(("Bob", 1), ("Ann", 2), ("met", 3), ("nobody", 4)))
    assert links_of_blocks(document, [(0, 12), (13, 25)]) == [[1, 3], [2]]
