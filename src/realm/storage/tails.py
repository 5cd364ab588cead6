"""When the small files at the end of a growing row of files should become one: segments of a corpus, shards of an index."""

from collections.abc import Sequence

WHOLE_ROWS = 131_072
"""Rows of a file that nothing is added to any more."""
MOST_SMALL = 32
"""Small files that may stand at the end."""


def trailing(sizes: Sequence[int], whole: int = WHOLE_ROWS) -> int:
    """How many of the last files should become one; 0 where there are few small ones.

    Args:
        sizes: rows of each, oldest first.
        whole: rows that the one may have; a file of half as many is not small.
    """
    first_small = max((number + 1 for number, rows in enumerate(sizes) if rows >= whole // 2), default=0)
    if len(sizes) - first_small <= MOST_SMALL:
        return 0
    first, rows = len(sizes), 0
    for size in reversed(sizes[first_small:]):
        if rows + size > whole or (len(sizes) - first >= max(2, MOST_SMALL // 2) and size > rows):
            break
        first, rows = first - 1, rows + size
    return len(sizes) - first
