"""Bytes of a source: decompressed by their first bytes, cut into lines of bounded length, decoded by their byte order mark."""

import bz2
import codecs
import errno
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import regex

from realm.documents.records import BINARY, DAMAGED, INVALID_UTF16, TOO_LONG, TOO_MANY_EMPTY, UNREADABLE, Rejected
from realm.errors import Interrupted
from realm.storage.files import is_transient

# Bytes of a line, of a file that is one document, and of one field of a table. What is longer is skipped without being read whole.
LINE_LIMIT = 64 * 2**20
HEAD_BYTES = 2**18
# In a row. Some kilobytes of compressed data hold 10^8 of them, and a reader would look at each.
EMPTY_LINES = 1_000_000
_BUFFER = 2**20
_BINARY_SAMPLE = 2**16
_CONTROL = dict.fromkeys([*(set(range(32)) - {8, 9, 10, 11, 12, 13, 27}), 127])
_NO_TEXT = regex.compile("[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffd]")
_BINARY_SHARE = 0.1

_ESCAPED = regex.compile("[\udc80-\udcff]")
_BEYOND_ASCII = regex.compile("[^\0-\x7f]")
_TELLING = 2**13
"""Bytes beyond ASCII, with their lines, from which an encoding is guessed."""
_ENCODINGS = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r"),
    *("shift_jis", "euc_jp", "euc_kr", "gb18030", "big5"),
)
"""Those that files without a byte order mark have besides UTF-8, what is most common first."""

DECOMPRESSION_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error, pa.ArrowInvalid)
_MAGIC = ((b"\x1f\x8b", "gz"), (b"\xfd7zXZ\x00", "xz"), (b"\x28\xb5\x2f\xfd", "zst"), (b"BZh", "bz2"))
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def compression_of(start: bytes) -> str | None:
    """gz, xz, zst or bz2 by a file's first bytes, else None."""
    return next((name for magic, name in _MAGIC if start.startswith(magic)), None)


def encoding_of(start: bytes) -> str | None:
    """Python's name of the encoding that a byte order mark announces, else None."""
    return next((name for mark, name in _BYTE_ORDER_MARKS if start.startswith(mark)), None)


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed if its first bytes say that it is compressed, whatever its name. Raises OSError: it cannot be
    opened. Damage shows later, as one of ``DECOMPRESSION_ERRORS``."""
    with open(path, "rb") as file:
        start = file.read(8)
    # Small buffers: what stands in one when damage is met is lost.
    match compression_of(start):
        case "gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        case "xz":
            return cast(IO[bytes], lzma.open(path, "rb"))
        case "bz2":
            return cast(IO[bytes], bz2.open(path, "rb"))
        case "zst":
            return io.BufferedReader(cast(Any, pa.input_stream(str(path), compression="zstd")))
        case _:
            return open(path, "rb", buffering=_BUFFER)


def read_head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first decompressed bytes, in UTF-8 if a byte order mark tells; fewer if damaged. Raises OSError: it cannot be opened."""
    found = bytearray()
    with open_bytes(path) as file:
        try:
            while len(found) < size and (more := file.read(size - len(found))):
                found += more
        except DECOMPRESSION_ERRORS as error:
            refuse_passing(error, path)
    head = bytes(found)
    head = head.replace(b"\r", b"\n") if _ends_in_returns(head) else head
    encoding = encoding_of(head)
    if encoding is None:
        return head
    decoder = codecs.getincrementaldecoder("utf-8-sig" if encoding == "utf-8" else encoding)(errors="replace")
    return decoder.decode(head).encode("utf-8", "replace")


