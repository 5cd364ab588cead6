"""How fast are blocks embedded with a published embedder? Ours beside sentence-transformers and fastembed, same weights and inputs.

    pip install -c constraints.txt -r benchmarks/requirements.txt
    python -m benchmarks.search.bench_encode_bodies RUN --body minilm --limit 1024

RUN is any run, or corpus, built with the body's tokenizer. sentence-transformers runs with its own batch size (32) and with the best of
several, in bfloat16 too where the processor multiplies that; fastembed runs the body as torch exports it, with its own batch size (256) and
with the best. All take turns, the median of five counts. Our blocks are tokenized when a
corpus is built; ``with_tokenizing`` adds to our processor time what our tokenizer takes for the same texts. The last line is one JSON
object.
"""

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from transformers import AutoModel

from benchmarks.common import result
from realm.documents.store.blocks import BlockStore
from realm.models.bodies.body import has_bf16
from realm.models.bodies.known import body_directory
from realm.models.model import RealmModel
from realm.search.blocks import open_inputs
from realm.search.publishing.embedding import eight_bit, embed_corpus

BATCHES = (8, 16, 32, 64, 128)
DEFAULT_BATCH, FAST_BATCH, TRIED = 32, 256, 128


def alternated(ways: dict[str, Callable[[], Any]], rounds: int, *, warm: bool = True) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Let the ways take turns, in another order each round. Returns medians of wall and processor seconds, and each way's last result.

    Args:
        ways: name -> what is timed.
        rounds: turns of each that count.
        warm: one more round first, which does not count.
    """
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, Any] = {}
    names = list(ways)
    for turn in range(-int(warm), rounds):
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            started, worked = time.perf_counter(), time.process_time()
            found[name] = ways[name]()
            if turn >= 0:
                wall[name].append(time.perf_counter() - started)
                cpu[name].append(time.process_time() - worked)
    medians = {
        name: {"seconds": round(statistics.median(wall[name]), 4), "cpu_seconds": round(statistics.median(cpu[name]), 4)} for name in names
    }
    return medians, found


def block_texts(store: BlockStore, rows: np.ndarray) -> list[str]:
    """Blocks as one text each, of which BERT's tokenizer makes our own input to the wordpiece: [CLS] title [SEP] body [SEP]."""
    blocks = [store.block(int(row)) for row in rows]
    return [f"{block.title} [SEP] {block.text}" for block in blocks]


def sentence_transformer(source: str | Path, *, bf16: bool = False) -> Any:
    """sentence-transformers' own model of a body by name or directory, on the processor.

    Raises:
        SystemExit: sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise SystemExit(f"pip install sentence-transformers: {error}") from None
    directory = Path(source) if Path(source).is_dir() else body_directory(str(source))
    kinds = {"dtype": "bfloat16" if bf16 else "float32"}
    return SentenceTransformer(str(directory), device="cpu", trust_remote_code=False, model_kwargs=kinds)


def fast_embedder(source: str, scratch: Path, threads: int) -> Callable[[list[str], int], np.ndarray]:
    """fastembed's ``embed`` with a body that torch exports to ONNX, mean pooling and vectors of length 1, as the published body has them.

    Raises:
        SystemExit: fastembed is not installed.
    """
    try:
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType
    except ImportError as error:
        raise SystemExit(f"pip install fastembed: {error}") from None
    directory = scratch / "exported"
    shutil.copytree(body_directory(source), directory, ignore=shutil.ignore_patterns("*.safetensors"))
    body = AutoModel.from_pretrained(body_directory(source), trust_remote_code=False, attn_implementation="eager").eval()
    names = ["input_ids", "attention_mask", "token_type_ids"]
    given = tuple(torch.ones(2, 7, dtype=torch.int64) for _ in names)
    axes = {name: {0: "b", 1: "t"} for name in (*names, "last_hidden_state")}
    path, outputs = str(directory / "model.onnx"), ["last_hidden_state"]
    torch.onnx.export(Positional(body), given, path, input_names=names, output_names=outputs, dynamic_axes=axes, dynamo=False)
    sources, options = ModelSource(url="https://127.0.0.1/none"), {"dim": body.config.hidden_size, "model_file": "model.onnx"}
    TextEmbedding.add_custom_model(f"here/{source}", pooling=PoolingType.MEAN, normalization=True, sources=sources, **options)
    model = TextEmbedding(f"here/{source}", specific_model_path=str(directory), threads=threads)
    return lambda texts, size: np.stack(list(model.embed(texts, batch_size=size)))


class Positional(torch.nn.Module):
    """A body of transformers by its inputs in order, for the exporter."""

    def __init__(self, body: torch.nn.Module):
        super().__init__()
        self.body = body

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.body(input_ids=ids, attention_mask=mask, token_type_ids=kinds).last_hidden_state
        return states


def lowest_cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Of the vectors [n, d] of the same rows."""
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return float(((ours * theirs).sum(1) / lengths).min())


