"""The head of a block: its title and headings, within so many wordpieces."""

import pytest

from realm.documents.ingest.packed import bounded_head


@pytest.mark.parametrize(("title", "parts", "most", "ids"), [
    ([1, 2], [[3], [4, 5]], 5, [1, 2, 3, 4, 5]),
    ([1, 2], [[3], [4, 5]], 4, [1, 2, 4, 5]),  # the outer heading goes first
    ([1, 2, 3], [[4, 5, 6]], 4, [1, 2, 4, 5]), ([1], [[4, 5, 6]], 3, [1, 4, 5]), ([1, 2, 3], [[4]], 2, [1, 4]),
])  # fmt: skip
def test_a_long_head_keeps_title_and_innermost_heading(title, parts, most, ids):
    assert bounded_head(title, parts, most) == ids
