"""JSON: one object a line; or objects over several lines, one after the other or in a list."""

import codecs
import json
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import regex

from realm.documents import streams
from realm.documents.columns import Columns, find_columns
from realm.documents.records import BAD_JSON, INVALID_UTF8, NOT_AN_OBJECT, REPEATED_KEY, TOO_LONG, Record, Rejected, SourceOptions

Found = tuple[int, Any] | Rejected
"""A JSON value with the 1-based line where it starts, or why there is none."""

# What stands between the objects of a list, or between objects that follow each other.
_BETWEEN = regex.compile(r"[\s,\[\]]*")
# A list of objects; or a brace alone in its line, and then a key.
_SPREAD = regex.compile(rb'\s*(?:\[\s*\{|\{[ \t]*\r?\n\s*")')
"""The head of a file whose objects take several lines, or stand in a list, rather than one object a line."""
_DECODER = json.JSONDecoder()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object as it is read. Raises KeyError: it says two things under one key."""
    if len(found := dict(pairs)) < len(pairs):
        raise KeyError
    return found


_STRICT = json.JSONDecoder(object_pairs_hook=_once)


def read_jsonl(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """Documents of a JSON file; ``line`` is that where an object starts.

    A file in which the first objects have no id has no ids: its rows are named by file and line. Raises DataError: the first objects lack a
    column that was asked for, or have no text column."""
    columns = _columns(path, options)
    for found in values_in(path):
        if isinstance(found, Rejected):
            yield found
            continue
        line, value = found
        if not isinstance(value, dict) and columns.text is not None:
            yield Rejected(str(path), line, NOT_AN_OBJECT)
        elif columns.text is not None and columns.id is None and (own := value.get("id", value.get("_id"))) is not None:
            yield Columns("id", columns.title, columns.text).record({**value, "id": own}, str(path), name, line, line)
        else:
            yield columns.record(value, str(path), name, line, line)


def values_in(path: Path) -> Iterator[Found]:
    """The JSON values of a file, whether each has its line or not."""
    return _spread_values(streams.pieces(path), str(path)) if _SPREAD.match(streams.head_of(path)) else _line_values(path)


def first_keys(path: Path) -> list[str]:
    """Keys of the objects that start a file; none where it starts without a whole one."""
    head = streams.head_of(path)
    found = _spread_values([head], "") if _SPREAD.match(head) else map(_line_value, head.split(b"\n"))
    keys: dict[str, None] = {}
    for item in found:
        if isinstance(item, tuple) and isinstance(item[1], dict):
            keys.update(dict.fromkeys(item[1]))
    return list(keys)


def _columns(path: Path, options: SourceOptions) -> Columns:
    """Columns by the keys of the objects that start the file; the usual ones of a file that starts without a whole object."""
    if keys := first_keys(path):
        return find_columns(options, keys, path)
    if options.whole_rows:
        return Columns(None, None, None)
    return Columns(options.id_column or "id", options.title_column or "title", options.text_column or "text")


def _line_values(path: Path) -> Iterator[Found]:
    for numbered in streams.numbered_lines(path):
        if isinstance(numbered, Rejected):
            yield numbered
            continue
        number, line = numbered
        if not line.isspace():
            yield _line_value(line, str(path), number)


def _line_value(line: bytes, path: str = "", number: int = 0) -> Found:
    try:
        return number, _STRICT.decode(line.decode("utf-8"))
    except UnicodeDecodeError:
        return Rejected(path, number, INVALID_UTF8)
    except KeyError:
        return Rejected(path, number, REPEATED_KEY)
    except (ValueError, RecursionError):
        return Rejected(path, number, BAD_JSON)


def _spread_values(pieces: Iterable[bytes | Rejected], path: str) -> Iterator[Found]:
    """Values wherever they end. Nothing can be told after a broken one, so it ends the file.

    Memory: one piece and one value, which is given up at twice ``LINE_LIMIT`` characters."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
    text, line, tried = "", 1, 0
    for piece in pieces:
        if isinstance(piece, Rejected):
            yield piece
            return
        text += decoder.decode(piece)
        # A value that is still open is tried again when twice as much is there, so that the work stays linear.
        if len(text) >= 2 * tried:
            text, line = yield from _whole_values(text, line, path)
            tried = len(text)
        if len(text) > 2 * streams.LINE_LIMIT:
            yield Rejected(path, line, TOO_LONG)
            return
    text, line = yield from _whole_values(text, line, path)
    if text:
        yield Rejected(path, line, BAD_JSON)


def _whole_values(text: str, line: int, path: str) -> Generator[Found, None, tuple[str, int]]:
    """The values that end in ``text``. Returns what is left, and the line where that starts."""
    at = 0
    while True:
        start = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # matches the empty string, too
        line += text.count("\n", at, start)
        at = start
        reason = REPEATED_KEY
        try:
            value, end = _DECODER.raw_decode(text, at)
            _STRICT.raw_decode(text, at)
            reason = "" if streams.is_utf8(text[at:end]) else INVALID_UTF8
        except KeyError:
            pass
        except (ValueError, RecursionError):
            return text[at:], line
        yield Rejected(path, line, reason) if reason else (line, value)
        line += text.count("\n", at, end)
        at = end