def best_batch(encode: Callable[[int], np.ndarray]) -> int:
    """The batch size with which sentence-transformers needs least processor time."""
    times, _ = alternated({str(size): partial(encode, size) for size in BATCHES}, 2)
    return int(min(times, key=lambda size: times[size]["cpu_seconds"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--body", default="minilm")
    parser.add_argument("--limit", type=int, default=1024, help="blocks, drawn at random")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    corpus = arguments.run / "corpus"
    inputs = open_inputs(corpus if corpus.is_dir() else arguments.run, 64)
    rows = np.random.default_rng(0).permutation(len(inputs.store))[: arguments.limit]
    texts = block_texts(inputs.store, rows)
    model = RealmModel.from_pretrained(body_directory(arguments.body)).only("embedder")
    embedder = model.embedder
    peer, half = sentence_transformer(arguments.body), has_bf16("cpu")
    peer_half = sentence_transformer(arguments.body, bf16=True) if half else None

    def encode(model: Any, size: int, some: list[str] = texts) -> np.ndarray:
        return model.encode(some, batch_size=size, show_progress_bar=False)

    best = best_batch(partial(encode, peer, some=texts[:TRIED]))
    ways: dict[str, Callable[[], Any]] = {
        "realm": partial(embed_corpus, embedder, inputs, rows),
        "sentence-transformers": partial(encode, peer, DEFAULT_BATCH),
        f"sentence-transformers, batch {best}": partial(encode, peer, best),
        "our tokenizer": partial(inputs.store.tokenizer.tokenize, texts),
    }
    with TemporaryDirectory() as scratch:
        model.save_pretrained(Path(scratch) / "model")
        ways["realm int8"] = partial(embed_corpus, eight_bit(Path(scratch) / "model", arguments.threads), inputs, rows)
        fast = fast_embedder(arguments.body, Path(scratch), arguments.threads)
    fastest = best_batch(partial(fast, texts[:TRIED]))
    ways |= {"fastembed": partial(fast, texts, FAST_BATCH), f"fastembed, batch {fastest}": partial(fast, texts, fastest)}
    if peer_half is not None:
        ways["realm bf16"] = partial(embed_corpus, embedder, inputs, rows, bf16=True)
        ways["sentence-transformers bf16"] = partial(encode, peer_half, best_batch(partial(encode, peer_half, some=texts[:TRIED])))
    times, found = alternated(ways, arguments.rounds)
    tokenized = peer.tokenizer(texts)["input_ids"]
    different = sum(own.ids != list(ids) for own, ids in zip(inputs.blocks(rows.tolist()), tokenized, strict=True))
    ratios: dict[str, Any] = {}
    for name in (name for name in ways if name.startswith("realm")):
        for other in (other for other in ways if other.startswith(("sentence", "fastembed"))):
            slow, fast = times[other], times[name]
            ratio = {clock: round(slow[clock] / fast[clock], 3) for clock in ("cpu_seconds", "seconds")}
            tokenized_too = fast["cpu_seconds"] + times["our tokenizer"]["cpu_seconds"]
            ratios[f"{name} to {other}"] = ratio | {"with_tokenizing": round(slow["cpu_seconds"] / tokenized_too, 3)}
    cosines = {name: lowest_cosine(found[name], found["sentence-transformers"]) for name in ways if name.startswith(("realm", "fastembed"))}
    facts = {"body": arguments.body, "blocks": len(rows), "wordpieces": int(inputs.lengths(rows).sum()), "different_inputs": different}
    table = [{"method": name, **row} for name, row in times.items()]
    print(
        json.dumps(
            result("encode_bodies", arguments.threads, **facts, rounds=arguments.rounds, rows=table, ratios=ratios, lowest_cosines=cosines)
        )
    )


if __name__ == "__main__":
    main()
