"""Work on one document that may be much, done in a child that may take so much time and memory for each and no more.

Nothing can stop libxml2 or a PDF's decompressor in this process: a page with 300,000 attributes takes it hours. The child is told
what to read on its standard input and answers on its standard output, a line of JSON and then the bytes it names, either way; the kernel
ends it at its limits, and the next document gets a new one. It ends with us, since its standard input does."""

import atexit
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from math import inf
from mmap import PAGESIZE
from pathlib import Path
from typing import IO, Any

from realm.documents.records import DAMAGED_FILE, TOO_MUCH_MEMORY, TOO_SLOW, Rejected
from realm.documents.streams import read_document
from realm.storage.files import json_value
from realm.storage.processes import python

try:
    import resource
except ImportError:  # Windows has no limits of the kernel
    resource = None  # type: ignore[assignment]
MEMORY = 800 * 2**20
"""Bytes that one document may add to the child."""
BYTES_OF_TIME = 2**20
"""Of a file, for as many more it has the time of a document once more: a book of thousands of pages is none that takes too long."""
SMALL = 20_000
"""Bytes of a document that cannot be much work whatever it holds: read here."""
_READERS = {
    "pages.texts": {"html": "main_text", "markdown": "marked_down"},
    "pages.pdf": {"pdf": "pdf_pages", "pdf pictures": "pdf_pictures", "pdf page": "pdf_page_picture"},
    "pages.word": {"docx": "docx_text"},
    "pages.markup": {"xml": "xml_text", "notebook": "notebook_text", "odt": "odt_text", "epub": "epub_chapters"},
    "pages.office": {"slides": "slides", "sheets": "sheets", "rtf": "rtf"},
    "pages.recognition": {"picture": "picture_text"},
    "sources.mail": {"mail": "message_text", "outlook": "outlook_text"},
    "sources.tables": {"parquet": "parquet_rows"},
    "wiki.text": {"wikitext": "cleaned_page"},
    "ingest.packed": {"stages": "stages"},
}
"""Modules in this room, the kinds of work that they do, and by which function."""
_PLAIN = frozenset({"html", "markdown", "mail", "notebook"})
"""Kinds of which few bytes are little work; of others they may unpack to any number."""


@dataclass(frozen=True)
class Beyond:
    """A document that was given up, and the reason it is counted under."""

    reason: str


def read_limited(kind: str, data: bytes, seconds: float, damaged: str = DAMAGED_FILE) -> Any:
    """Read a document by the reader of a kind, of ``_READERS``, in so many seconds of computing: JSON values, or ``Beyond``; a page is
    given in UTF-8, and what the reader refuses is ``damaged``."""
    try:
        if len(data) <= SMALL and kind in _PLAIN:
            return _reader(kind)(data)
        parts, _, beyond = read_parts(kind, data, seconds)
    except (ValueError, RecursionError, AssertionError):
        return Beyond(damaged)
    return parts[0] if beyond is None else beyond


def read_file(kind: str, path: Path, seconds: float) -> Any:
    """The same of a whole file, or why it is rejected."""
    data = read_document(path)
    found = data if isinstance(data, Rejected) else read_limited(kind, data, seconds)
    return Rejected(str(path), 0, found.reason) if isinstance(found, Beyond) else found


def read_parts(kind: str, data: bytes, seconds: float, most: float = inf) -> tuple[list[Any], float, Beyond | None]:
    """The same of a reader that yields a document in parts, as a PDF's pages: the parts, the seconds they took, and why others are missing.

    Args: ``seconds`` for each part, and ``most`` for all."""
    with _asking:
        return _child.read(kind, data, seconds, most)


def _reader(kind: str) -> Callable[[bytes], Any]:
    module, name = next((module, functions[kind]) for module, functions in _READERS.items() if kind in functions)
    found: Callable[[bytes], Any] = getattr(import_module(f"realm.documents.{module}"), name)
    return found


