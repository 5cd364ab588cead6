"""How fast is an index refreshed? Encoding against sentence-transformers, a whole refresh and a small one, a refresher beside a trainer.

    python benchmarks/bench_refresh.py --documents simplewiki_2021.jsonl.xz --blocks 6000 --threads 2
    python benchmarks/bench_refresh.py --documents simplewiki_2021.jsonl.xz --blocks 300000 --block-length 180 --changed 1000 \
        --encode 0 --steps 0 --threads 2 --work DIRECTORY

The second takes half an hour and about half a gigabyte in DIRECTORY; killed, the same command goes on where it was. (All of simplewiki is
some 245,000 blocks of 288 wordpieces; 180 make 300,000 of it.) --corpus takes a corpus that was built before; it is copied, then changed.

The peer (benchmark only: pip install sentence-transformers) encodes the same texts with the same random weights of MiniLM's shape and of
preset ``mini``; methods take turns and the median counts. Ours reads the wordpieces that the corpus stores, the peer makes them from text
each time, as each is used. Every refresh is a process of its own, so that its peak memory is its own. Without the peer its rows are left
out. Prints one JSON object as its last line.
"""

import argparse
import importlib.util
import itertools
import json
import shutil
import statistics
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
from realm.corpus.store.blocks import BlockStore
from realm.data.types import Sequence
from realm.index.embed import embed_blocks
from realm.nn.model import RealmModel
from realm.nn.precision import has_bf16
from realm.pipeline import run_recipe
from realm.progress import Progress
from realm.train.metrics import MetricsLog
from refresh_corpus import model_of, prepare, refresh, refreshes, take_documents
from step_figures import gemm_peak

SHAPES = {"minilm-6x384": (384, 6, 12, 1536), "mini-4x256": (256, 4, 4, 1024)}
ROUNDS = 3
LENGTH = 288


def peer_of(model: RealmModel, store: BlockStore, scratch: Path) -> Any:
    """sentence-transformers around the same weights and wordpieces."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import PreTrainedTokenizerFast

    store.tokenizer.save(scratch / "pieces")
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]", "unk_token": "[UNK]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(scratch / "pieces" / "tokenizer.json"), **names)
    model.embedder.body.model.save_pretrained(scratch / "body")
    tokenizer.save_pretrained(scratch / "body")
    body = modules.Transformer(str(scratch / "body"), max_seq_length=LENGTH)
    return SentenceTransformer(modules=[body, modules.Pooling(model.embedder.spec.body.hidden, pooling_mode="mean")], device="cpu")


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


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=Path, help="JSONL.xz of documents")
    parser.add_argument("--corpus", type=Path, help="a corpus directory to embed, instead of one made of --documents")
    parser.add_argument("--work", type=Path, help="directory that is kept: the same command goes on there where it was killed")
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--block-length", type=int, default=LENGTH, help="wordpieces of a block")
    parser.add_argument("--changed", type=int, default=0, help="documents to change; by default a 300th of the blocks")
    parser.add_argument("--encode", type=int, default=256, help="blocks in the comparison of encoders; 0 leaves it out")
    parser.add_argument("--steps", type=int, default=60, help="of pre-training for the slow-down, which needs --documents; 0 leaves it out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--refresh", choices=("whole", "difference"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.documents is None and (options.corpus is None or options.steps) and not options.refresh:
        parser.error("--documents is required, or --corpus with --steps 0")
    return options


def measured(options: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """All rows, each shown as soon as it is known."""
    store = prepare(work, options.corpus, options.documents, options.blocks, options.block_length)
    print(f"{len(store)} blocks, {float(store.lengths.mean()):.0f} wordpieces each", file=sys.stderr)
    rows = shown(encoding(store, options.encode, work)) if options.encode else []
    rows += shown(refreshes(work, options.workers, options.threads, options.changed or max(1, len(store) // 300)))
    if options.steps:
        few = work / "few.jsonl"
        take_documents(options.documents, few, min(options.blocks, 2000), LENGTH)
        rows += shown(slowdown(work, few, options.threads, options.steps))
    return rows


def ratios_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What is asked for, of the rows that are there."""
    by = {row["method"]: row for row in rows}
    ratios = {"difference to whole": by["refresh difference"]["seconds"] / by["refresh whole"]["seconds"]}
    for name in SHAPES:
        if peer := by.get(f"{name} sentence-transformers fp32"):
            best = max(row["blocks_per_second"] for method, row in by.items() if method.startswith(f"{name} realm"))
            ratios[f"{name} to sentence-transformers"] = best / peer["blocks_per_second"]
    if "step, process" in by:
        ratios["step beside a refresher to frozen"] = by["step, process"]["seconds"] / by["step, frozen"]["seconds"]
    return {name: round(value, 4) for name, value in ratios.items()}


def main() -> None:
    options = options_of()
    torch.set_num_threads(options.threads)
    if options.refresh:
        refresh(options.work, options.refresh, options.workers, options.threads)
        return
    work = options.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    try:
        rows = measured(options, work)
    finally:
        if options.work is None:
            shutil.rmtree(work)
    print(json.dumps(result("refresh", options.threads, rows=rows, ratios=ratios_of(rows))))


if __name__ == "__main__":
    main()
