"""What do checksums cost? The seconds spent in them, of those that building, indexing, opening and asking take.

    python benchmarks/bench_checksums.py DOCUMENTS [--documents 1500] [--body realm-minilm-en] [--asked 20] [--repeats 5]

DOCUMENTS is a file of documents as a recipe takes it, of which the first are used. Every function that computes a checksum of a file or of
bytes is timed, its reading included, while a corpus is built, an index is built over it, the run is opened and questions are asked: so what
else the machine does shows on both sides of the ratio. Opening and asking happen in a process of their own each time, after one that
filled the page cache. Shares are checks / (all - checks), medians of the repeats. The last line is one JSON object.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from realm.storage import files, sums

spent = 0.0
"""Seconds in checksums so far, in this process."""


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its seconds added to ``spent``."""

    def run(*arguments: Any, **named: Any) -> Any:
        global spent
        started = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            spent += time.perf_counter() - started

    return run


# Before the modules that take these by name are imported.
sums.bytes_sum, sums.file_sum, files.sha256_file = timed(sums.bytes_sum), timed(sums.file_sum), timed(files.sha256_file)

from common import result  # noqa: E402
from realm.config import build_recipe  # noqa: E402
from realm.opening import open_run  # noqa: E402
from realm.pipeline import run_recipe  # noqa: E402
from realm.progress import Progress  # noqa: E402
from realm.text.files import json_lines  # noqa: E402


@contextmanager
def share(found: dict[str, dict[str, float]], name: str) -> Iterator[None]:
    """Note the seconds of the block, and those of its checksums."""
    started, before = time.perf_counter(), spent
    yield
    found[name] = {"seconds": time.perf_counter() - started, "in_checksums": spent - before}


def built(documents: Path, count: int, body: str, out: Path) -> dict[str, dict[str, float]]:
    """Build a corpus of the first documents, and an index over it."""
    source, found = out / "documents.jsonl", dict[str, dict[str, float]]()
    rows = itertools.islice((row for _, row in json_lines(documents, "Name a file of documents.")), count)
    source.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    sections = {
        "model": {"body": body},
        "corpus": {"sources": [str(source)], "tagger": "none"},
        "retrieval": {"kind": "hybrid"},
        "pretrain": {"steps": 0},
    }
    for name, stage in (("build", "corpus"), ("index", "pretrain")):
        with share(found, name):
            run_recipe(build_recipe(sections), out / "run", stages=(stage,), progress=Progress(quiet=True))
    return found


def opened_and_asked(run: Path, asked: int) -> dict[str, dict[str, float]]:
    """Open a run in this process, and ask it of its own documents."""
    found: dict[str, dict[str, float]] = {}
    with share(found, "open"):
        opened = open_run(run)
        answerer = opened.answerer
    store = opened.inputs.store
    titles = [store.block(row).title for row in range(0, len(store), max(1, len(store) // asked))][:asked]
    with share(found, "first ask"):
        answerer.answer([f"What is {titles[0]}?"])
    with share(found, "ask"):
        for title in titles:
            answerer.answer([f"What is {title}?"])
    return found


def elsewhere(run: Path, asked: int) -> dict[str, dict[str, float]]:
    """``opened_and_asked`` in a process of its own."""
    command = [sys.executable, __file__, str(run), "--asked", str(asked), "--open"]
    found: dict[str, dict[str, float]] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--documents", dest="count", type=int, default=1500)
    parser.add_argument("--body", default="realm-minilm-en")
    parser.add_argument("--asked", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--open", action="store_true", help="DOCUMENTS is a run: open it and ask, once")
    arguments = parser.parse_args()
    if arguments.open:
        print(json.dumps(opened_and_asked(arguments.documents, arguments.asked)))
        return
    rounds = []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(arguments.repeats):
            out = Path(scratch) / str(number)
            out.mkdir()
            found = built(arguments.documents, arguments.count, arguments.body, out)
            elsewhere(out / "run", 1)
            rounds.append(found | elsewhere(out / "run", arguments.asked))
            print(json.dumps(rounds[-1]), flush=True)
    shares = {
        name: statistics.median(one[name]["in_checksums"] / (one[name]["seconds"] - one[name]["in_checksums"]) for one in rounds)
        for name in rounds[0]
    }
    print(json.dumps(result("checksums", 2, body=arguments.body, documents=arguments.count, shares=shares, rounds=rounds)))


if __name__ == "__main__":
    main()
