"""How long does one question take? p50 and p95 through a trained run's answerer, one question at a time, and where the time goes.

    python -m benchmarks.reading.bench_ask RUN --questions DATA/squad/qa_dev.jsonl.xz

Wall time says what somebody waits on this machine as it is now; processor time, divided by the threads, what would be waited on idle
cores at least. Parts are those of ``timings_ms``: "search" counts tokenizing, "read" the answer's place in its document. A run that nothing
has taught to read searches for the 20 best blocks instead. The last line is one JSON object.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import result
from realm.answering.opening import OpenRun, open_run
from realm.evaluation.questions.loading import load_datasets, pooled

SEARCHED = 20


def asking(run: OpenRun, read: int) -> Callable[[str], dict[str, float]]:
    """What answers a text, or searches for it where the run has no reader, and says how long its parts took in milliseconds."""
    if not run.reads:
        return lambda text: {"blocks found": float(len(run.search(text, SEARCHED)))}
    answerer = run.answerer
    return lambda text: answerer.answer([text], k=read)[0].timings_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=200, help="questions, drawn at random; ten more come first and do not count")
    parser.add_argument("--read", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    started = time.perf_counter()
    run = open_run(arguments.run)
    ask = asking(run, arguments.read)
    opened = time.perf_counter() - started
    questions = pooled(load_datasets((str(arguments.questions),)))
    texts = [question.text for question in random.Random(0).sample(questions, min(len(questions), arguments.limit + 10))]
    times: dict[str, list[float]] = {}
    for number, text in enumerate(texts):
        started, worked = time.perf_counter(), time.process_time()
        parts = ask(text)
        taken = {"wall": 1000 * (time.perf_counter() - started), "processor": 1000 * (time.process_time() - worked)}
        if number >= min(10, len(texts) // 2):
            for name, value in (taken | parts).items():
                times.setdefault(name, []).append(value)
    rows = [
        {"ms": name, **{f"p{p}": round(float(np.percentile(values, p)), 2) for p in (50, 95)}, "least": round(min(values), 2)}
        for name, values in times.items()
    ]
    read = arguments.read if run.reads else 0
    facts = {"blocks": len(run.inputs.store), "read": read, "questions": len(times["wall"]), "kind": run.recipe.retrieval_kind}
    print(json.dumps(result("ask", arguments.threads, **facts, open_seconds=round(opened, 2), rows=rows)))


if __name__ == "__main__":
    main()
