"""What do compilation and pinned threads do to a training step of the reader and to an answer?

    python benchmarks/bench_step_settings.py RUN --questions DATA/squad/qa_train.jsonl.xz --threads 1 2

RUN has a reader that was pre-trained to point. Every way is a process of its own, and the ways take turns: as it is; "bound", threads of
OpenMP bound to a core each; "compiled", the transformer by torch.compile, static shapes. A step reads five blocks of six questions, always
the same ones, so that the compiler sees each shape once: the best case. Its first step, which compiles, has a row of its own. Seconds are
medians, by both clocks. The last line is one JSON object.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench_body_step import OURS, QUESTIONS, ReaderWork, Way
from common import result
from realm.data.questions import load_datasets, pooled
from realm.opening import open_run

WAYS: dict[str, dict[str, str]] = {
    "as it is": {},
    "bound": {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"},
    "compiled": {},
}


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds."""
    started, worked = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - worked


def one(way: str, path: Path, questions: Path, threads: int, steps: int) -> dict[str, Any]:
    """What the way takes, in this process."""
    run = open_run(path)
    torch.set_num_threads(threads)
    drawn = random.Random(0).sample(pooled(load_datasets((str(questions),))), QUESTIONS + steps)
    asked = [question.text for question in drawn[QUESTIONS:]]
    found: dict[str, Any] = {}
    if way != "compiled":
        run.answerer.answer(asked[:1], k=5)
        found["answer"] = [seconds(lambda text=text: run.answerer.answer([text], k=5)) for text in asked]
    reader = Way(f"{OURS} bf16", run.pretrained.reader, ReaderWork(run, drawn[:QUESTIONS], 1))
    if way == "compiled":
        reader.network.body.model.compile(dynamic=False)
    taken = [reader.step(0) for _ in range(steps + 2)]  # the second is left out
    first, _, *others = [(one["seconds"], one["cpu_seconds"]) for one in taken]
    return found | {"first step": [first], "step": others}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)  # in this process
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(arguments.one, arguments.run, arguments.questions, arguments.threads[0], arguments.steps)))
        return
    taken: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    for _ in range(arguments.rounds):
        for threads in arguments.threads:
            for way in arguments.ways:
                command = [sys.executable, __file__, str(arguments.run), "--questions", str(arguments.questions), "--one", way]
                command += ["--threads", str(threads), "--steps", str(arguments.steps)]
                environment = os.environ | WAYS[way] | {"OMP_NUM_THREADS": str(threads)}
                said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
                for name, pairs in json.loads(said.splitlines()[-1]).items():
                    taken.setdefault((name, threads, way), []).extend(pairs)
    rows = []
    for (name, threads, way), pairs in sorted(taken.items()):
        wall, processor = (round(statistics.median(values), 4) for values in zip(*pairs, strict=True))
        rows.append({"work": name, "threads": threads, "way": way, "seconds": wall, "processor_seconds": processor, "of": len(pairs)})
        print(json.dumps(rows[-1]), flush=True)
    print(json.dumps(result("step_settings", max(arguments.threads), rows=rows)))


if __name__ == "__main__":
    main()
