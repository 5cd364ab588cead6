"""How long does a person wait for the first answer from a folder, for the next one, and after some files have changed?

    python -m benchmarks.documents.bench_first_minute DATA/corpus/simplewiki_2021.jsonl.xz --scratch DIR [--pages 1000]

Pages are text files of 3,000 characters, what a printed page holds. The command is `realm ask FOLDER "..."`, each time a new process, with
a cache of its own. The last line is one JSON object: seconds, and whether the wait was told with the time that is left.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import result
from realm.storage.decoding import json_lines

CHARACTERS = 3000
CHANGED = 10
QUESTION = "What is the capital of France?"


def pages(source: Path) -> Iterator[str]:
    """Texts of a page each, in the order of the documents."""
    held = ""
    for _, row in json_lines(source, "Fetch the file again."):
        held += f"{row['title']}\n\n{row['text']}\n\n"
        while len(held) >= CHARACTERS:
            yield held[:CHARACTERS]
            held = held[CHARACTERS:]


def asked(folder: Path, cache: Path) -> tuple[float, dict[str, str], str]:
    """Seconds of one `realm ask`, its answer, and what it said meanwhile."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "realm", "ask", str(folder), QUESTION, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"XDG_CACHE_HOME": str(cache)})
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return time.perf_counter() - started, answer, done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="documents to cut into pages")
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--again", type=int, default=5, help="how often the next answer is timed")
    arguments = parser.parse_args()
    folder, cache = arguments.scratch / "pages", arguments.scratch / "cache"
    shutil.rmtree(arguments.scratch, ignore_errors=True)
    folder.mkdir(parents=True)
    texts = pages(arguments.source)
    for number in range(arguments.pages):
        (folder / f"page-{number:05d}.txt").write_text(next(texts), "utf-8")
    first, answer, said = asked(folder, cache)
    again = sorted(asked(folder, cache)[0] for _ in range(arguments.again))
    for number in range(CHANGED):
        (folder / f"page-{number:05d}.txt").write_text(next(texts), "utf-8")
    changed, _, _ = asked(folder, cache)
    found = {
        "pages": arguments.pages,
        "first_seconds": round(first, 1),
        "again_seconds_median": round(again[len(again) // 2], 2),
        "changed_pages": CHANGED,
        "changed_seconds": round(changed, 1),
        "told_time_left": " left" in said,
        "answer": answer["answer"],
    }
    print(json.dumps(result("first minute", os.cpu_count() or 1, **found)))


if __name__ == "__main__":
    main()
