"""How fast is an index refreshed? Encoding against sentence-transformers, a whole refresh and a small one, a refresher beside a trainer.

    python benchmarks/bench_refresh.py --documents simplewiki_2021.jsonl.xz --blocks 300000 --threads 2

The peer (benchmark only: pip install sentence-transformers) encodes the same texts with the same random weights of MiniLM's shape and of
preset ``mini``; methods take turns and the median counts. Ours reads the wordpieces that the corpus stores, the peer makes them from text
each time, as each is used. Every refresh is a process of its own, so that its peak memory is its own. Without the peer its rows are left
out. Prints one JSON object as its last line.
"""

import argparse
import importlib.util
import itertools
import json
import lzma
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import result
from realm.config import build_recipe
from realm.corpus.blocks import BlockStore
from realm.corpus.build import build_corpus
from realm.corpus.living import update_documents
from realm.data.blocks import BlockInputs, open_inputs
from realm.data.types import Sequence
from realm.index.embed import embed_blocks
from realm.nn.bodies import BodySpec, bert_spec
from realm.nn.model import ModelSpec, RealmModel
from realm.paths import RunPaths
from realm.pipeline import run_recipe
from realm.progress import Progress
from realm.refresh import EmbedOptions, embed_difference, refresh_index
from realm.train.metrics import MetricsLog
from realm.train.precision import has_bf16

SHAPES = {"minilm-6x384": (384, 6, 12, 1536), "mini-4x256": (256, 4, 4, 1024)}
ROUNDS = 3
LENGTH = 288


def take_documents(source: Path, target: Path, blocks: int) -> None:
    """So many documents that they make at least about ``blocks`` blocks: a block holds some 1,000 characters."""
    left = blocks * 1000
    with lzma.open(source, "rt", encoding="utf-8") as lines, open(target, "w", encoding="utf-8") as out:
        for line in lines:
            out.write(line)
            left -= len(line)
            if left < 0:
                return


def model_of(store: BlockStore, hidden: int, layers: int, heads: int, intermediate: int, **spec: Any) -> RealmModel:
    torch.manual_seed(0)
    sizes = {"hidden": hidden, "layers": layers, "heads": heads, "intermediate": intermediate}
    body = bert_spec(vocab_size=store.tokenizer.vocab_size, max_length=512, dropout=0.0, attention_dropout=0.0, **sizes)
    return RealmModel(ModelSpec(body=BodySpec(body.config, pooling=spec.pop("pooling", "pooler")), parts=("embedder",), **spec)).eval()


def peer_of(model: RealmModel, store: BlockStore, scratch: Path) -> Any:
    """sentence-transformers around the same weights and wordpieces."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import PreTrainedTokenizerFast

    store.tokenizer.save(scratch / "pieces")
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]", "unk_token": "[UNK]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(scratch / "pieces" / "tokenizer.json"), **names)
    assert model.embedder is not None
    model.embedder.body.model.save_pretrained(scratch / "body")
    tokenizer.save_pretrained(scratch / "body")
    body = modules.Transformer(str(scratch / "body"), max_seq_length=LENGTH)
    return SentenceTransformer(modules=[body, modules.Pooling(model.spec.body.hidden, pooling_mode="mean")], device="cpu")


def gemm_peak(width: int, inner: int, dtype: torch.dtype) -> float:
    """FLOP/s of the body's largest matrix product, the best of several."""
    a, b = torch.randn(4096, width, dtype=dtype), torch.randn(width, inner, dtype=dtype)
    best = float("inf")
    for _ in range(8):
        started = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - started)
    return 2 * 4096 * width * inner / best


def encoding(store: BlockStore, count: int, scratch: Path) -> list[dict[str, Any]]:
    """Blocks a second of ours and of the peer on the same texts, taking turns."""
    rows: list[dict[str, Any]] = []
    picked = np.random.default_rng(0).permutation(len(store))[:count].tolist()
    texts = [store.block(row).text for row in picked]
    cls, sep = store.tokenizer.special.cls, store.tokenizer.special.sep
    ids = [[cls, *pieces[: LENGTH - 2], sep] for pieces in store.tokenizer.encode(texts)]
    sequences = [Sequence(one, [0] * len(one)) for one in ids]
    lengths = np.array([len(one) for one in ids])
    for name, shape in SHAPES.items():
        model = model_of(store, *shape, pooling="mean", head="none")
        half = has_bf16("cpu")

        def ours(bf16: bool, model: RealmModel = model) -> np.ndarray:
            def embed(batch: list[int]) -> torch.Tensor:
                with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                    return model.documents([sequences[i] for i in batch])

            with torch.inference_mode():
                return embed_blocks(embed, lengths, np.arange(len(lengths)))

        methods: dict[str, Callable[[], np.ndarray]] = {"realm fp32": lambda: ours(False)}
        if half:
            methods["realm bf16"] = lambda: ours(True)
        if importlib.util.find_spec("sentence_transformers"):
            peer = peer_of(model, store, scratch / name)
            methods["sentence-transformers fp32"] = lambda peer=peer: peer.encode(texts, batch_size=32)
        seconds: dict[str, list[float]] = {method: [] for method in methods}
        vectors: dict[str, np.ndarray] = {}
        for _, (method, run) in itertools.product(range(ROUNDS), methods.items()):
            started = time.perf_counter()
            vectors[method] = run()
            seconds[method].append(time.perf_counter() - started)
        hidden, layers, _, intermediate = shape
        flops = sum(layers * (n * (8 * hidden**2 + 4 * hidden * intermediate) + 4 * n * n * hidden) for n in lengths.tolist())
        for method, taken in seconds.items():
            peak = gemm_peak(hidden, intermediate, torch.bfloat16 if "bf16" in method else torch.float32)
            cosine = _cosine(vectors["realm fp32"], vectors[method])
            speed = {"blocks_per_second": round(count / statistics.median(taken), 2), "min_cosine_to_fp32": round(cosine, 6)}
            rows.append({"method": f"{name} {method}", **speed, "share_of_gemm_peak": round(flops / statistics.median(taken) / peak, 3)})
    return rows


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(1) / norms).min())


