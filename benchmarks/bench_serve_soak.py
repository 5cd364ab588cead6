"""A server under mixed load for a long time: questions, searches, documents that come and go, new generations and newly trained networks.

    OMP_NUM_THREADS=1 python benchmarks/bench_serve_soak.py runs/demo --minutes 30 --swaps 100

Works on a copy of a fine-tuned run with a part of its documents, so that a whole generation is embedded in about a second: while one is
made nobody else writes to the index. Clients ask at a bounded rate. Every request must be answered, no removed document may come back, and
the server's memory is sampled (Linux): anonymous (what the process made; nothing that other processes do changes it), resident (that and
what it has mapped of files, libraries included), proportional (files shared with other processes counted in part: falls and rises as they
start and end). Compared are the medians of the first and of the last fifth of the time after warming up; by then the documents of the load
are as many as they stay. Prints one JSON object as its last line; ends with 1 if a request failed.
"""

import argparse
import itertools
import json
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench_serve import K, questions_of, start
from common import result
from realm.client import Client
from realm.corpus.change.updates import remove_documents
from realm.corpus.store.blocks import BlockStore
from realm.data.blocks import open_inputs
from realm.errors import RealmError
from realm.opening import open_run
from realm.paths import RunPaths
from realm.refresh import refresh_index
from realm.stages import stage_facts
from realm.storage.files import write_json

LONGEST = 60_000
"""Milliseconds that a server allows a request: the machine may have other work."""
WARM_SECONDS, WARM_SHARE = 180.0, 0.2
"""Of the load, but at most this share of the time; after that memory has to stay as it is."""
KEPT = 20
"""Documents of the load that stay at a time: from then on one goes with each that comes."""
MEMORY = {"anonymous": "Anonymous:", "resident": "Rss:", "proportional": "Pss:"}


@dataclass
class Load:
    """What the threads of the load share.

    Attributes:
        url: of the server.
        questions: to ask.
        ends: when it is over, on the monotonic clock.
        done: requests by kind. failures: what went wrong, with the second it did. latencies: seconds of each answer.
    """

    url: str
    questions: list[str]
    ends: float
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def ticks(self, seconds: float) -> Iterator[int]:
        """Numbers from 0, one every ``seconds`` until the end; a late one is not made up for."""
        for number in itertools.count():
            if time.monotonic() >= self.ends:
                return
            due = time.monotonic() + seconds
            yield number
            time.sleep(max(0.0, min(due, self.ends) - time.monotonic()))

    def request(self, kind: str, act: Callable[[], Any]) -> Any:
        """What ``act`` gives, counted; None if it failed."""
        began = time.monotonic()
        try:
            found = act()
        except RealmError as error:
            self.fail(f"{kind}: {error}")
            return None
        self.done[kind] += 1
        if kind == "answer":
            self.latencies.append(time.monotonic() - began)
        return found

    def fail(self, what: str) -> None:
        self.failures.append(f"{time.monotonic() - self.started:.0f} s: {what}")
        print(self.failures[-1], file=sys.stderr, flush=True)


def asking(load: Load, seconds: float, seed: int) -> None:
    """A client that asks questions, and now and then something else."""
    chance = random.Random(seed)
    with Client(load.url, timeout=2 * LONGEST / 1000) as client:
        for number in load.ticks(seconds):
            text = chance.choice(load.questions)
            if number % 10 == 7:
                load.request("explain", lambda text=text: client.explain(f"{text[:200]} [MASK].", k=3, timeout_ms=LONGEST))
            elif number % 3 == 2:
                load.request("search", lambda text=text: client.search([text], k=K, timeout_ms=LONGEST))
            else:
                load.request("answer", lambda text=text: client.answer([text], k=K, timeout_ms=LONGEST))


def changing(load: Load, seconds: float) -> None:
    """A client that adds, replaces and removes documents, and looks whether that is so when the call has returned."""
    names: list[str] = []
    with Client(load.url) as client:
        for number in load.ticks(seconds):
            name, text = f"soak/{number}", f"The currency of country number {number} is the soak crown of the year {number}."
            if load.request("add", lambda row={"id": name, "title": name, "text": text}: client.add([row])) is None:
                continue
            names.append(name)
            row = {"id": name, "title": name, "text": f"{text} It is a new coin."}
            load.request("replace", lambda row=row: client.replace([row]))
            shown = load.request("document", lambda name=name: client.document(name))
            if shown is not None and "new coin" not in shown["blocks"][0]["text"]:
                load.fail(f"{name} has its old text")
            if len(names) > KEPT:
                gone = names.pop(0)
                load.request("remove", lambda gone=gone: client.remove([gone]))
                hits = load.request("search", lambda text=text: client.search([text], k=100, timeout_ms=LONGEST)) or [[]]
                if gone in {hit["doc_id"] for hit in hits[0]}:
                    load.fail(f"{gone} came back")


