"""The order in which the words of a page are read: columns one after the other, tables row by row, lines put together to paragraphs."""

import itertools
import re
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from realm.documents.pages.paragraphs import ENDS, FULL, POINT, dictionary
from realm.text.lines import passages_of

TALL = 1.5
"""Height by width from which a piece of several characters is written upwards."""
APART = 0.7
"""Of a word's height, the least white that parts columns."""
PROSE_ROWS, PROSE_WORDS, LEAST_WORDS = 3, 3.0, 1.5
"""Rows, and words in each, from which what stands beside other text is a column of its own; and the words if they are a paragraph."""
LOOSE = 1.35
"""Distance of lines, in parts of what is usual there, from which they are two paragraphs."""
_LEADERS = re.compile(r"(?: ?[.·_]){4,}")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")


class Piece(NamedTuple):
    """Words that stand together, and their box; what is further down is larger."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def middle(self) -> tuple[float, float]:
        """Across and down."""
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    @property
    def upwards(self) -> bool:
        return len(self.text) > 2 and self.height > TALL * (self.right - self.left)


class Line(NamedTuple):
    """One line of text, its box, the edges of the column that it stands in, how wide its first word is, and whether it stands alone."""

    text: str
    box: Piece
    column: tuple[float, float]
    first: float
    alone: bool = False


Band = list[Piece]
"""Words whose middle parts overlap in height: a line across the page, or lines of columns that do not stand level."""


def read_page(words: Sequence[Piece]) -> list[tuple[Line, bool]]:
    """Lines in the order of reading, and whether each begins a paragraph; what is written upwards comes last."""
    high = TALL * median([word.height for word in words] or [0])
    long = [word for word in words if word.upwards and word.height > high]
    upright = [word for word in words if any(_is_beside(word, one) for one in long)]
    level = _with_initials([word for word in words if word not in upright] if upright else list(words), high)
    lines = list(_flow(_bands(level), _edges(level)))
    usual = _usual_distances(lines)
    found = [(line, _begins(before, line, usual)) for before, line in zip([None, *lines], lines, strict=False)]
    return found + [(Line(line.text, line, (line.left, line.right), 0, True), True) for line in _upwards(upright)]


def _is_beside(word: Piece, one: Piece) -> bool:
    """Tell a word between the same edges as one that is written upwards."""
    return abs(word.left - one.left) + abs(word.right - one.right) < 1


def _upwards(words: Sequence[Piece]) -> list[Piece]:
    """The lines of words that are written upwards or downwards, in the order of the page's file."""
    lines: list[Piece] = []
    for word in words:
        before = lines[-1] if lines else word
        apart = max(word.top - before.bottom, before.top - word.bottom)
        if lines and _is_beside(word, before) and apart < word.right - word.left:
            top, bottom = min(before.top, word.top), max(before.bottom, word.bottom)
            lines[-1] = Piece(f"{before.text} {word.text}", before.left, top, before.right, bottom)
        else:
            lines.append(word)
    return lines


def _with_initials(words: list[Piece], high: float) -> list[Piece]:
    """Words of which a large first letter that reaches down beside several lines stands before its word."""
    for initial in [word for word in words if word.height > high and len(word.text) == 1 and word.text.isupper()]:
        beside = [word for word in words if initial.top - word.height < word.top < initial.bottom and word.height < initial.height / TALL]
        beside = [word for word in beside if -0.5 < (word.left - initial.right) / word.height < 1.5]
        if len(rows_of(beside)) < 2:
            continue
        first = min(beside, key=lambda word: word.top)
        apart = initial.text in "AIO" and (initial.text + first.text).lower() not in dictionary() and first.text.lower() in dictionary()
        whole = Piece(f"{initial.text}{' ' * apart}{first.text}", initial.left, first.top, first.right, first.bottom)
        words = [whole if word is first else word for word in words if word is not initial]
    return words


def _bands(words: Sequence[Piece]) -> list[Band]:
    bands: list[Band] = []
    reach = 0.0
    for word in sorted(words, key=lambda word: word.top + word.height / 4):
        if bands and word.top + word.height / 4 < reach:
            bands[-1].append(word)
            reach = max(reach, word.bottom - word.height / 4)
        else:
            bands.append([word])
            reach = word.bottom - word.height / 4
    return bands


