"""How much of the processor does a training step from a published body use? The reader's and inverse cloze's, beside padded transformers.

    python -m benchmarks.training.bench_body_step RUN --questions DATA/squad/qa_train.jsonl.xz

RUN is a run from the body with an index. A step of the reader reads five blocks of each of six questions, as fine-tuning does, and one of
inverse cloze embeds 64 blocks and a sentence of each; forth and back, clipping and update. The plain way is the same networks on the same
inputs in one batch padded to its longest, with the attention that transformers gives them and torch's AdamW as it comes; "words trained" is
ours with a gradient to the table of word embeddings, which is frozen otherwise. Operations are counted over real wordpieces: 8 h^2 + 4 h i
for each wordpiece and layer, 4 t h for its attention, the span head's two products, times three for forth and back; nothing for padding,
activations, norms or the optimiser. The peak is that of the body's largest matrix product, measured beside every step. Shares are of
operations for each second of processor time. The last line is one JSON object.
"""

import argparse
import contextlib
import copy
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import result
from benchmarks.training.step_work import body_flops, gemm_peak
from realm.answering.opening import OpenRun, open_run
from realm.answering.pointing import read_candidates
from realm.evaluation.places import locate_answers
from realm.evaluation.questions.loading import load_datasets, pooled
from realm.models import losses
from realm.models.bodies.body import freeze_words, has_bf16, pad_batch
from realm.models.embedder import Embedder
from realm.models.reader import Reader
from realm.models.types import Question, Sequence
from realm.recipe.seeds import generator
from realm.training.loop.optim import adamw, parameter_groups
from realm.training.warm import InverseCloze

QUESTIONS, READ, BATCHES = 6, 5, 4
OURS, TRAINED, PLAIN = "realm", "realm, words trained", "plain transformers, padded"


@contextlib.contextmanager
def padded() -> Iterator[None]:
    """The networks take one batch, padded to its longest."""

    def in_one(body: Any, sequences: list[Sequence], run: Callable[..., Tensor]) -> Tensor:
        return run(pad_batch(sequences, 0), list(range(len(sequences))))

    with patch("realm.models.reader.in_buckets", in_one), patch("realm.models.embedder.in_buckets", in_one):
        yield


class ReaderWork:
    """Batches of questions with the blocks that the run finds for them, and where their answers stand."""

    def __init__(self, run: OpenRun, questions: list[Question], batches: int):
        self.inputs, self.batches = run.inputs, []
        store = run.inputs.store
        for at in range(batches):
            asked = questions[at * QUESTIONS : (at + 1) * QUESTIONS]
            tokens = store.tokenizer.encode([question.text for question in asked])
            found = run.source.find([question.text for question in asked], tokens, READ)
            self.batches.append((tokens, found.rows, torch.from_numpy(found.scores), locate_answers(store, asked)))

    def loss(self, reader: Reader, batch: int) -> Tensor:
        tokens, rows, scores, answers = self.batches[batch]
        spans = read_candidates(reader, self.inputs, tokens, rows, scores)
        gold = torch.zeros_like(spans.valid)
        for (i, j), row in np.ndenumerate(rows):
            for start, end in answers[i].get(int(row), []):
                gold[i, j, start, end - start - 1 : end - start] = True
        loss, valid = losses.span_marginal(spans.logits.flatten(1), gold.flatten(1), spans.valid.flatten(1))
        return loss.sum() / valid.sum().clamp(min=1)

    def sequences(self, batch: int) -> list[Sequence]:
        tokens, rows, *_ = self.batches[batch]
        return [self.inputs.joint(tokens[i], int(row)) for (i, _), row in np.ndenumerate(rows)]

    def flops(self, reader: Reader, batch: int) -> float:
        head = 4 * reader.body.spec.hidden * reader.span_hidden + 2 * reader.max_span * reader.span_hidden
        bodies = sum(sum(sequence.segments) - 1 for sequence in self.sequences(batch))
        return 3 * (sum(body_flops(reader.body.spec, len(s), len(s)) for s in self.sequences(batch)) + bodies * head)