def swapping(load: Load, root: Path, count: int) -> None:
    """New networks and a generation of theirs, again and again; each must be served before the next is made."""
    paths = RunPaths(root)
    opened = open_run(root)
    model, numbers = opened.tuned, [opened.generation.number]
    assert model is not None
    with Client(load.url) as client:
        for number in load.ticks((load.ends - time.monotonic()) / count):
            with torch.no_grad():
                for weights in model.embedder.parameters():
                    weights.add_(1e-5 * torch.randn_like(weights))
            inputs = open_inputs(paths.corpus, opened.recipe.model.query_length)
            numbers.append(refresh_index(model, inputs, paths, step=number, protect=frozenset(numbers[-2:])).number)
            _publish(paths, model, numbers[-1])
            limit = time.monotonic() + 60
            while client.run()["versions"]["index"] != numbers[-1]:
                if time.monotonic() > limit:
                    load.fail(f"generation {numbers[-1]} is not served after a minute")
                    break
                time.sleep(0.2)
            load.done["swap"] += 1


def _publish(paths: RunPaths, model: Any, generation: int) -> None:
    """Another stage in place of the one that is there, as a training that was started again leaves it."""
    stage = paths.stage("finetune")
    fresh, old = stage.with_name("finetune.fresh"), stage.with_name("finetune.old")
    shutil.copytree(stage, fresh)
    model.save_pretrained(fresh)
    write_json(fresh / "stage.json", {**stage_facts(paths, "finetune"), "generation": generation})
    stage.rename(old)
    fresh.rename(stage)
    shutil.rmtree(old)


def memory_mib(pid: int) -> dict[str, float]:
    """The memory of a process: what it made, that and its files, that and its share of its files."""
    lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]]
    sizes = {line[0]: int(line[1]) / 1024 for line in lines}
    return {name: sizes[label] for name, label in MEMORY.items()}


def sampling(load: Load, pid: int, samples: list[tuple[float, dict[str, float]]]) -> None:
    """(seconds, MiB of each kind) every few seconds."""
    for _ in load.ticks(5.0):
        samples.append((time.monotonic() - load.started, memory_mib(pid)))
        if len(samples) % 12 == 0:
            sizes = {name: round(value, 1) for name, value in samples[-1][1].items()}
            print(f"{samples[-1][0]:.0f} s: {sizes} MiB, {dict(load.done)}", file=sys.stderr, flush=True)


def memory(samples: list[tuple[float, dict[str, float]]], seconds: float) -> dict[str, Any]:
    """Of each kind: medians of the first and of the last fifth of the time after warming up, their ratio, and the peak."""
    warm = min(WARM_SECONDS, WARM_SHARE * seconds)
    after = [each for at, each in samples if at >= warm]
    fifth = max(1, len(after) // 5)
    found: dict[str, Any] = {"after_seconds": warm}
    for name in MEMORY:
        first, last = (statistics.median(each[name] for each in part) for part in (after[:fifth], after[-fifth:]))
        sizes = {"first_mib": first, "last_mib": last, "ratio": last / first, "peak_mib": max(each[name] for each in after)}
        found[name] = {what: round(value, 4 if what == "ratio" else 1) for what, value in sizes.items()}
    return found


def soak(root: Path, process: Any, port: int, options: argparse.Namespace) -> dict[str, Any]:
    """The whole load, and what came of it."""
    seconds = 60.0 * options.minutes
    questions = questions_of(open_run(root), 200)
    load = Load(f"http://127.0.0.1:{port}", questions, time.monotonic() + seconds)
    samples: list[tuple[float, dict[str, float]]] = []
    pace = options.clients / options.rate
    threads = [threading.Thread(target=asking, args=(load, pace, seed)) for seed in range(options.clients)]
    threads += [
        threading.Thread(target=changing, args=(load, options.change_every)),
        threading.Thread(target=swapping, args=(load, root, options.swaps)),
        threading.Thread(target=sampling, args=(load, process.pid, samples)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    p50, p95, p99 = np.percentile(np.array(load.latencies) * 1000, [50, 95, 99]).round(1).tolist()
    latency = {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99}
    counts = {"requests": sum(load.done.values()) - load.done["swap"], **load.done}
    return {"minutes": options.minutes, "done": counts, "failures": load.failures, "answers": latency, "memory": memory(samples, seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rate", type=float, default=2.0, help="questions and the like a second, all clients together")
    parser.add_argument("--change-every", type=float, default=8.0, help="seconds between two documents that come")
    parser.add_argument("--documents", type=int, default=100, help="of the run, that are kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(shutil.copytree(options.run, Path(scratch) / "run"))
        if surplus := BlockStore.open(root / "corpus").documents()[options.documents :]:
            remove_documents(root / "corpus", surplus)
        process, port = start(root)
        try:
            found = soak(root, process, port, options)
        finally:
            process.terminate()
            process.wait()
    print(json.dumps(result("serve-soak", torch.get_num_threads(), **found)))
    sys.exit(bool(found["failures"]))


if __name__ == "__main__":
    main()