def _edges(words: Sequence[Piece]) -> tuple[float, float]:
    return min((word.left for word in words), default=0.0), max((word.right for word in words), default=0.0)


def _flow(bands: list[Band], column: tuple[float, float]) -> Iterator[Line]:
    """Lines of bands, each run of them that white parts from above to below as columns or as a table."""
    at = 0
    while at < len(bands):
        end, gap = _widest_run(bands, at)
        run = bands[at:end]
        sides = _sides([word for band in run for word in band], gap) if gap else []
        across = [number for number, band in enumerate(run) if gap and _crosses(band, gap)]
        if gap and all(map(_is_prose, sides)) and not _in_cells(run, gap):
            for side in sides:
                yield from _flow(_bands(side), _edges(side))
        elif len(across) > 1:
            gaps = _gaps([word for number in across for word in run[number]])
            end = at + next((number for number in range(across[-1] + 1, len(run)) if _spans(run[number], gaps)), len(run))
            yield from _table(bands[at:end], gaps, column)
        else:
            end = at + 1
            yield from (_line(row, column) for row in rows_of(bands[at]))
        at = end


def rows_of(words: Sequence[Piece]) -> list[Band]:
    """Words on one base line, rows from above; those of a script that runs to the left from the right."""
    rows: list[Band] = []
    for word in sorted(words, key=lambda word: word.middle[1]):
        same = rows and word.middle[1] - rows[-1][0].middle[1] < 0.5 * max(word.height, rows[-1][0].height)
        if same:
            rows[-1].append(word)
        else:
            rows.append([word])
    for row in rows:
        leftwards = 2 * sum(_RIGHT_TO_LEFT.search(word.text) is not None for word in row) > len(row)
        row.sort(key=lambda word: word.left, reverse=leftwards)
    return rows


def _line(row: Band, column: tuple[float, float]) -> Line:
    text = " ".join(word.text for word in row)
    bare = _LEADERS.sub(" ", text)
    left, right = _edges(row)
    height = median(word.height for word in row)
    middle = median(word.middle[1] for word in row)
    box = Piece("", left, middle - height / 2, right, middle + height / 2)
    return Line(" ".join(bare.split()), box, column, row[0].right - row[0].left, bare != text)


def _gaps(band: Band) -> list[tuple[float, float]]:
    """White between words, wide enough to part columns."""
    least = APART * median(word.height for word in band)
    gaps: list[tuple[float, float]] = []
    reach: float | None = None
    for word in sorted(band, key=lambda word: word.left):
        if reach is not None and word.left - reach >= least:
            gaps.append((reach, word.left))
        reach = word.right if reach is None else max(reach, word.right)
    return gaps


def _widest_run(bands: list[Band], at: int) -> tuple[int, tuple[float, float] | None]:
    """The end of the longest run of bands that one gap of the first parts, and that gap as all of them leave it."""
    best: tuple[int, tuple[float, float] | None] = at + 1, None
    for gap in _gaps(bands[at]):
        end, (left, right) = at + 1, gap
        for band in bands[at + 1 :]:
            narrowed = _narrowed(band, left, right)
            below = min(word.top for word in band) - max(word.bottom for word in bands[end - 1])
            if narrowed is None or below > 6 * median(word.height for word in band):
                break
            end, (left, right) = end + 1, narrowed
        while end > at + 1 and _set_apart(bands, at, end, (left, right)):
            end -= 1
        if best[1] is None or end > best[0]:
            best = end, (left, right)
    return best


def _narrowed(band: Band, left: float, right: float) -> tuple[float, float] | None:
    """The part of a gap that a band leaves; None: too little."""
    for word in band:
        if word.right > left and word.left < right:
            if word.middle[0] < (left + right) / 2:
                left = max(left, word.right)
            else:
                right = min(right, word.left)
    return (left, right) if right - left >= APART * median(word.height for word in band) else None


def _set_apart(bands: list[Band], at: int, end: int, gap: tuple[float, float]) -> bool:
    """Tell a last band that stands on one side only, further below than the bands of the run stand from each other."""
    tops = [min(word.top for word in band) for band in bands[at:end]]
    distances = [after - before for before, after in itertools.pairwise(tops)]
    return not _crosses(bands[end - 1], gap) and distances[-1] > LOOSE * median(distances)


def _crosses(band: Band, gap: tuple[float, float]) -> bool:
    return any(word.right <= gap[0] for word in band) and any(word.left >= gap[1] for word in band)


