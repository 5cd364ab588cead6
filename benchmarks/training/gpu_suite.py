"""Everything that wants a GPU, in one command: parts of at most eight minutes, each writing its JSON as it goes.

    python -m benchmarks.training.gpu_suite --out gpu-suite --documents simplewiki_2021.jsonl.xz    # again: it goes on
    python -m benchmarks.training.gpu_suite --out gpu-suite --toy                                    # on any CPU, in a minute or two

parity    CPU and GPU give the same loss, the same gradients and the same search results; bf16 within 1 %; steps that read nothing back
          give the weights of those that do
step      a step of pre-training at base size and at all-MiniLM-L6-v2's: seconds, peak memory, share of the measured bf16 peak
search    exact search of 13.35 million embeddings for 1, 16 and 64 queries
refresh   a step of pre-training with a frozen index and beside a refresher that is never idle
pretrain  preset small on the documents: corpus, warm, ict, pretrain; goes on where it stopped each time the suite is started

Every part is a process of its own, so that one that dies takes nothing with it. ``OUT/<part>.json`` holds {"part", "device", "done",
"rows": {name: row}}: a part that is done is not run again, one that is not is asked only for the rows it lacks. A row that failed says so
in "error" and is tried again. Exit code 1 when a part is not done. Prints one JSON object as its last line.
"""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.training.gpu_parts import OutOfTime, Rows

PARTS = ("parity", "step", "search", "refresh", "pretrain")
GRACE = 60.0
"""Seconds beyond its time after which a part is ended from outside."""


def run_part(options: argparse.Namespace) -> None:
    """In the part's own process."""
    from benchmarks.training.gpu_parts import MEASURES, device_in_words, size_of

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what it started is ended on the way out
    size = size_of(options.toy, options.documents, options.threads)
    path = options.out / f"{options.part}.json"
    rows = Rows(path, options.part, device_in_words() + (", toy" if options.toy else ""), 60 * options.minutes)
    try:
        MEASURES[options.part](rows, size, options.out)
    except OutOfTime:
        return
    rows.finish()


def start_part(part: str, arguments: Sequence[str], minutes: float) -> None:
    """A part in its own process, ended from outside when it does not end by itself."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.training.gpu_suite", "--part", part, *arguments])
    try:
        process.wait(60 * minutes + GRACE)
    except subprocess.TimeoutExpired:
        print(f"{part}: ended after {minutes} minutes and a grace of {GRACE:.0f} s", file=sys.stderr)
    finally:
        process.terminate()
        process.wait()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory of the results and of the pre-training run")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--documents", type=Path, help="JSONL.xz of documents; the bundled atlas by default")
    parser.add_argument("--minutes", type=float, default=8.0, help="of each part")
    parser.add_argument("--toy", action="store_true", help="sizes of seconds on a CPU")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := set(options.parts.split(",")) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return options


def is_done(path: Path) -> bool:
    return path.exists() and json.loads(path.read_text("utf-8"))["done"]


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.part:
        run_part(options)
        return 0
    parts = options.parts.split(",")
    for part in parts:
        if not is_done(options.out / f"{part}.json"):
            start_part(part, arguments, options.minutes)
    files = {part: options.out / f"{part}.json" for part in parts}
    found = {part: json.loads(path.read_text("utf-8")) for part, path in files.items() if path.exists()}
    print(json.dumps({"benchmark": "gpu_suite", "done": [part for part in parts if found.get(part, {}).get("done")], "parts": found}))
    return 0 if all(is_done(path) for path in files.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
