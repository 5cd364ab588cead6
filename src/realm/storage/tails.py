"""Merging of the small files at the end of a growing row: segments of a corpus, shards of an index."""

from collections.abc import Sequence

FULL_FILE_ROWS = 131_072
"""Rows of a file that nothing is added to any more."""
MAX_SMALL_FILES = 32
"""Small files that may stand at the end."""


def trailing(sizes: Sequence[int], whole: int = FULL_FILE_ROWS) -> int:
    """Number of the last files, by their rows (oldest first), that should become one of at most ``whole``; 0 where few are small."""
    first_small = max((number + 1 for number, rows in enumerate(sizes) if rows >= whole // 2), default=0)
    if len(sizes) - first_small <= MAX_SMALL_FILES:
        return 0
    first, rows = len(sizes), 0
    for size in reversed(sizes[first_small:]):
        if rows + size > whole or (len(sizes) - first >= max(2, MAX_SMALL_FILES // 2) and size > rows):
            break
        first, rows = first - 1, rows + size
    return len(sizes) - first
