"""The block store at the size of a whole Wikipedia: opening, memory, random batches, look-ups, and a change.

Writes a synthetic corpus to a temporary directory (real layout, real tokenizer files, blocks of 200 to 280 random wordpieces; text is cut
to about 100 characters, a tenth of a real block, so that the files stay small) and measures in fresh processes. The naive way is
``table.take`` of pyarrow on the same memory-mapped files, in the same run.

    python benchmarks/bench_store.py --n 13350000 --dir /somewhere/with/15/GB
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from common import result
from realm.corpus.build.builder import build_corpus
from realm.corpus.change.updates import add_documents, remove_documents
from realm.corpus.store import manifest as manifests
from realm.corpus.store.blocks import BlockStore
from realm.corpus.store.lookup import finish_segment
from realm.corpus.store.manifest import SegmentInfo
from realm.corpus.store.segments import BATCH_ROWS, SEGMENT_ROWS, segment_schema, token_dtype

BATCH = 512
BLOCKS_PER_DOCUMENT = 4
SENTENCES, SPANS = 9, 12


def lists(counts: np.ndarray, values: pa.Array) -> pa.Array:
    """A list column with ``counts[i]`` values in row i."""
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)), values)


def pairs(counts: np.ndarray) -> pa.Array:
    flat = np.tile(np.array([0, 10], np.int32), int(counts.sum()))
    return lists(counts, pa.FixedSizeListArray.from_arrays(pa.array(flat), 2))


def content(rng: np.random.Generator, vocab_size: int, dtype: np.dtype[Any]) -> dict[str, pa.Array]:
    """Columns of one full batch that every batch repeats."""
    n = BATCH_ROWS
    lengths, spans = rng.integers(200, 281, n), np.full(n, SPANS)
    sentences, title = np.full(n, SENTENCES), np.full(n, 4)

    def ids(count: int) -> pa.Array:
        return pa.array(rng.integers(0, vocab_size, count).astype(dtype))

    def hashes(counts: np.ndarray) -> pa.Array:
        return lists(counts, pa.array(rng.integers(0, 1 << 63, int(counts.sum()), dtype=np.uint64)))

    texts = [f"{number:8d} " + "The text of a block, cut short. " * 3 for number in range(n)]
    return {
        "title": pa.array([f"Title of article {number // BLOCKS_PER_DOCUMENT}" for number in range(n)]),
        "text": pa.array(texts),
        "source": pa.array(["dumps/enwiki.xml.bz2"] * n),
        "line": pa.array(np.arange(n)),
        "char_start": pa.array(np.arange(n) * 0),
        "title_ids": lists(title, ids(int(title.sum()))),
        "token_ids": lists(lengths, ids(int(lengths.sum()))),
        "sentence_chars": pairs(sentences),
        "sentence_tokens": pairs(sentences),
        "sentence_hashes": hashes(sentences),
        "span_chars": pairs(spans),
        "span_tokens": pairs(spans),
        "span_sentence": lists(spans, pa.array(np.zeros(int(spans.sum()), np.int32))),
        "span_hashes": hashes(spans),
    }


def write_segment(path: Path, first_id: int, rows: int, columns: dict[str, pa.Array], schema: pa.Schema) -> SegmentInfo:
    """One segment of ``rows`` blocks with ids from ``first_id``."""
    tokens = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for start in range(0, rows, BATCH_ROWS):
            ids = first_id + start + np.arange(min(BATCH_ROWS, rows - start))
            named = columns | {"block_id": pa.array(ids), "doc_id": pa.array([f"d{number // BLOCKS_PER_DOCUMENT}" for number in ids])}
            batch = pa.RecordBatch.from_arrays([named[name].slice(0, len(ids)) for name in schema.names], schema=schema)
            tokens += len(batch.column("token_ids").flatten())
            writer.write_batch(batch)
    return finish_segment(path, tokens)


def write_corpus(corpus: Path, n: int, make: Callable[[np.random.Generator, int, np.dtype[Any]], dict[str, pa.Array]] = content) -> None:
    """A corpus of n blocks, columns by ``make``. Tokenizer and tagger come from a real one of a single document."""
    source = corpus.with_name("one.jsonl")
    source.write_text('{"id": "one", "title": "One", "text": "The pound sterling is the currency of the United Kingdom."}\n')
    manifest = build_corpus([source], corpus, vocab_size=400)
    directory = corpus / manifests.SEGMENTS_DIRECTORY
    for file in directory.iterdir():
        file.unlink()
    dtype = token_dtype(manifest.vocab_size)
    columns, schema = make(np.random.default_rng(0), manifest.vocab_size, dtype), segment_schema(dtype)
    infos = []
    for number, start in enumerate(range(0, n, SEGMENT_ROWS)):
        infos.append(write_segment(directory / f"{number + 1:06d}.arrow", start, min(SEGMENT_ROWS, n - start), columns, schema))
        print(f"{min(n, start + SEGMENT_ROWS):,} blocks written", file=sys.stderr)
    documents, spans = -(-n // BLOCKS_PER_DOCUMENT), n * SPANS
    manifest = replace(manifest, segments=tuple(infos), blocks=n, documents=documents, spans=spans, next_block_id=n)
    manifests.write_manifest(corpus, manifest)


def memory(kind: str) -> int:
    """Bytes of this process: "VmRSS", all of it in memory, or "RssAnon", what is its own and no page of a file."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) * 1024


