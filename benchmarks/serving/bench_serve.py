"""The server under load, against the same questions through the Answerer in this process: questions a second, and latencies.

Starts `realm serve` as a process on a copy of a run and asks it over loopback with 1, 8 and 64 clients, each with a connection of its own,
one question a request and one request at a time; the clients write and read the bytes of HTTP themselves, so that what is measured is the
server. The offline rows are the Answerer alone, batched by itself and one by one. Rounds of all
rows are interleaved; the ratios compare medians. Needs a run that is fine-tuned, such as that of `realm demo`.

    python -m benchmarks.serving.bench_serve runs/demo --questions 512 --rounds 3
    python -m benchmarks.serving.bench_serve FOLDER --beside OTHER/src --questions 256 --rounds 3

The second form compares two versions of this package as servers of one folder of texts with 64 clients, in turns; OTHER is a checkout whose
dependencies are here. Each reads the folder by itself, before anything is measured, into a cache of its own.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import realm
from benchmarks.common import result
from realm.answering.opening import OpenRun, open_run

CLIENTS = (1, 8, 64)
K = 5


def questions_of(opened: OpenRun, count: int) -> list[str]:
    """Sentences of the corpus as questions: as long as what people ask, and every run has them."""
    store = opened.inputs.store
    rows = np.resize(np.flatnonzero(store.live), count)
    texts = []
    for row in rows.tolist():
        block = store.block(row)
        start, end = store.sentences(row).chars[0]
        texts.append(f"What is known of {block.title}? {block.text[start:end]}"[:120])
    return texts


def start(run: Path, **environment: str) -> tuple[subprocess.Popen[str], int]:
    """A server as a process of its own, and its port."""
    command = [sys.executable, "-m", "realm", "serve", str(run), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment)
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if line.startswith("serving "):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, int(line.split(" at ")[1].split(";")[0].rpartition(":")[2])
    raise SystemExit(f"the server did not start: {said}")


class Connection:
    """One connection that stays open, with hardly any work of its own: a library for HTTP takes as long as the server for a request."""

    def __init__(self, port: int):
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = f"POST /v1/answer HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\ncontent-length: "

    def post(self, body: bytes) -> bytes:
        """The body of the response to a question; ends the program if that is no success."""
        self._socket.sendall(f"{self._head}{len(body)}\r\n\r\n".encode() + body)
        read = b""
        while b"\r\n\r\n" not in read:
            read += self._received()
        head, _, found = read.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while len(found) < length:
            found += self._received()
        if not head.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"{head[:100]!r}: {found[:200]!r}")
        return found

    def _received(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise SystemExit("the server closed a connection")
        return data


def ask(port: int, questions: list[str], clients: int) -> tuple[float, list[float], dict[str, float]]:
    """Seconds for all questions, the latency of each, and the server's own milliseconds for parts of a question."""
    latencies: list[float] = []
    found: list[bytes] = []
    left = iter([json.dumps({"questions": [question], "k": K, "timeout_ms": 60_000}).encode() for question in questions])
    lock = threading.Lock()

    def client() -> None:
        connection = Connection(port)
        while True:
            with lock:
                body = next(left, None)
            if body is None:
                return
            began = time.perf_counter()
            answer = connection.post(body)
            took = time.perf_counter() - began
            with lock:
                latencies.append(took)
                found.append(answer)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if len(found) < len(questions):
        raise SystemExit("requests failed")
    parts: dict[str, list[float]] = {}
    for timings in (json.loads(answer)["answers"][0]["timings_ms"] for answer in found):
        for name, value in timings.items():
            parts.setdefault(name, []).append(value)
    return seconds, latencies, {name: statistics.median(values) for name, values in parts.items()}


def row(method: str, count: int, seconds: list[float], latencies: list[float], parts: dict[str, float]) -> dict[str, Any]:
    """One row: questions a second by the median round, and latencies over all rounds."""
    found = {"method": method, "questions_per_second": round(count / statistics.median(seconds), 1)}
    if latencies:
        p50, p95, p99 = np.percentile(np.array(latencies) * 1000, [50, 95, 99]).round(1).tolist()
        found |= {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99}
    return {**found, **{f"{name}_ms": round(value, 2) for name, value in parts.items()}}


