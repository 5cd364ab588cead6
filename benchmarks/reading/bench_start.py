"""How much work is the first answer of a new process? Each way of starting beside importing numpy, pyarrow and ONNX Runtime alone.

    python -m benchmarks.reading.bench_start [--documents FILE] [--rounds 7]

The ways take turns, and medians count: wall seconds say what somebody waits here and now, processor seconds what would be waited on idle
cores, and "ratio" divides those by what the imports take on the same machine in the same run. Documents are three notes, or FILE, whose
blocks decide the memory. The last line is one JSON object.
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
import tempfile
import time
from pathlib import Path

REALM = (sys.executable, "-m", "realm")  # not from common.py, whose torch would count as memory of what this process starts
IMPORTS = "numpy, pyarrow, onnxruntime"
NOTES = {
    "bridge.md": "# The bridge\nThe wooden bridge over the Ilm was repaired by Martha Quincke in the spring of 1987.",
    "mill.md": "# The mill\nThe mill belongs to the Haas family, who bought it in 1921 for 4,200 marks. It grinds rye on Saturdays.",
    "school.txt": "The village school opened on 3 September 1904 with 41 pupils. Its first teacher was Johann Weber.",
}
QUESTION = "Who repaired the bridge?"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=Path, help="a file of documents instead of three notes")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder, cache = Path(scratch) / "notes", Path(scratch) / "cache"
        folder.mkdir()
        for name, text in NOTES.items():
            (folder / name).write_text(text, "utf-8")
        asked = folder if arguments.documents is None else arguments.documents
        ask = [*REALM, "ask", str(asked), QUESTION]
        first = [*REALM, "ask", str(folder), QUESTION]
        ways = {
            "imports": ([sys.executable, "-c", f"import {IMPORTS}"], cache, ""),
            "help": ([*REALM, "--help"], cache, ""),
            "first answer, three notes": (first, Path(scratch) / "new", ""),
            "answer": (ask, cache, ""),
            "serve": ([*REALM, "serve", str(asked), "--port", "0"], cache, SERVED),
        }
        taken(ask, os.environ | {"XDG_CACHE_HOME": str(cache)})
        found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, (command, kept, until) in ways.items():
                shutil.rmtree(Path(scratch) / "new", ignore_errors=True)
                found[name].append(taken(command, os.environ | {"XDG_CACHE_HOME": str(kept)}, until))
    rows = {}
    for name, times in found.items():
        wall, worked, peak = (statistics.median(column) for column in zip(*times, strict=True))
        rows[name] = {"seconds": round(wall, 2), "processor_seconds": round(worked, 2), "peak_mib": int(peak)}
    least = rows["imports"]["processor_seconds"]
    for row in rows.values():
        row["ratio"] = round(row["processor_seconds"] / least, 1)
    print(json.dumps({"benchmark": "start", "hardware": f"{platform.machine()}, {os.cpu_count()} threads", "ways": rows}))


if __name__ == "__main__":
    main()
