"""How long does a person wait for the first answer from a folder, for the next one, and after some files have changed?

    python -m benchmarks.documents.bench_first_minute [DATA/corpus/simplewiki_2021.jsonl.xz] --scratch DIR [--pages 1000]

Pages are text files of 3,000 characters, what a printed page holds. The command is `realm ask FOLDER "..."`, each time a new process, with
a cache of its own. Then starts alone, in turns, medians: help, a first answer from three notes, an answer from the pages (without DATA:
from the notes), a server until it is ready. Wall seconds say what somebody waits here and now, processor seconds what would be waited on
idle cores, and "ratio" divides those by importing numpy, pyarrow and ONNX Runtime in the same run. The last line is one JSON object.
"""

import argparse
import json
import os
import platform
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from realm.storage.files import json_lines

CHARACTERS = 3000
CHANGED = 10
QUESTION = "What is the capital of France?"
REALM = (sys.executable, "-m", "realm")  # not from common.py, whose torch would count as memory of what this process starts
NOTES = {
    "bridge.md": "# The bridge\nThe wooden bridge over the Ilm was repaired by Martha Quincke in the spring of 1987.",
    "mill.md": "# The mill\nThe mill belongs to the Haas family, who bought it in 1921 for 4,200 marks. It grinds rye on Saturdays.",
    "school.txt": "The village school opened on 3 September 1904 with 41 pupils. Its first teacher was Johann Weber.",
}
SERVED = "http://"
"""What `realm serve` prints when it is ready."""


def taken(command: list[str], environment: dict[str, str], until: str = "") -> tuple[float, float, int]:
    """Wall seconds, processor seconds and peak MiB of a process that ends, or that is ended when it prints ``until``."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    assert process.stdout is not None
    said = b""
    while until.encode() not in said if until else True:
        select.select([process.stdout], [], [])
        if not (part := os.read(process.stdout.fileno(), 1 << 16)):
            break
        said += part
    seconds = time.perf_counter() - started
    if until:
        process.send_signal(signal.SIGINT)
    _, status, used = os.wait4(process.pid, 0)
    if status and not until:
        raise SystemExit(said.decode())
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss >> 10


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
    command = [*REALM, "ask", str(folder), QUESTION, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"XDG_CACHE_HOME": str(cache)})
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return time.perf_counter() - started, answer, done.stderr


def starts(folder: Path, scratch: Path, cache: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Each way of starting: seconds, processor seconds and their ratio, peak memory."""
    notes, new = scratch / "notes", scratch / "new"
    ways = {
        "imports": ([sys.executable, "-c", "import numpy, pyarrow, onnxruntime"], cache, ""),
        "help": ([*REALM, "--help"], cache, ""),
        "first answer, three notes": ([*REALM, "ask", str(notes), QUESTION], new, ""),
        "answer": ([*REALM, "ask", str(folder), QUESTION], cache, ""),
        "serve": ([*REALM, "serve", str(folder), "--port", "0"], cache, SERVED),
    }
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (command, kept, until) in ways.items():
            shutil.rmtree(new, ignore_errors=True)
            found[name].append(taken(command, os.environ | {"XDG_CACHE_HOME": str(kept)}, until))
    rows: dict[str, dict[str, float]] = {}
    for name, times in found.items():
        wall, worked, peak = (statistics.median(column) for column in zip(*times, strict=True))
        rows[name] = {"seconds": round(wall, 2), "processor_seconds": round(worked, 2), "peak_mib": int(peak)}
        rows[name]["ratio"] = round(worked / rows["imports"]["processor_seconds"], 1)
    return rows


def minute(source: Path, folder: Path, cache: Path, count: int, repeated: int) -> dict[str, Any]:
    """Seconds until the first answer from so many pages, the next one, and one after a change."""
    folder.mkdir()
    texts = pages(source)
    for number in range(count):
        (folder / f"page-{number:05d}.txt").write_text(next(texts), "utf-8")
    first, answer, said = asked(folder, cache)
    again = [asked(folder, cache)[0] for _ in range(repeated)]
    for number in range(CHANGED):
        (folder / f"page-{number:05d}.txt").write_text(next(texts), "utf-8")
    changed, _, _ = asked(folder, cache)
    return {
        "pages": count,
        "first_seconds": round(first, 1),
        "again_seconds_median": round(statistics.median(again), 2),
        "changed_pages": CHANGED,
        "changed_seconds": round(changed, 1),
        "told_time_left": " left" in said,
        "answer": answer["answer"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, nargs="?", help="documents to cut into pages")
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--again", type=int, default=5, help="how often the next answer, and each start, is timed")
    arguments = parser.parse_args()
    scratch = arguments.scratch
    folder, notes, cache = scratch / "pages", scratch / "notes", scratch / "cache"
    shutil.rmtree(scratch, ignore_errors=True)
    notes.mkdir(parents=True)
    for name, text in NOTES.items():
        (notes / name).write_text(text, "utf-8")
    found = {} if arguments.source is None else minute(arguments.source, folder, cache, arguments.pages, arguments.again)
    asked(notes, cache)
    found["starts"] = starts(folder if found else notes, scratch, cache, arguments.again)
    hardware = f"{platform.machine()}, {os.cpu_count()} threads"
    print(json.dumps({"benchmark": "first minute", "hardware": hardware, "python": platform.python_version(), **found}))


if __name__ == "__main__":
    main()
