"""One question at a time on a corpus of hundreds of thousands of blocks: milliseconds end to end, and of embedding, searching, reading.

    python benchmarks/bench_refresh.py --documents simplewiki_2021.jsonl.xz --blocks 300000 --block-length 180 --changed 1000 \
        --encode 0 --steps 0 --threads 2 --work DIRECTORY
    OMP_NUM_THREADS=2 python benchmarks/bench_serve_scale.py DIRECTORY --questions 200


DIRECTORY is what the first command leaves: a corpus, and its index by a random model of preset ``tiny``. A run that can be served is made
of it beside it, of links and of a reader with random weights: what is found and read is of no use, the work is that of a trained run. The
server is a process of its own, asked over loopback by one client; "rest" is what of the client's time is none of the three parts: HTTP,
JSON, threads, the client itself. Prints one JSON object as its last line.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench_serve import K, ask, questions_of, start
from common import result
from realm.config import build_recipe, dump_recipe
from realm.data.blocks import open_inputs
from realm.nn.model import RealmModel
from realm.nn.spec import EncoderSpec, ModelSpec
from realm.opening import OpenRun, open_run
from realm.paths import RunPaths
from realm.refresh import open_generation
from realm.refresh.parameters import parameters_path
from realm.stages import RUN_FORMAT
from realm.storage.files import write_atomic, write_json
from realm.storage.sealed import seal


def make_run(work: Path, root: Path) -> None:
    """A fine-tuned run of the corpus and the index in ``work``: hard links, the published embedder, a random reader of preset ``tiny``."""
    for name in ("corpus", "index", "params"):
        shutil.copytree(work / name, root / name, copy_function=os.link)
    paths = RunPaths(root)
    recipe = build_recipe({"model": {"preset": "tiny"}, "corpus": {"sources": ["documents.jsonl"]}})
    write_atomic(paths.config, dump_recipe(recipe))
    inputs = open_inputs(paths.corpus, recipe.model.query_length)
    generation = open_generation(paths, inputs)
    published = RealmModel.from_pretrained(parameters_path(paths, generation.snapshot.manifest.params_generation))
    torch.manual_seed(0)
    encoder = RealmModel(ModelSpec(encoder=EncoderSpec(published.embedder.spec.body)))
    sizes = {"span_hidden": recipe.model.span_hidden, "max_span": recipe.model.max_span}
    model = encoder.with_parts(embedder=published.embedder).fork_document_embedder().with_reader(0, **sizes)
    facts = {"format": RUN_FORMAT, "fingerprint": "", "generation": generation.number}
    for stage in ("pretrain", "finetune"):
        model.save_pretrained(paths.stage(stage), tokenizer=inputs.store.tokenizer)
        write_json(paths.stage(stage) / "stage.json", {**facts, "stage": stage})
        seal(paths.stage(stage))


def offline(opened: OpenRun, questions: list[str]) -> list[float]:
    """Seconds of each question through the Answerer in this process, one by one."""
    taken = []
    for question in questions:
        began = time.perf_counter()
        opened.answerer.answer([question], k=K)
        taken.append(time.perf_counter() - began)
    return taken


def milliseconds(seconds: list[float]) -> dict[str, float]:
    p50, p95 = np.percentile(np.array(seconds) * 1000, [50, 95]).tolist()
    return {"p50_ms": round(p50, 2), "p95_ms": round(p95, 2)}


def measure(root: Path, port: int, count: int) -> list[dict[str, Any]]:
    """Rows for the server and for the Answerer alone, asked in turns of a tenth of the questions."""
    opened = open_run(root)
    questions = questions_of(opened, count)
    ask(port, questions[:10], 1)
    offline(opened, questions[:10])
    served: list[float] = []
    alone: list[float] = []
    parts: dict[str, list[float]] = {}
    for at in range(0, count, max(1, count // 10)):
        turn = questions[at : at + max(1, count // 10)]
        _, latencies, medians = ask(port, turn, 1)
        served += latencies
        for name, value in medians.items():
            parts.setdefault(name, []).append(value)
        alone += offline(opened, turn)
    row = {"method": "server, 1 client", **milliseconds(served)}
    for name, values in parts.items():
        row[f"{name}_ms"] = round(float(np.median(values)), 2)
    row["rest_ms"] = round(row["p50_ms"] - sum(row[f"{name}_ms"] for name in parts), 2)
    blocks = opened.inputs.store.lengths[np.flatnonzero(opened.inputs.store.live)]
    print(f"{len(blocks)} blocks of {blocks.mean():.0f} wordpieces, {blocks.max()} at most", file=sys.stderr)
    return [row, {"method": "offline, one by one", **milliseconds(alone)}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--questions", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.work.parent) as scratch:  # links need the same disk
        root = Path(scratch) / "run"
        make_run(arguments.work, root)
        process, port = start(root)
        try:
            rows = measure(root, port, arguments.questions)
        finally:
            process.terminate()
            process.wait()
    for row in rows:
        print(row, file=sys.stderr)
    print(json.dumps(result("serve-scale", torch.get_num_threads(), k=K, rows=rows)))


if __name__ == "__main__":
    main()
