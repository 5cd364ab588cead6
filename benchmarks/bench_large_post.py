"""What does a server do while it takes in one request of 8 MB of documents?

    python benchmarks/bench_large_post.py RUN DOCUMENTS [--megabytes 7.9]

Works on a copy of RUN, which answers. A client asks a question every half second, at first alone, then while another client adds the first
documents of DOCUMENTS in one request. Reported are the seconds of an answer alone and beside, the server's resident memory before and its
peak while the documents were taken in, the peak of the process that takes them in, and what either grew by at the end. Linux. The last line
is one JSON object.
"""

import argparse
import itertools
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_serve import questions_of, start
from common import result
from realm.client import Client
from realm.opening import open_run
from realm.text.files import json_lines

EVERY = 0.5
"""Seconds from one question to the next."""
ALONE = 20.0
LONGEST = 3600
DOCUMENTS = 800
"""Of one request: a server takes at most 1,000."""


def some_documents(path: Path, size: int) -> list[dict[str, str]]:
    """``DOCUMENTS`` made of the first texts of a file, whose JSON has about ``size`` bytes, under names that are free."""
    made, texts = list[dict[str, str]](), list[str]()
    for _, row in json_lines(path, "Name a file of documents."):
        texts.append(str(row["text"]))
        if sum(map(len, texts)) >= size // DOCUMENTS:
            made.append({"id": f"posted/{len(made)}", "title": str(row["title"]), "text": " ".join(texts)})
            texts = []
            if len(made) % 10 == 0 and len(json.dumps({"documents": made})) > 0.98 * size:
                break
    while len(json.dumps({"documents": made})) > size:
        made.pop()
    return made


def resident(pid: int, field: str = "VmRSS") -> float:
    """MiB of a process; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:")), 0.0)


def children(pid: int) -> Iterator[int]:
    """The processes that a process has started, and those of theirs."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from children(int(child))


class Watch:
    """Peaks of memory, sampled until it is told to end."""

    def __init__(self, pid: int):
        self.server = self.child = 0.0
        self._pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._over.wait(0.1):
            self.server = max(self.server, resident(self._pid))
            try:
                self.child = max([self.child, *(resident(child) for child in children(self._pid))])
            except OSError:
                continue

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def asked(port: int, questions: list[str], over: threading.Event) -> list[float]:
    """Seconds of each answer, one question after the other until it is over."""
    seconds = []
    with Client(f"http://127.0.0.1:{port}", timeout=LONGEST) as client:
        for question in itertools.cycle(questions):
            if over.is_set():
                return seconds
            began = time.perf_counter()
            client.answer([question], k=5, timeout_ms=60_000)
            seconds.append(time.perf_counter() - began)
            time.sleep(max(0.0, EVERY - seconds[-1]))
    return seconds


def spread(seconds: list[float]) -> dict[str, float]:
    """Median, nine of ten, longest."""
    ordered = sorted(seconds)
    return {"n": len(ordered), "p50": statistics.median(ordered), "p90": ordered[int(0.9 * (len(ordered) - 1))], "longest": ordered[-1]}


def measured(process: Any, port: int, questions: list[str], documents: list[dict[str, str]]) -> dict[str, Any]:
    """Answers alone, then beside one large addition."""
    alone = threading.Event()
    threading.Timer(ALONE, alone.set).start()
    before = spread(asked(port, questions, alone))
    base, over, watch = resident(process.pid), threading.Event(), Watch(process.pid)
    took: list[float] = []

    def add() -> None:
        began = time.perf_counter()
        try:
            with Client(f"http://127.0.0.1:{port}", timeout=LONGEST) as client:
                client.add(documents)  # type: ignore[arg-type]
            took.append(time.perf_counter() - began)
        finally:
            over.set()

    threading.Thread(target=add).start()
    beside = spread(asked(port, questions, over))
    watch.end()
    if not took:
        raise SystemExit("the documents were not taken in")
    memory = {"server_before": base, "server_peak": watch.server, "server_after": resident(process.pid), "child_peak": watch.child}
    return {"alone": before, "beside": beside, "taken_in_seconds": took, "mib": {name: round(value) for name, value in memory.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--megabytes", type=float, default=7.9)
    arguments = parser.parse_args()
    documents = some_documents(arguments.documents, int(arguments.megabytes * 2**20))
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(shutil.copytree(arguments.run, Path(scratch) / "run"))
        process, port = start(run)
        try:
            found = measured(process, port, questions_of(open_run(run), 50), documents)
        finally:
            process.terminate()
            process.wait()
    print(json.dumps(result("large post", 2, megabytes=arguments.megabytes, documents=len(documents), **found)))


if __name__ == "__main__":
    main()
