"""The part of bench_refresh.py that embeds a whole corpus with preset ``tiny``, and again after some of its documents changed.

Everything lies in one working directory, so that a killed benchmark goes on where it was: the corpus build and both builds of the index
are taken up at their last finished part, and rows that were measured are kept in ``rows.json``.
"""

import json
import lzma
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from realm.corpus.build.builder import build_corpus
from realm.corpus.change.updates import update_documents
from realm.corpus.store.blocks import BlockStore
from realm.data.blocks import BlockInputs, open_inputs
from realm.nn.model import RealmModel
from realm.nn.spec import BodySpec, bert_spec, one_body
from realm.paths import RunPaths
from realm.refresh import EmbedOptions, add_difference, open_generation, refresh_index
from realm.storage.files import write_json
from realm.storage.generations import current_generation

TINY = (128, 2, 2, 512)
QUERY_LENGTH = 64
CHARACTERS = 4.0
"""Of a wordpiece in English text, cautiously."""


def take_documents(source: Path, target: Path, blocks: int, block_length: int) -> None:
    """So many documents that they make at least about ``blocks`` blocks, or all there are."""
    left = float(blocks)
    with lzma.open(source, "rt", encoding="utf-8") as lines, open(target, "w", encoding="utf-8") as out:
        for line in lines:
            out.write(line)
            left -= max(1.0, len(line) / (CHARACTERS * block_length))
            if left < 0:
                return


def model_of(store: BlockStore, hidden: int, layers: int, heads: int, intermediate: int, **spec: Any) -> RealmModel:
    """An embedder with random weights, the same ones in every process."""
    torch.manual_seed(0)
    sizes = {"hidden": hidden, "layers": layers, "heads": heads, "intermediate": intermediate}
    body = bert_spec(vocab_size=store.tokenizer.vocab_size, max_length=512, dropout=0.0, attention_dropout=0.0, **sizes)
    return RealmModel(one_body(BodySpec(body.config, pooling=spec.pop("pooling", "pooler")), parts=("embedder",), **spec)).eval()


def prepare(work: Path, built: Path | None, source: Path | None, blocks: int, block_length: int) -> BlockStore:
    """The corpus to embed in ``work``: a copy of one that was built before, which will be changed, or of the first documents of a file."""
    corpus = work / "corpus"
    if not corpus.exists() and built is not None:
        staging = work / "corpus.copying"
        shutil.rmtree(staging, ignore_errors=True)
        shutil.copytree(built, staging).rename(corpus)
    elif not corpus.exists():
        assert source is not None
        take_documents(source, work / "documents.jsonl", blocks, block_length)
        build_corpus([work / "documents.jsonl"], corpus, vocab_size=8000, tagger="none", block_length=block_length)
    return BlockStore.open(corpus)


def changed_documents(store: BlockStore, count: int, out: Path) -> int:
    """Write the first documents of a corpus with another beginning. Returns how many."""
    texts: dict[str, tuple[str, list[str]]] = {}
    for row in np.flatnonzero(store.live).tolist():
        block = store.block(row)
        if block.doc_id not in texts and len(texts) == count:
            break
        texts.setdefault(block.doc_id, (block.title, []))[1].append(block.text)
    rows = ({"id": key, "title": title, "text": "Changed. " + " ".join(parts)} for key, (title, parts) in texts.items())
    out.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return len(texts)


def refreshes(work: Path, workers: int, threads: int, changed: int) -> list[dict[str, Any]]:
    """The corpus embedded, published and searchable; then the same after ``changed`` documents changed; each in a process of its own."""
    kept = work / "rows.json"
    rows: list[dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else []
    for mode in ("whole", "difference")[len(rows) :]:
        row: dict[str, Any] = {"method": f"refresh {mode}"}
        if mode == "difference":
            if not (work / "changed.jsonl").exists():
                row["documents"] = changed_documents(BlockStore.open(work / "corpus"), changed, work / "changed.jsonl")
            update_documents(work / "corpus", [work / "changed.jsonl"])
        script = [sys.executable, str(Path(__file__).with_name("bench_refresh.py"))]
        command = [*script, "--refresh", mode, "--work", str(work), "--workers", str(workers), "--threads", str(threads)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append(row | json.loads(done.stdout.splitlines()[-1]))
        write_json(kept, rows)
    return rows


def refresh(work: Path, mode: str, workers: int, threads: int) -> None:
    """In a process of its own: a whole refresh, or the difference. Prints what it took, from opening the run to the first search.

    What a killed process had embedded of the whole counts: its seconds are noted with its rows.
    """
    paths, options = RunPaths(work), EmbedOptions(workers=workers, threads=threads)
    inputs: BlockInputs = open_inputs(paths.corpus, QUERY_LENGTH)
    started = time.perf_counter()
    if mode == "whole":
        if current_generation(paths.index) is None:
            refresh_index(model_of(inputs.store, *TINY), inputs, paths, step=0, options=options, progress=_told())
        embedding = time.perf_counter()
        generation = open_generation(paths, inputs)
        before, embedded = generation.snapshot.manifest.seconds, len(generation.snapshot.block_ids)
    else:
        generation = open_generation(paths, inputs)
        before, embedding = time.perf_counter() - started, time.perf_counter()
        generation, embedded = add_difference(generation, paths, inputs, _told(), options=options)
    added = time.perf_counter()
    hits = generation.index.search(torch.from_numpy(np.array(generation.snapshot.vectors[:1])), 5)
    assert hits.valid.all()
    searched = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    parts = {"embedding" if mode == "whole" else "opening": before, "opening" if mode == "whole" else "embedding": added - embedding}
    parts |= {"making the search index": searched - added}
    seconds = {name: round(value, 3) for name, value in parts.items()}
    print(json.dumps({"seconds": round(sum(parts.values()), 3), "of which": seconds, "blocks": embedded, "peak_mib": peak >> 10}))


def _told() -> Any:
    """Progress on standard error, now and then."""
    last = [time.monotonic()]

    def tell(done: int, total: int) -> None:
        if time.monotonic() - last[0] > 10.0:
            last[0] = time.monotonic()
            print(f"embedded {done} of {total} blocks", file=sys.stderr, flush=True)

    return tell
