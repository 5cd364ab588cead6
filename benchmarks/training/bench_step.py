"""How fast is a step of pre-training? Ours beside transformers 4.40.2's REALM, beside the plain way and beside a competent padded one.

    make parity                                   # once: the environment of the peer
    python -m benchmarks.training.bench_step --documents simplewiki_2021.jsonl.xz --peer .venv-parity/bin/python --threads 2

A step embeds queries and blocks, scores them again, reads every query with every candidate, takes the marginal likelihood's gradient,
clips it and updates. Everybody has the same weights and the same batch (8 x 8 unless said, 64 + 288 wordpieces), float32, no dropout unless
said; the ways take turns in one run and the median counts. Peers and the plain way need about 9 GB of memory at 8 x 8: they score a
vocabulary of 30,522 at every position. Without --peer its rows are left out. Prints one JSON object as its last line.
"""

import argparse
import copy
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks.common import Extra, result, take_documents
from benchmarks.training.step_work import (
    OURS,
    OURS_BF16,
    PADDED,
    PLAIN,
    VOCABULARY,
    WAYS,
    Workload,
    corpus_workload,
    full_workload,
    gemm_peak,
    histogram,
    our_loss,
    padded,
    prepare,
    step_flops,
    way_loss,
)
from realm.answering.body_models import spec_of
from realm.documents.ingest.builder import build_corpus
from realm.models.bodies.body import has_bf16
from realm.models.model import RealmModel
from realm.models.published.names import NAME_TABLES, PUBLISHED_PARTS, published_names
from realm.recipe import build_recipe
from realm.recipe.seeds import generator
from realm.search.blocks import open_inputs
from realm.search.index.choice import make_index
from realm.search.retriever import Retriever
from realm.training.masking.sentences import MaskedSentences

QUERY, BLOCK, K = 64, 288, 8
PEER = "transformers 4.40.2"
Step = Callable[[], dict[str, float]]


def new_model(preset: str, dropout: float = 0.0, **sizes: int) -> RealmModel:
    """A preset from nothing, or other ``sizes`` in its place, its attention with the same dropout as its states."""
    settings = {"preset": preset, **sizes, "dropout": dropout, "attention_dropout": dropout, "query_length": QUERY}
    torch.manual_seed(0)
    return RealmModel(spec_of(build_recipe({"model": settings}).model, VOCABULARY, QUERY + BLOCK - 1))


def own_step(name: str, start: RealmModel, work: Workload) -> tuple[Step, RealmModel]:
    """A step by one of the ways on its own copy of the weights."""
    model, way = copy.deepcopy(start).train(), WAYS.get(name)
    optimizer = prepare(model, way)
    inner, dtype = int(start.embedder.spec.body.config["intermediate_size"]), torch.bfloat16 if name == OURS_BF16 else torch.float32

    def step() -> dict[str, float]:
        optimizer.zero_grad(set_to_none=True)
        memory, started, cpu = Extra(), time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=name == OURS_BF16):
            loss = our_loss(model, work) if way is None else way_loss(way, model, work)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        row = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu, "loss": loss.item()}
        # Beside every step: what the machine gives changes from minute to minute.
        return row | {"peak_mib": memory.mib() or 0, "gemm_peak": gemm_peak(start.embedder.spec.body.hidden, inner, dtype)}

    return step, model