def versions(folder: Path, sources: dict[str, Path], caches: Path, count: int, rounds: int) -> dict[str, Any]:
    """Questions a second of servers of these versions' sources over one folder, and the ratio of the first's to the last's."""
    sentences = [one.strip() for path in sorted(folder.rglob("*.txt")) for one in path.read_text("utf-8").split(". ") if len(one) > 40]
    questions = [f"What is known of this? {sentences[at % len(sentences)]}"[:120] for at in range(0, 7 * count, 7)]
    servers = {name: start(folder, PYTHONPATH=str(path), XDG_CACHE_HOME=str(caches / name)) for name, path in sources.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sources}
    latencies: dict[str, list[float]] = {name: [] for name in sources}
    try:
        for turn in range(-1, rounds):
            for name, (_, port) in servers.items():
                took, each, _ = ask(port, questions if turn >= 0 else questions[:64], CLIENTS[-1])
                if turn >= 0:
                    seconds[name].append(took)
                    latencies[name] += each
    finally:
        for process, _ in servers.values():
            process.terminate()
            process.wait()
    rows = [row(f"{name}, {CLIENTS[-1]} clients", count, seconds[name], latencies[name], {}) for name in sources]
    first, *_, last = (line["questions_per_second"] for line in rows)
    return result("serve, two versions", torch.get_num_threads(), k=K, questions=count, rows=rows, times=round(first / last, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--questions", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="sources of another version")
    parser.add_argument("--caches", type=Path, help="where both versions keep what they read; otherwise they read it now")
    arguments = parser.parse_args()
    if arguments.beside is not None:
        own = Path(realm.__file__).parents[1]
        with tempfile.TemporaryDirectory() as scratch:
            sources = {"this version": own, "the other": arguments.beside.resolve()}
            print(json.dumps(versions(arguments.run, sources, arguments.caches or Path(scratch), arguments.questions, arguments.rounds)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(shutil.copytree(arguments.run, Path(scratch) / "run"))
        process, port = start(run)
        try:
            print(json.dumps(measure(run, port, arguments.questions, arguments.rounds)))
        finally:
            process.terminate()
            process.wait()


def measure(run: Path, port: int, count: int, rounds: int) -> dict[str, Any]:
    """All rows, interleaved."""
    opened = open_run(run)
    questions = questions_of(opened, count)
    few = questions[: max(1, count // 4)]
    opened.answerer.answer(few[:16], k=K)
    ask(port, few[:64], 8)
    seconds: dict[str, list[float]] = {}
    latencies: dict[str, list[float]] = {}
    parts: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        began = time.perf_counter()
        opened.answerer.answer(questions, k=K)
        seconds.setdefault("offline, batched", []).append(time.perf_counter() - began)
        began = time.perf_counter()
        for question in few:
            opened.answerer.answer([question], k=K)
        seconds.setdefault("offline, one by one", []).append((time.perf_counter() - began) * count / len(few))
        for clients in CLIENTS:
            asked = few if clients == 1 else questions
            name = f"server, {clients} clients"
            took, each, parts[name] = ask(port, asked, clients)
            seconds.setdefault(name, []).append(took * count / len(asked))
            latencies.setdefault(name, []).extend(each)
    rows = [row(name, count, taken, latencies.get(name, []), parts.get(name, {})) for name, taken in seconds.items()]
    for line in rows:
        print(line, file=sys.stderr)
    speed = {line["method"]: line["questions_per_second"] for line in rows}
    ratios = {
        "server with 64 clients to offline, batched": speed["server, 64 clients"] / speed["offline, batched"],
        "server with 1 client to offline, one by one": speed["server, 1 clients"] / speed["offline, one by one"],
    }
    store = opened.inputs.store
    blocks = int(store.live.sum())
    return result("serve", torch.get_num_threads(), blocks=blocks, k=K, rows=rows, ratios={n: round(v, 3) for n, v in ratios.items()})


if __name__ == "__main__":
    main()