def head_of(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The same; nothing of a file that cannot be opened, which its reader says."""
    try:
        return read_head(path, size)
    except OSError:
        return b""


def numbered_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, bytes] | Rejected]:
    """Lines with their 1-based numbers, as UTF-8 without a byte order mark; a rejected record for each line that cannot be had.

    Memory: one line of at most ``LINE_LIMIT`` bytes. What was read before damage stays; the rest cannot be trusted and ends the file.
    ``encoding`` is that of a file without a byte order mark."""
    number = empty = 0
    try:
        with open_bytes(path) as raw:
            file = _as_utf8(raw, encoding)
            while line := file.readline(LINE_LIMIT + 1):
                number += 1
                empty = empty + 1 if len(line) < 3 and line.isspace() else 0
                if empty > EMPTY_LINES:
                    yield Rejected(str(path), number, TOO_MANY_EMPTY)
                    return
                if len(line) > LINE_LIMIT and not (len(line) == LINE_LIMIT + 1 and line.endswith(b"\n")):
                    _skip_line(file, line)
                    yield Rejected(str(path), number, TOO_LONG)
                else:
                    yield number, line
    except (UnicodeDecodeError, *DECOMPRESSION_ERRORS) as error:
        yield _rejected(error, path, number + 1)


def pieces(path: Path) -> Iterator[bytes | Rejected]:
    """The bytes as UTF-8, in pieces that end anywhere, with a rejected record last where the file is damaged."""
    lines = 0
    try:
        with open_bytes(path) as raw:
            file = _as_utf8(raw)
            empty = 0
            while piece := b"".join(_at_least(file, _BUFFER)):
                empty = empty + piece.count(b"\n") if piece.isspace() else 0
                lines += piece.count(b"\n")
                if empty > EMPTY_LINES:
                    yield Rejected(str(path), lines, TOO_MANY_EMPTY)
                    return
                yield piece
    except (UnicodeDecodeError, *DECOMPRESSION_ERRORS) as error:
        yield _rejected(error, path, lines + 1)


def _at_least(file: Any, size: int) -> Iterator[bytes]:
    """Lines, or parts of long ones, until they make ``size`` bytes."""
    while size > 0 and (part := file.readline(size)):
        size -= len(part)
        yield part


def read_document(path: Path) -> bytes | Rejected:
    """A whole file that is one document, decompressed. Line 0 in what is rejected."""
    try:
        with open_bytes(path) as file:
            data = file.read(LINE_LIMIT + 1)
    except DECOMPRESSION_ERRORS as error:
        return _rejected(error, path, 0)
    return Rejected(str(path), 0, TOO_LONG) if len(data) > LINE_LIMIT else data


def decoded(data: bytes, path: str) -> str | Rejected:
    """Text of a file's bytes: by its byte order mark, else by what it looks like; a bad byte within UTF-8 costs nothing but itself.

    Binary data is told from text by its control characters."""
    marked = encoding_of(data)
    encoding = marked or guessed_encoding(data[:HEAD_BYTES])
    if encoding == "utf-8":
        text = data.decode("utf-8-sig", "surrogateescape")
        if "\0" in text[:_BINARY_SAMPLE] and not is_utf8(text):
            return Rejected(path, 0, BINARY)
        text = _ESCAPED.sub(lambda byte: byte.group().encode("ascii", "surrogateescape").decode("cp1252", "replace"), text)
    else:
        text = data.decode(encoding, "replace")
    sample = text[:_BINARY_SAMPLE]
    odd, lost = len(sample) - len(sample.translate(_CONTROL)), sample.count("\ufffd")
    binary = odd + (0 if marked else lost) > _BINARY_SHARE * len(sample) or 2 * lost > len(sample)
    return Rejected(path, 0, BINARY) if binary else text


def guessed_encoding(head: bytes) -> str:
    """Python's name of the encoding of text without a byte order mark: UTF-8 unless more bytes speak against it than for it."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) > 8 * min(even, odd) and 6 * max(even, odd) > len(head):  # a third of the letters are Latin, one byte of each is 0
        return "utf-16-be" if even > odd else "utf-16-le"
    beyond = _BEYOND_ASCII.findall(codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(head))
    if b"\0" in head or 2 * len(_ESCAPED.findall("".join(beyond))) <= len(beyond):
        return "utf-8"
    telling = b"\n".join(line for line in head.splitlines() if not line.isascii())[:_TELLING]
    from charset_normalizer import from_bytes

    found = from_bytes(telling, cp_isolation=list(_ENCODINGS))
    best = min(found, key=lambda match: (round(match.chaos, 2), -match.coherence, _ENCODINGS.index(match.encoding)), default=None)
    return best.encoding if best else "cp1252"


def is_text(text: str) -> bool:
    """Tell decoded text from other bytes: few of its first characters are controls, or stand for bytes that are none."""
    sample = text[:_BINARY_SAMPLE]
    return len(_NO_TEXT.findall(sample)) <= _BINARY_SHARE * len(sample)


def is_utf8(text: str) -> bool:
    """True for text that was decoded with "surrogateescape" without a bad byte."""
    return text.isascii() or _ESCAPED.search(text) is None


class _Recoded:
    """Lines of a stream in another encoding, as UTF-8; without ``newline`` they may end in a carriage return."""

    def __init__(self, file: IO[bytes], encoding: str, newline: str | None):
        errors = "surrogateescape" if encoding == "utf-8" else "strict" if encoding.startswith("utf") else "replace"
        self._text = io.TextIOWrapper(file, encoding=encoding, newline=newline, errors=errors)

    def readline(self, size: int) -> bytes:
        return self._text.readline(size).encode("utf-8", "surrogateescape")


def _as_utf8(raw: IO[bytes], unmarked: str = "utf-8") -> Any:
    """``raw`` after its byte order mark, or a stream that recodes it; ``unmarked``: the encoding where there is no mark."""
    start = cast(io.BufferedReader, raw).peek(HEAD_BYTES)[:HEAD_BYTES]
    marked, newline = encoding_of(start[:4]), None if _ends_in_returns(start) else "\n"
    if marked == "utf-8":
        raw.read(len(codecs.BOM_UTF8))
    encoding = marked or unmarked
    return raw if encoding == "utf-8" and newline else _Recoded(raw, encoding, newline)


def _ends_in_returns(start: bytes) -> bool:
    """Tell a text whose lines end in a carriage return alone, as on old Macintoshes."""
    return b"\r" in start and start.count(b"\r") - start.count(b"\r\n") > start.count(b"\n")


def _skip_line(file: Any, line: bytes) -> None:
    """Read to the end of a line, a piece at a time."""
    while line and not line.endswith(b"\n"):
        line = file.readline(_BUFFER)


def refuse_passing(error: BaseException, path: Path) -> None:
    """End the whole work where a disk fails: documents that cannot be read now are not gone. Raises Interrupted: it is of that kind."""
    if is_transient(error) or (isinstance(error, OSError) and error.errno == errno.EIO):
        problem = f"could not be read: {getattr(error, 'strerror', None) or error}"
        cure = "Nothing is changed; run the same command again, without this source if its disk fails"
        raise Interrupted(problem, path=path, cure=cure) from error


def _rejected(error: Exception, path: Path, line: int) -> Rejected:
    """The record of what ended the reading: no text, the compressed data, or the file itself. Raises Interrupted: as refuse_passing."""
    if isinstance(error, UnicodeDecodeError):
        return Rejected(str(path), line, INVALID_UTF16)
    refuse_passing(error, path)
    try:
        with open(path, "rb") as file:
            return Rejected(str(path), line, DAMAGED if compression_of(file.read(8)) else UNREADABLE)
    except OSError:
        return Rejected(str(path), line, UNREADABLE)
