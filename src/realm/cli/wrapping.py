"""Help at the width of the terminal: tyro breaks the lines in its boxes, but neither usage nor descriptions."""

import io
import re
import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class _Wrapping(io.TextIOBase):
    """Passes text on to ``stream`` with no line longer than ``width``; a terminal stays a terminal."""

    def __init__(self, stream: TextIO, width: int):
        self._stream, self._width = stream, width

    def write(self, text: str) -> int:
        self._stream.write("".join(self._wrapped(line) for line in text.splitlines(keepends=True)))
        return len(text)

    def _wrapped(self, line: str) -> str:
        if len(COLOURS.sub("", line.rstrip("\n"))) <= self._width:
            return line
        usage = COLOURS.sub("", line).startswith("usage:")
        indent = " " * 4 if usage else ""
        if usage:
            line = line.replace(",", ", ")  # the list of verbs is one word
        return textwrap.fill(line, self._width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) + "\n"

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """tyro draws its boxes where this can hold them."""
        return self._stream.encoding


@contextmanager
def wrapped_output() -> Iterator[None]:
    """Wrap what is written to standard output while the block lasts."""
    import sys

    with redirect_stdout(_Wrapping(sys.stdout, shutil.get_terminal_size().columns)):
        yield