def refresh(root: Path, mode: str, workers: int) -> None:
    """In a process of its own: a whole refresh, or the difference. Prints what it took."""
    paths = RunPaths(root)
    inputs: BlockInputs = open_inputs(paths.corpus, 64)
    started = time.perf_counter()
    if mode == "whole":
        generation = refresh_index(model_of(inputs.store, 128, 2, 2, 512), inputs, paths, step=0, options=EmbedOptions(workers=workers))
        embedded = len(generation.index)
    else:
        generation, embedded = embed_difference(paths, inputs)
    hits = generation.index.search(torch.from_numpy(np.array(generation.snapshot.vectors[:1])), 5)
    seconds = time.perf_counter() - started
    assert hits.valid.all()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({"seconds": round(seconds, 3), "blocks": embedded, "peak_mib": peak >> 10}))


def refreshes(root: Path, documents: Path, workers: int, changed: int) -> list[dict[str, Any]]:
    """The corpus embedded, published and searchable; then the same after ``changed`` documents changed."""
    rows = []
    for mode in ("whole", "difference"):
        if mode == "difference":
            with open(documents, encoding="utf-8") as lines, open(root / "changed.jsonl", "w", encoding="utf-8") as out:
                for line in itertools.islice(lines, changed):
                    row = json.loads(line)
                    out.write(json.dumps({**row, "text": "Changed. " + row["text"]}) + "\n")
            update_documents(root / "corpus", [root / "changed.jsonl"])
        command = [sys.executable, __file__, "--refresh", mode, "--run", str(root), "--workers", str(workers)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append({"method": f"refresh {mode}", **json.loads(done.stdout.splitlines()[-1])})
    return rows


def slowdown(root: Path, documents: Path, threads: int, steps: int) -> list[dict[str, Any]]:
    """Seconds a step of pre-training with a frozen index and beside a refresher that is never idle; taking turns."""
    rows: dict[str, list[float]] = {"frozen": [], "process": []}
    recipe = {
        "run": {"threads": threads, "device": "cpu", "checkpoint_every": 0},
        "corpus": {"sources": [str(documents)], "tagger": "dates"},
        "warm": {"steps": 2},
        "ict": {"steps": 2, "batch": 8},
        "pretrain": {"steps": steps, "force": True, "probe_queries": 4},
        "refresher": {"staleness_limit": 10 * steps},
    }
    for turn, mode in itertools.product(range(2), rows):
        out = root / f"{mode}-{turn}"
        built = build_recipe(recipe, overrides={"pretrain": {"refresh": mode, "refresh_every": 10}})
        run_recipe(built, out, stages=("corpus", "warm", "ict", "pretrain"), progress=Progress(quiet=True))
        logged = [row for row in MetricsLog(out / "metrics.jsonl").rows() if row["stage"] == "pretrain"]
        waits = sum(row.get("wait_seconds", 0.0) for row in logged if 20 < row["step"] < steps)
        times = [row["time"] for row in logged if "loss" in row]
        rows[mode].append((times[-1] - times[0] - waits) / (steps - 20))
    return [{"method": f"step, {mode}", "seconds": round(min(taken), 4)} for mode, taken in rows.items()]


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, written to standard error as soon as they are known."""
    for row in rows:
        print(row, file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=Path, help="JSONL.xz of documents")
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--changed", type=int, default=0, help="documents to change; by default a 300th of the blocks")
    parser.add_argument("--encode", type=int, default=256, help="blocks in the comparison of encoders")
    parser.add_argument("--steps", type=int, default=60, help="of pre-training for the slow-down; 0 leaves it out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--refresh", choices=("whole", "difference"), help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.refresh:
        refresh(options.run, options.refresh, options.workers)
        return
    if options.documents is None:
        parser.error("--documents is required")
    scratch = Path(tempfile.mkdtemp())
    try:
        documents = scratch / "documents.jsonl"
        take_documents(options.documents, documents, options.blocks)
        build_corpus([documents], scratch / "corpus", vocab_size=8000, tagger="none")
        store = BlockStore.open(scratch / "corpus")
        print(f"{len(store)} blocks, {float(store.lengths.mean()):.0f} wordpieces each", file=sys.stderr)
        rows = shown(encoding(store, options.encode, scratch))
        rows += shown(refreshes(scratch, documents, options.workers, options.changed or max(1, len(store) // 300)))
        if options.steps:
            few = scratch / "few.jsonl"
            take_documents(options.documents, few, min(options.blocks, 2000))
            rows += shown(slowdown(scratch, few, options.threads, options.steps))
    finally:
        shutil.rmtree(scratch)
    by = {row["method"]: row for row in rows}
    ratios = {"difference to whole": by["refresh difference"]["seconds"] / by["refresh whole"]["seconds"]}
    for name in SHAPES:
        best = max(row["blocks_per_second"] for method, row in by.items() if method.startswith(f"{name} realm"))
        if peer := by.get(f"{name} sentence-transformers fp32"):
            ratios[f"{name} to sentence-transformers"] = best / peer["blocks_per_second"]
    if options.steps:
        ratios["step beside a refresher to frozen"] = by["step, process"]["seconds"] / by["step, frozen"]["seconds"]
    fields = {"rows": rows, "ratios": {name: round(value, 3) for name, value in ratios.items()}}
    print(json.dumps(result("refresh", options.threads, **fields)))


if __name__ == "__main__":
    main()