class ClozeWork:
    """Batches of blocks, a sentence of each as its query."""

    def __init__(self, run: OpenRun, batches: int, size: int):
        self.inputs = run.inputs
        cloze = InverseCloze(run.inputs.store)
        items = generator("cloze").permutation(len(cloze))[: batches * size].reshape(batches, size)
        self.batches = [[cloze.example(int(item), generator("sentence", int(item))) for item in batch] for batch in items]

    def sides(self, batch: int) -> tuple[list[Sequence], list[Sequence]]:
        features, examples = self.inputs.featurizer, self.batches[batch]
        return [features.query(e.query) for e in examples], [features.block(e.title, e.body) for e in examples]

    def loss(self, embedder: Embedder, batch: int) -> Tensor:
        queries, blocks = self.sides(batch)
        loss, _ = losses.ict(embedder.embed_queries(queries), embedder(blocks), torch.arange(len(queries)))
        return loss.mean()

    def sequences(self, batch: int) -> list[Sequence]:
        queries, blocks = self.sides(batch)
        return [*queries, *blocks]

    def flops(self, embedder: Embedder, batch: int) -> float:
        return 3 * sum(body_flops(embedder.body.spec, len(s), len(s)) for s in self.sequences(batch))


class Way:
    """A copy of a network that makes steps in one way."""

    def __init__(self, name: str, start: Reader | Embedder, work: ReaderWork | ClozeWork):
        self.plain, self.bf16 = name.startswith(PLAIN), name.endswith("bf16")
        self.network, self.work = copy.deepcopy(start).train().requires_grad_(True), work
        if TRAINED not in name:
            freeze_words(self.network)
        if self.plain:
            self.network.body.model.set_attn_implementation("sdpa")  # type: ignore[operator]
            self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(parameter_groups([self.network], 0.01), lr=1e-5)
        else:
            self.optimizer = adamw([self.network], lr=1e-5)

    def step(self, batch: int) -> dict[str, float]:
        """One step, timed by both clocks, and the peak measured right after it."""
        self.optimizer.zero_grad(set_to_none=True)
        started, worked = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16), padded() if self.plain else contextlib.nullcontext():
            loss = self.work.loss(self.network, batch)  # type: ignore[arg-type]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        row = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - worked, "loss": loss.item()}
        spec = self.network.body.spec
        dtype = torch.bfloat16 if self.bf16 else torch.float32
        peak = gemm_peak(spec.hidden, int(spec.config["intermediate_size"]), dtype, clock=time.process_time)
        flops = self.work.flops(self.network, batch)  # type: ignore[arg-type]
        return row | {"share": flops / row["cpu_seconds"] / peak, "gflops": flops / 1e9, "peak_gflops": peak / 1e9}


def compare(label: str, start: Reader | Embedder, work: ReaderWork | ClozeWork, rounds: int) -> list[dict[str, Any]]:
    """Rows of all ways, which take turns on the same batches; the first of them warms up."""
    names = [OURS, TRAINED, PLAIN, *([f"{OURS} bf16", f"{PLAIN} bf16"] if has_bf16("cpu") else [])]
    ways = {name: Way(name, start, work) for name in names}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            found[name].append(way.step(turn % len(work.batches)))
            print(f"  {label}, {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    table = []
    for name, steps in found.items():
        medians = {key: statistics.median(step[key] for step in steps[1:]) for key in steps[0] if key != "loss"}
        gap = max(abs(own["loss"] - theirs["loss"]) for own, theirs in zip(steps[:1], found[PLAIN][:1], strict=True))
        table.append({"method": f"{label}: {name}", **{key: round(value, 4) for key, value in medians.items()}, "loss_gap": gap})
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=64, help="blocks of a step of inverse cloze")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    run = open_run(arguments.run)
    drawn = random.Random(0).sample(pooled(load_datasets((str(arguments.questions),))), QUESTIONS * BATCHES)
    model = run.networks.pretrained.with_reader(0, span_hidden=256, max_span=10)
    reading, cloze = ReaderWork(run, drawn, BATCHES), ClozeWork(run, BATCHES, arguments.batch)
    rows = compare("reader", model.reader, reading, arguments.rounds) + compare("cloze", model.embedder, cloze, arguments.rounds)
    seconds = {row["method"]: row["cpu_seconds"] for row in rows}
    ratios = {
        f"{label}: to {PLAIN}{half}": round(seconds[f"{label}: {PLAIN}{half}"] / seconds[f"{label}: {OURS}{half}"], 3)
        for label in ("reader", "cloze")
        for half in ("", " bf16")
        if f"{label}: {OURS}{half}" in seconds
    }
    lengths = {
        label: {"inputs": len(found), "mean": round(float(np.mean(found)), 1), "longest": max(found)}
        for label, work in (("reader", reading), ("cloze", cloze))
        if (found := [len(s) for batch in range(BATCHES) for s in work.sequences(batch)])
    }
    print(json.dumps(result("body_step", arguments.threads, batches=BATCHES, lengths=lengths, rows=rows, ratios=ratios)))


if __name__ == "__main__":
    main()
