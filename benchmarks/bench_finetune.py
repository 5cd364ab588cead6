"""How long does a fine-tuning step take beside Hugging Face's RealmForOpenQA, and how many questions a second does an evaluation answer?

Step: preset tiny, batch 1, a beam of 5,000, 5 blocks read, random weights, the same texts, questions and block embeddings for both; the
question alone is drawn in the same order. Both do a forward pass, a backward pass and a step of AdamW: ours that of our training loop
(torch's, fused), theirs torch's as it comes. The peer needs the environment of
`make parity` (--peer); without it only ours is measured. Rounds are interleaved: ours, theirs, ours, theirs.
Evaluation: recall at 1, 5, 20 and 100, and answers from 5 blocks. Vectors of blocks are random: their values change neither the work of
exact search nor that of reading. --rows searches more rows than the corpus has blocks: row r then stands for block r modulo their number.

    python benchmarks/bench_finetune.py --documents docs.jsonl.xz --questions qa.jsonl.xz --peer .venv-parity/bin/python
    python benchmarks/bench_finetune.py --corpus built/corpus --questions qa.jsonl.xz --evaluate 400
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import result
from realm.answerer import Answerer
from realm.candidates import DenseCandidates
from realm.config import Recipe, build_recipe
from realm.corpus.build.builder import build_corpus
from realm.corpus.build.options import BuildOptions
from realm.data.questions.loading import load_questions
from realm.data.types import Question
from realm.index.choice import make_index
from realm.index.live import LiveIndex
from realm.index.manifest import SnapshotFacts
from realm.index.mips import Hits
from realm.index.snapshot import Snapshot, publish_snapshot
from realm.nn.model import RealmModel, state_sha256
from realm.paths import RunPaths
from realm.recipes.context import StageContext, open_context
from realm.recipes.evaluate import evaluate_retrieval
from realm.recipes.finetune.task import ReadingTask
from realm.recipes.scoring import Relevance, exact_match_share
from realm.recipes.starting import new_model, with_new_reader
from realm.train.optim import adamw

QUERY_LENGTH = 64
Taken = tuple[float, float]
"""Seconds of a step, and CPU seconds of all its threads together."""


class RepeatedRows:
    """An index over more rows than the corpus has blocks: row r is block r modulo their number."""

    def __init__(self, rows: int, dim: int, ids: np.ndarray):
        self.ids = ids
        self.index = make_index(np.random.default_rng(1).standard_normal((rows, dim), np.float32), np.arange(rows))

    def __len__(self) -> int:
        return len(self.index)

    def search(self, queries: torch.Tensor, k: int, exclude: Any = None) -> Hits:
        hits = self.index.search(queries, k, exclude)
        return replace(hits, ids=self.ids[hits.ids % len(self.ids)])


def recipe_of(arguments: argparse.Namespace) -> Recipe:
    return build_recipe(
        {
            "run": {"threads": arguments.threads, "device": "cpu"},
            "model": {"preset": "tiny", "query_length": QUERY_LENGTH},
            "finetune": {"batch": 1, "beam": arguments.beam, "read": arguments.read, "rename_rate": 0.0},
        }
    )


def prepared(arguments: argparse.Namespace, scratch: Path) -> tuple[StageContext, RealmModel, DenseCandidates]:
    """The corpus, a random model and an index of random vectors over it."""
    paths = RunPaths(scratch / "run")
    paths.root.mkdir()
    if arguments.corpus is None:
        build_corpus(arguments.documents, paths.corpus, options=BuildOptions(vocab_size=8000, block_length=arguments.block_length))
    else:
        paths.corpus.symlink_to(arguments.corpus.resolve(), target_is_directory=True)
    context = open_context(paths, recipe_of(arguments), lambda *_: None)
    model = with_new_reader(context, new_model(context).fork_document_embedder(), seed=0)
    store = context.store
    vectors = np.random.default_rng(0).standard_normal((len(store), model.embedder.spec.projection), np.float32)
    facts = {"corpus_id": store.manifest.corpus_id, "tokenizer_sha256": store.manifest.tokenizer_sha256}
    facts |= {"document_embedder_sha256": state_sha256(model.documents)}
    ids = np.asarray(store.block_ids)
    publish_snapshot(paths.index, vectors, ids, SnapshotFacts(params_generation=1, step=0, corpus_version=store.version, **facts))
    snapshot = Snapshot.open(paths.index, **facts)
    index: Any = LiveIndex(snapshot.vectors, ids, store, codes=snapshot.codes)
    if arguments.rows:
        index = RepeatedRows(arguments.rows, model.embedder.spec.projection, ids)
    return context, model, DenseCandidates(model.embedder, snapshot, index, context.inputs)


def write_records(directory: Path, context: StageContext, source: DenseCandidates, questions: list[Question]) -> None:
    """What the peer reads."""
    store, model = context.store, context.recipe.model
    directory.mkdir()
    tokens = [store.tokenizer.token(i) for i in range(store.tokenizer.vocab_size)]
    (directory / "vocab.txt").write_text("\n".join(tokens) + "\n", "utf-8")
    (directory / "blocks.json").write_text(json.dumps([store.block(row).text for row in range(len(store))]), "utf-8")
    rows = [{"question": q.text, "answers": list(q.answers)} for q in questions]
    (directory / "questions.json").write_text(json.dumps(rows), "utf-8")
    np.save(directory / "block_emb.npy", np.asarray(source.snapshot.vectors, np.float32))
    sizes = {"hidden_size": model.hidden, "num_hidden_layers": model.layers, "num_attention_heads": model.heads}
    sizes |= {"intermediate_size": model.intermediate, "retriever_proj_size": model.projection, "span_hidden_size": model.span_hidden}
    facts = {"vocabulary": len(tokens), "beam": context.recipe.finetune.beam, "read": context.recipe.finetune.read, "sizes": sizes}
    facts["joint_length"] = context.inputs.featurizer.joint_length
    (directory / "facts.json").write_text(json.dumps(facts), "utf-8")


class OurSteps:
    """Fine-tuning steps of ours, one after the other."""

    def __init__(self, context: StageContext, model: RealmModel, source: DenseCandidates, questions: list[Question]):
        started = time.perf_counter()
        self.task = ReadingTask("finetune", context, source, model.reader, questions, [])
        self.located = time.perf_counter() - started
        self.optimizer = adamw([self.task.model], lr=1e-5)
        self.done = 0

    def seconds(self, steps: int) -> list[Taken]:
        taken = []
        self.task.model.train()
        for _ in range(steps):
            started, worked = time.perf_counter(), time.process_time()
            self.optimizer.zero_grad()
            self.task.step(self.done).mean.backward()
            self.optimizer.step()
            taken.append((time.perf_counter() - started, time.process_time() - worked))
            self.done += 1
        return taken


def theirs(arguments: argparse.Namespace, records: Path, tokenizer: str, steps: int) -> list[Taken]:
    """What the peer's steps took, in a process of its own; the first, which warms caches, is left out."""
    command = [str(arguments.peer), str(Path(__file__).with_name("openqa_peer.py")), str(records)]
    command += ["--steps", str(steps + 1), "--threads", str(arguments.threads), "--tokenizer", tokenizer]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the peer failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return list(zip(found["seconds"], found["cpu_seconds"], strict=True))[1:]


