"""Large changes of documents in a child process, which takes the memory with it, while the server keeps answering.

``python -m realm.serve.beside RUN KIND FILE`` prints {"kind", "problem", "cure", "line"} of an error as one line of JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from realm import errors
from realm.answering.opening import open_run
from realm.documents.change.updates import add_documents, update_documents
from realm.errors import CorpusError, RealmError
from realm.storage.decoding import json_value
from realm.storage.paths import RunPaths
from realm.storage.processes import end_with_stdin, python

MIN_CHILD_BYTES = 256 * 2**10
"""A file of documents of at least so many bytes gets its own process, which takes seconds to start."""
CHILD_NICENESS = 5
"""Questions come first."""
CHANGES: dict[str, Callable[..., object]] = {"added": add_documents, "replaced": update_documents}


def change(run: Path, kind: str, file: Path) -> None:
    """Take in a file of JSON lines, strictly: here where it is small, in a process of its own where it is not. ``kind``: of CHANGES.

    Raises RealmError: as the change raises it; nothing is changed."""
    if file.stat().st_size < MIN_CHILD_BYTES:
        CHANGES[kind](RunPaths(run).corpus, [file], strict=True, workers=1)
        return
    child = subprocess.Popen(
        python("realm.serve.beside", str(run), kind, str(file)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    with child:
        assert child.stdin is not None and child.stdout is not None
        said = _last_line(child.stdout.read())  # its end; its standard input stays open until then, and closes with this process
    if "problem" in said:
        raise _error_of(said)
    if child.returncode:
        problem = f"the process that stores the documents ended with code {child.returncode}, perhaps out of memory"
        raise CorpusError(problem, path=run, cure="Check which documents are stored, and send the others in smaller requests")


def _last_line(output: bytes) -> dict[str, Any]:
    try:
        value = json_value((output.splitlines() or [b"{}"])[-1])
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _error_of(said: dict[str, Any]) -> RealmError:
    """The error that the child ended with. It names no file: the one of the request is gone."""
    found = getattr(errors, str(said.get("kind")), None)
    kind = found if isinstance(found, type) and issubclass(found, RealmError) else CorpusError
    return kind(str(said["problem"]), line=said.get("line"), cure=said.get("cure"))


def main(run: Path, kind: str, file: Path) -> int:
    """The child. Returns the exit code."""
    end_with_stdin()
    os.nice(CHILD_NICENESS)
    try:
        CHANGES[kind](RunPaths(run).corpus, [file], strict=True, workers=1)
    except RealmError as error:
        print(json.dumps({"kind": type(error).__name__, "problem": error.problem, "cure": error.cure, "line": error.line}))
        return 2
    with suppress(RealmError):  # the change is made; the server embeds it, and says what is wrong if it cannot either
        open_run(run).with_added()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