class _Child:
    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, kind: str, data: bytes, seconds: float, most: float) -> tuple[list[Any], float, Beyond | None]:
        process = self._process
        if process is None or process.poll() is not None:
            command = python("realm.documents.limited")
            process = self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        parts, used = list[Any](), 0.0
        try:
            _send(process.stdin, {"kind": kind, "seconds": seconds}, data)
            while used <= most:
                said, answer = _receive(process.stdout)
                used = said["used"]
                if said["what"] == "refused":
                    raise ValueError(said["why"])
                if said["what"] != "part":
                    return parts, used, Beyond(TOO_MUCH_MEMORY) if said["what"] == "memory" else None
                parts.append(json_value(answer))
            process.kill()
            self.end()
            return parts, used, Beyond(TOO_SLOW)
        except (OSError, EOFError):
            self.end()
            # The kernel ends it at the limit of time; anything else that ends it, so far, was memory that it could not have.
            slow = process.returncode in (-24, -9)  # SIGXCPU, SIGKILL
            return parts, used + seconds * slow, Beyond(TOO_SLOW if slow else TOO_MUCH_MEMORY)

    def end(self) -> None:
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    assert stream is not None
                    stream.close()
            self._process.wait()
            self._process = None


_child, _asking = _Child(), threading.Lock()
atexit.register(_child.end)


def _send(stream: IO[bytes] | None, facts: dict[str, Any], data: bytes) -> None:
    assert stream is not None
    stream.write(json.dumps({**facts, "bytes": len(data)}).encode() + b"\n")
    stream.write(data)
    stream.flush()


def _receive(stream: IO[bytes] | None) -> tuple[dict[str, Any], bytes]:
    """Raises EOFError: the other side has ended."""
    assert stream is not None
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    facts: dict[str, Any] = json_value(line)
    data = stream.read(facts["bytes"])
    if len(data) < facts["bytes"]:
        raise EOFError
    return facts, data


def main() -> None:
    """The child: read what is requested until its input ends."""
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    while asked.peek(1):  # type: ignore[union-attr]
        facts, data = _receive(asked)
        reader = _reader(facts["kind"])
        for name in ("RLIMIT_CPU", "RLIMIT_AS"):  # not those of the document before
            _limit(name, None)
        with suppress(Exception):
            deque(_parts(reader, b""), 0)  # its imports are not the document's
        began = time.process_time()

        def say(what: str, value: bytes = b"", began: float = began, **more: str) -> None:
            _send(answers, {"what": what, "used": time.process_time() - began, **more}, value)

        try:
            _limit_memory()
            _limit("RLIMIT_CPU", int(time.process_time() + facts["seconds"]) + 1)
            for part in _parts(reader, data):
                say("part", json.dumps(part).encode("utf-8"))
                _limit("RLIMIT_CPU", int(time.process_time() + facts["seconds"]) + 1)
            say("read")
        except MemoryError:
            say("memory")
        except Exception as error:  # what others' code raises, and whatever it is, it is about the document
            say("refused", why=f"{type(error).__name__}: {error}"[:500])


def _parts(reader: Callable[[bytes], Any], data: bytes) -> Iterator[Any]:
    """Parts that a reader yields, or the one thing that it returns."""
    found = reader(data)
    if isinstance(found, Iterator):
        yield from found
    else:
        yield found


def _limit(name: str, value: int | None) -> None:
    """Set a limit of this process, or lift it as far as it may be; Windows has none."""
    if resource is not None:
        kind = getattr(resource, name)
        _, most = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if value is None else value, most))


def _limit_memory() -> None:
    """Beyond what is used now, where the system says how much that is."""
    _limit("RLIMIT_CORE", 0)
    statm = Path("/proc/self/statm")
    if statm.exists():
        _limit("RLIMIT_AS", int(statm.read_text().split()[0]) * PAGESIZE + MEMORY)


if __name__ == "__main__":
    from realm.documents import limited  # itself, under the name by which readers know it

    limited.main()