def _sides(words: Sequence[Piece], gap: tuple[float, float]) -> list[Band]:
    return [[word for word in words if (word.right <= gap[0]) == left] for left in (True, False)]


def _spans(row: Band, gaps: Sequence[tuple[float, float]]) -> bool:
    """Tell a line, such as one of a paragraph or a heading, that stands in the white between cells."""
    return any(word.left < right and word.right > left for word in row for left, right in gaps)


def _is_prose(words: Sequence[Piece]) -> bool:
    rows = rows_of(words)
    if len(rows) < PROSE_ROWS or len(words) >= PROSE_WORDS * len(rows):
        return len(rows) >= PROSE_ROWS
    return len(words) >= LEAST_WORDS * len(rows) and _runs_on(rows)


def _runs_on(rows: Sequence[Band]) -> bool:
    """Tell rows that are lines of paragraphs."""
    return PROSE_ROWS * len(passages_of("\n".join(" ".join(word.text for word in row) for row in rows))) <= len(rows)


def _in_cells(run: Sequence[Band], gap: tuple[float, float]) -> bool:
    """Tell a table whose sides have words like prose: in the rows across the gap one side stands in cells, and none is a paragraph."""
    level = [word for band in run for row in rows_of(band) if _crosses(row, gap) for word in row]
    sides = [(side, _gaps(side)) for side in _sides(level, gap) if side]
    cells = any(not all(map(_is_prose, _sides(side, inner))) for side, gaps in sides for inner in gaps)
    return cells and all(gaps or not _runs_on(rows_of(side)) for side, gaps in sides)


def _table(run: list[Band], gaps: Sequence[tuple[float, float]], column: tuple[float, float]) -> Iterator[Line]:
    """Rows with a bar between their cells, which ``gaps`` part, an empty one kept; a row without a first cell continues the one above."""
    starts = [gap[1] for gap in gaps]
    rows: list[tuple[Band, list[str]]] = []
    for row in (row for band in run for row in rows_of(band)):
        own = [] if _spans(row, gaps) else starts  # such a row is one cell
        cells = [" ".join(word.text for word in row if at == sum(start <= word.left for start in own)) for at in range(len(starts) + 1)]
        goes_on = not cells[0] and sum(map(bool, cells)) <= max(1, len(starts) - 1)
        if rows and goes_on and row[0].top - max(word.bottom for word in rows[-1][0]) < 0.5 * row[0].height:
            rows[-1] = rows[-1][0] + row, [" ".join(filter(None, both)) for both in zip(rows[-1][1], cells, strict=True)]
        else:
            rows.append((row, cells))
    for row, cells in rows:
        point = POINT.fullmatch(f"{cells[0]} ")
        text = " ".join(cells) if point else " | ".join(cells).rstrip(" |")
        yield _line(row, column)._replace(text=" ".join(_LEADERS.sub(" ", text).split()), alone=True)


def _usual_distances(lines: Sequence[Line]) -> dict[tuple[float, float], float]:
    """From one line of a column to the next, as most of its paragraphs have it."""
    found: dict[tuple[float, float], list[float]] = {}
    for before, line in itertools.pairwise(lines):
        distance = line.box.middle[1] - before.box.middle[1]
        if before.column == line.column and 0 < distance < 3 * line.box.height:
            found.setdefault(line.column, []).append(distance)
    return {column: sorted(distances)[len(distances) // 4] for column, distances in found.items()}


def _begins(before: Line | None, line: Line, usual: dict[tuple[float, float], float]) -> bool:
    """Tell a line that begins a paragraph."""
    if before is None or before.alone or line.alone or POINT.match(line.text):
        return True
    left, right = before.column
    ended, parted = before.text.endswith(ENDS), before.text[-2:-1].isalnum() and before.text.endswith(("-", "\u2010"))
    distance = line.box.middle[1] - before.box.middle[1]
    room = right - before.box.right > line.first + 0.3 * line.box.height
    if before.box.right - left < FULL * (right - left) and room and not parted:
        return True
    if line.column != before.column or distance < 0:
        return ended or not line.text[:1].islower()
    if distance > LOOSE * usual.get(line.column, line.box.height) or abs(line.box.height - before.box.height) > 0.2 * line.box.height:
        return True
    return ended and (room or line.box.left > before.box.left + 0.8 * line.box.height)