def measure_steps(arguments: argparse.Namespace, ours: OurSteps, records: Path) -> list[dict[str, Any]]:
    taken: dict[str, list[Taken]] = {"ours": [], "RealmForOpenQA, fast tokenizer": [], "RealmForOpenQA": []}
    ours.seconds(5)
    for _ in range(arguments.rounds):
        taken["ours"] += ours.seconds(arguments.steps)
        if arguments.peer is not None:
            taken["RealmForOpenQA, fast tokenizer"] += theirs(arguments, records, "fast", arguments.peer_steps)
            taken["RealmForOpenQA"] += theirs(arguments, records, "slow", max(1, arguments.peer_steps // 2))
    return [{"method": name, "steps": len(values), **medians(values)} for name, values in taken.items() if values]


def medians(values: list[Taken]) -> dict[str, float]:
    """Of seconds, and of CPU seconds of all threads together, which other work on the machine disturbs less."""
    wall, cpu = zip(*values, strict=True)
    return {"seconds_per_step": statistics.median(wall), "cpu_seconds_per_step": statistics.median(cpu)}


def measure_evaluation(context: StageContext, model: RealmModel, source: DenseCandidates, questions: list[Question]) -> dict[str, Any]:
    """Questions a second: recall at four depths, then answers, matched and scored; what is prepared once is told apart."""
    started = time.perf_counter()
    relevance = Relevance(context.store)
    prepared_seconds = time.perf_counter() - started
    started, worked = time.perf_counter(), time.process_time()
    evaluate_retrieval(source, relevance, questions, (1, 5, 20, 100))
    answerer = Answerer(context.inputs, source, model.reader, versions={})
    answers = answerer.answer([q.text for q in questions], k=context.recipe.finetune.read)
    exact_match_share(answers, questions)
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    facts = {
        "method": "evaluation",
        "rows_searched": len(source.index),
        "blocks": len(context.store),
        "questions": len(questions),
        "seconds": seconds,
        "cpu_seconds": cpu,
    }
    return facts | {"questions_per_second": len(questions) / seconds, "seconds_prepared_once": prepared_seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=Path, nargs="*", default=[])
    parser.add_argument("--corpus", type=Path, help="a corpus that is there already")
    parser.add_argument("--rows", type=int, default=0, help="rows to search; 0: the corpus's blocks")
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--block-length", type=int, default=288)
    parser.add_argument("--beam", type=int, default=5000)
    parser.add_argument("--read", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of ours in a round; 0 leaves the steps out")
    parser.add_argument("--peer", type=Path, help="the Python of the environment of `make parity`")
    parser.add_argument("--peer-steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--evaluate", type=int, default=200, help="questions to evaluate on; 0 for none")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    questions = [q for q in load_questions(arguments.questions) if q.answer_type == "string"]
    with tempfile.TemporaryDirectory(prefix="realm-bench-") as scratch:
        context, model, source = prepared(arguments, Path(scratch))
        rows = []
        if arguments.steps:
            ours = OurSteps(context, model, source, questions[:2000])
            write_records(Path(scratch) / "records", context, source, ours.task.questions)
            rows = measure_steps(arguments, ours, Path(scratch) / "records")
            rows[0] |= {"seconds_located_once": ours.located, "blocks": len(context.store)}
        if arguments.evaluate:
            rows.append(measure_evaluation(context, model, source, questions[: arguments.evaluate]))
    ratios = {}
    for key in ("seconds_per_step", "cpu_seconds_per_step"):
        each = {row["method"]: row[key] for row in rows if key in row}
        ratios |= {f"{name} / ours, {key}": value / each["ours"] for name, value in each.items() if name != "ours"}
    for row in rows:
        print(row, file=sys.stderr)
    print(json.dumps(result("finetune", arguments.threads, rows=rows, ratios=ratios)))


if __name__ == "__main__":
    main()