def forget_pages(corpus: Path) -> None:
    """Drop the corpus from the page cache, as far as the system follows the advice."""
    os.sync()
    for path in corpus.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def opening(corpus: Path) -> dict[str, float]:
    """Open in this fresh process: seconds, and how much memory that took."""
    before, private, started = memory("VmRSS"), memory("RssAnon"), time.perf_counter()
    store = BlockStore.open(corpus)
    seconds = time.perf_counter() - started
    assert len(store)
    return {"seconds": seconds, "rss_mb": (memory("VmRSS") - before) / 2**20, "private_mb": (memory("RssAnon") - private) / 2**20}


def rate(fetch: Callable[[np.ndarray], Any], n: int, seconds: float, seed: int) -> float:
    """Random batches of BATCH blocks a second."""
    rng, done, started = np.random.default_rng(seed), 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        fetch(rng.integers(0, n, BATCH))
        done += 1
    return done / (time.perf_counter() - started)


def batches(corpus: Path, seconds: float) -> dict[str, float]:
    """Token ids of random batches: the store against pyarrow's take, taking turns."""
    store = BlockStore.open(corpus)
    files = [corpus / manifests.SEGMENTS_DIRECTORY / info.name for info in store.manifest.segments]
    tables = [pa.ipc.open_file(pa.memory_map(str(file), "r")).read_all().select(["token_ids"]) for file in files]
    starts = np.cumsum([0, *(len(table) for table in tables)])

    def ours(rows: np.ndarray) -> list[np.ndarray]:
        return [store.token_ids(row) for row in rows.tolist()]

    def naive(rows: np.ndarray) -> list[np.ndarray]:
        # File by file: the token ids of all are more than the 32-bit offsets of one list column can address.
        number, found = np.searchsorted(starts, rows, side="right") - 1, [np.empty(0)] * len(rows)
        for file in np.unique(number).tolist():
            places = np.flatnonzero(number == file)
            taken = tables[file].take(pa.array(rows[places] - starts[file])).column(0)
            for place, part in zip(places.tolist(), taken, strict=True):
                found[place] = part.values.to_numpy()
        return found

    rows = np.random.default_rng(1).integers(0, len(store), 64)
    assert all((a == b).all() for a, b in zip(ours(rows), naive(rows), strict=True))
    rates: dict[str, list[float]] = {"store": [], "take": []}
    for turn in range(3):
        rates["store"].append(rate(ours, len(store), seconds, turn))
        rates["take"].append(rate(naive, len(store), seconds, turn))
    ids = store.block_ids
    found = {name: float(np.median(values)) for name, values in rates.items()}
    found["rows_of"] = rate(lambda rows: store.rows_of(ids[rows]), len(store), seconds, 9)
    found["documents"] = rate(
        lambda rows: [store.rows_of_document(f"d{row // BLOCKS_PER_DOCUMENT}") for row in rows], len(store), seconds, 9
    )
    return found


def changes(corpus: Path) -> dict[str, float]:
    """Seconds of one small addition and one small removal."""
    source = corpus.with_name("new.jsonl")
    source.write_text('{"id": "new", "title": "New", "text": "This document came on 12 March 1969 to London."}\n')
    started = time.perf_counter()
    add_documents(corpus, [source])
    added = time.perf_counter()
    remove_documents(corpus, ["d7", "new"])
    removed = time.perf_counter()
    return {"add": added - started, "remove": removed - added, "private_mb": memory("RssAnon") / 2**20}


def in_fresh_process(what: str, corpus: Path, seconds: float) -> dict[str, float]:
    """Run one of the measurements in a process of its own."""
    command = [sys.executable, __file__, "--measure", what, "--dir", str(corpus), "--seconds", str(seconds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100_000, help="blocks")
    parser.add_argument("--dir", type=Path, default=None, help="where the corpus is written for a while; default: the temporary directory")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measured rate")
    parser.add_argument("--measure", choices=("opening", "batches", "changes"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measured = {
            "opening": lambda: opening(arguments.dir),
            "batches": lambda: batches(arguments.dir, arguments.seconds),
            "changes": lambda: changes(arguments.dir),
        }
        print(json.dumps(measured[arguments.measure]()))
        return
    with tempfile.TemporaryDirectory(dir=arguments.dir) as scratch:
        corpus = Path(scratch) / "corpus"
        write_corpus(corpus, arguments.n)
        size = sum(path.stat().st_size for path in corpus.rglob("*") if path.is_file())
        print(f"{size / 1e9:.1f} GB written, {shutil.disk_usage(scratch).free / 1e9:.0f} GB free", file=sys.stderr)
        forget_pages(corpus)
        rows = [{"method": "open, pages dropped", **in_fresh_process("opening", corpus, 0)}]
        rows += [{"method": "open again", **in_fresh_process("opening", corpus, 0)}]
        found = in_fresh_process("batches", corpus, arguments.seconds)
        rows += [{"method": f"batches of {BATCH} a second: {name}", "rate": value} for name, value in found.items()]
        rows += [{"method": "seconds of a small change", **in_fresh_process("changes", corpus, 0)}]
        facts = {"blocks": arguments.n, "bytes": size, "segments": len(asdict(manifests.read_manifest(corpus))["segments"])}
    for row in rows:
        print("  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{value}" for key, value in row.items()))
    ratios = {"batches a second: store / take": found["store"] / found["take"]}
    print(json.dumps(result("store", os.cpu_count() or 1, rows=rows, ratios=ratios, **facts)))


if __name__ == "__main__":
    main()
