"""Tables as plain text and as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Cells in columns: the first one to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV, None as an empty cell."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()