class Peer:
    """The peer in a process of its own, which waits between its turns."""

    def __init__(self, python: Path, model: RealmModel, work: Workload, threads: int, scratch: Path):
        self.scratch = scratch
        scratch.mkdir(parents=True)
        b, k = work.retrieved.block_ids.shape
        body, sizes = model.spec.embedder.body.config, NAME_TABLES["sizes"] | NAME_TABLES["rates"]
        config = {name: body.get(name, default) for name, default in sizes.items()} | {"model_type": "realm", "pad_token_id": 0}
        config |= {"hidden_act": "gelu_new", "retriever_proj_size": model.spec.embedder.projection, "num_candidates": k}
        (scratch / "config.json").write_text(json.dumps(config))
        for kind in ("embedder", "encoder"):
            own = {name.removeprefix(f"{kind}."): t for name, t in model.state_dict().items() if name.startswith(f"{kind}.")}
            own.pop("null_offset", None)
            prefix = PUBLISHED_PARTS[kind][kind]
            tensors = {published_names(kind, name, prefix, "realm.")[0]: t.detach().clone() for name, t in own.items()}
            save_file(tensors, scratch / f"{kind}.safetensors")
        save_file(peer_inputs(work, b, k), scratch / "inputs.safetensors")
        command = [python, "-m", "benchmarks.training.step_peer", scratch, str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            return line
        raise SystemExit(f"the peer ended with exit code {self.process.wait()}")

    def step(self) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        return json.loads(self._answer())

    def close(self) -> None:
        self.process.communicate()


def peer_inputs(work: Workload, b: int, k: int) -> dict[str, torch.Tensor]:
    """The batch as the published classes take it: everything padded to its greatest length."""
    features = work.inputs.featurizer
    tensors: dict[str, torch.Tensor] = {}
    for name, sequences, shape in (
        ("query", work.query_inputs(), (b, features.query_length)),
        ("block", work.blocks(), (b, k, features.block_length)),
        ("joint", work.joint(), (b, k, features.joint_length)),
    ):
        inputs = padded(sequences, shape[-1])
        tensors[f"{name}_ids"] = inputs.ids.view(shape).clone()
        tensors[f"{name}_mask"] = inputs.mask.long().view(shape).clone()
        tensors[f"{name}_segments"] = inputs.segments.view(shape).clone()
    where, what, slots = work.masks()
    row, slot = slots.nonzero(as_tuple=True)
    for name, values in (("labels", what[row, slot]), ("mlm_mask", torch.ones_like(row))):
        tensors[name] = torch.zeros(b, features.joint_length, dtype=torch.long).index_put((row, where[row, slot]), values)
    return tensors


def gradient_gap(model: RealmModel, other: RealmModel) -> float:
    """max|a - b| / max|b| of the gradients that are left of the last step, over all parameters together."""
    pairs = [(p.grad, q.grad) for p, q in zip(model.parameters(), other.parameters(), strict=True) if q.grad is not None]
    gap = max(float((a - b).abs().max()) for a, b in pairs if a is not None)
    return gap / max(float(b.abs().max()) for _, b in pairs)


def take_turns(steps: dict[str, Step], rounds: dict[str, int]) -> dict[str, list[dict[str, float]]]:
    """Each way's steps, the first of them to warm up."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in steps}
    for turn in range(max(rounds.values()) + 1):
        for name, step in steps.items():
            if turn <= rounds[name]:
                rows[name].append(step())
                print(f"  {name}: {rows[name][-1]}", file=sys.stderr, flush=True)
    return rows


def compare(
    label: str, start: RealmModel, work: Workload, names: Iterable[str], options: argparse.Namespace, *, peer: bool = False
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the ways and how many times faster ours is than each, on one batch."""
    print(label, file=sys.stderr)
    made = {name: own_step(name, start, work) for name in names}
    steps = {name: step for name, (step, _) in made.items()}
    with tempfile.TemporaryDirectory() as scratch:
        other = Peer(options.peer, start, work, options.threads, Path(scratch) / "peer") if peer and options.peer else None
        if other:
            steps[PEER] = other.step
        rows = take_turns(steps, {name: 1 if name in (PLAIN, PEER) else options.rounds for name in steps})
        if other:
            other.close()
    spec, first = start.embedder.spec, rows[OURS][0]["loss"]
    flops = step_flops(spec.body, spec.projection, work)
    seconds = {name: statistics.median(row["seconds"] for row in found[1:]) for name, found in rows.items()}
    table = []
    for name, found in rows.items():
        row: dict[str, Any] = {"method": f"{label}: {name}", "seconds": round(seconds[name], 3)}
        row["cpu_seconds"] = round(statistics.median(row["cpu_seconds"] for row in found[1:]), 3)
        row |= {"peak_mib": found[-1]["peak_mib"], "loss": found[0]["loss"], "loss_gap": abs(found[0]["loss"] / first - 1)}
        if name in made:
            reached = [flops / turn["seconds"] / turn["gemm_peak"] for turn in found[1:]]
            row["share_of_gemm_peak"] = round(statistics.median(reached), 3)
        table.append(row)
    ratios = {f"{label}: to {name}": seconds[name] / seconds[OURS] for name in (PLAIN, PADDED, PEER) if name in seconds}
    if OURS_BF16 in seconds:
        ratios |= {f"{label}: to {name}, bf16": seconds[name] / seconds[OURS_BF16] for name in (PLAIN, PADDED, PEER) if name in seconds}
    return table, ratios


def same_gradients(start: RealmModel, work: Workload) -> dict[str, float]:
    """How far our loss and gradients are from the plain way's: one step of each from the same weights."""
    losses, models = {}, {}
    for name in (OURS, PLAIN):
        step, models[name] = own_step(name, start, work)
        losses[name] = step()["loss"]
    return {"loss": abs(losses[OURS] / losses[PLAIN] - 1), "gradients": gradient_gap(models[OURS], models[PLAIN])}


def shares(model: RealmModel, work: Workload, sentences: MaskedSentences, blocks: int, step_seconds: float) -> dict[str, float]:
    """Seconds of a step's queries, inputs and search over ``blocks`` embeddings, beside the whole step's."""
    inputs, b, rounds = work.inputs, len(work.queries), 5
    index = make_index(np.random.default_rng(0).standard_normal((blocks, model.embedder.spec.projection), np.float32), np.arange(blocks))
    retriever = Retriever(model.embedder.eval().embed_questions, index)
    taken: dict[str, list[float]] = {"queries": [], "inputs": [], "search": []}
    for turn in range(rounds):
        rng, marks = generator("share", turn), [time.perf_counter()]
        queries = [sentences.query(int(item), rng) for item in rng.integers(len(sentences), size=b)]
        marks.append(time.perf_counter())
        for made in (work.different_blocks()[0], work.joint()):
            padded(made, inputs.featurizer.joint_length)
        marks.append(time.perf_counter())
        retriever.retrieve([inputs.featurizer.query(q.ids) for q in queries], K, null=True, exclude=[q.excluded for q in queries])
        marks.append(time.perf_counter())
        for name, begin, end in zip(taken, marks[:-1], marks[1:], strict=True):
            taken[name].append(end - begin)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    return medians | {"share of the step": sum(medians.values()) / (step_seconds + medians["queries"] + medians["search"])}


def run(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Every comparison that was asked for, on a corpus made in ``scratch``."""
    documents = scratch / "documents.jsonl"
    take_documents(options.documents, documents, options.blocks, BLOCK)
    build_corpus([documents], scratch / "corpus", vocab_size=VOCABULARY, workers=1)
    inputs = open_inputs(scratch / "corpus", QUERY)
    sentences = MaskedSentences(inputs.store, inputs.featurizer)
    full = full_workload(options.batch, K, query_length=QUERY, block_length=BLOCK)
    real = corpus_workload(inputs, sentences, options.batch, K)
    ours = [OURS, *([OURS_BF16] if has_bf16("cpu") else [])]
    rows: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}

    def add(label: str, *arguments: Any, **more: Any) -> None:
        found, ratio = compare(label, *arguments, options, **more)
        rows.extend(found)
        ratios.update(ratio)

    gaps = {}
    for preset in options.presets.split(","):
        model = new_model(preset)
        tiny = preset == "tiny"
        few = options.batch if tiny else min(options.few, options.batch)
        add(f"{preset}, full lengths, {few} x {K}", model, full.first(few), ours, peer=True)
        add(f"{preset}, corpus lengths, {options.batch} x {K}", model, real, [*(WAYS if tiny else [PADDED]), *ours])
        if not tiny:
            add(f"{preset}, corpus lengths, {few} x {K}", model, real.first(few), [PLAIN, PADDED, *ours])
        gaps[preset] = same_gradients(model, real.first(min(2, few)))
    if options.dropout:
        add(f"tiny, full lengths, {options.batch} x {K}, dropout .1", new_model("tiny", 0.1), full, ours, peer=True)
    step = next((row["seconds"] for row in rows if row["method"].endswith(f": {OURS}") and "corpus" in row["method"]), 1.0)
    lengths = {
        "blocks": histogram([len(s) for s in inputs.blocks(list(range(len(inputs.store))))]),
        "sentences": histogram([len(s) for s in corpus_workload(inputs, sentences, min(500, len(sentences)), 1).query_inputs()], 8),
    }
    data = shares(new_model("tiny"), real, sentences, options.index, step)
    return {
        "rows": rows,
        "ratios": {n: round(r, 2) for n, r in ratios.items()},
        "to plain": gaps,
        "data and search": data,
        "lengths": lengths,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=Path, required=True, help="JSONL.xz of documents")
    parser.add_argument("--peer", type=Path, help="Python of the environment of make parity")
    parser.add_argument("--presets", default="tiny,mini,small")
    parser.add_argument("--batch", type=int, default=8, help="queries of a step")
    parser.add_argument("--few", type=int, default=2, help="queries of a step of the larger presets where plain ways and the peer run")
    parser.add_argument("--blocks", type=int, default=3000, help="of the corpus whose lengths count")
    parser.add_argument("--index", type=int, default=60_000, help="embeddings that are searched")
    parser.add_argument("--rounds", type=int, default=3, help="steps that count; one of the plain way and of the peer")
    parser.add_argument("--no-dropout", dest="dropout", action="store_false", help="leave out the row with dropout")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        found = run(options, Path(scratch))
    print(json.dumps(result("step", options.threads, **found)))


if __name__ == "__main__":
    main()
