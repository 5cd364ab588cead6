"""How fast is a corpus built, and with how much memory? Ours with 1 and 2 workers, with and without spans, against the reference way.

The reference way is what such projects' scripts do, in one process: a punkt-like rule for sentences (a full stop, question or exclamation
mark before a capital, unless an abbreviation or initial stands before it; NLTK's punkt itself needs a download, and is slower than this),
a Hugging Face tokenizer called sentence by sentence, greedy packing, an Arrow file. All get the same tokenizer and the same sample of
real articles; every run is a process of its own, so that its peak memory is its own, and the methods take turns. Prints a table and,
as its last line, one JSON object; seconds are wall clock without imports (CPU seconds besides: a busy machine distorts them less), memory
is the peak of the first process and of its largest child.

    python benchmarks/bench_corpus.py --documents simplewiki_2021.jsonl.xz --mb 10 --rounds 3
"""

import argparse
import json
import lzma
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from realm.corpus.build.builder import build_corpus
from realm.text.tokenizer import TextTokenizer, train_wordpiece

METHODS: dict[str, dict[str, Any]] = {
    "reference": {},
    "1 worker": {"workers": 1, "tagger": "none"},
    "2 workers": {"workers": 2, "tagger": "none"},
    "1 worker, spans": {"workers": 1, "tagger": "default"},
    "2 workers, spans": {"workers": 2, "tagger": "default"},
}
_END = re.compile(r"[.!?][\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])")
_ABBREVIATIONS = re.compile("mr|mrs|ms|dr|st|jr|sr|prof|gen|col|capt|lt|rev|no|vol|vs|etc|e.g|i.e|u.s|u.k|inc|co|corp|ltd|ca|fig|al")


def punkt_like(text: str) -> Iterator[str]:
    """Sentences by rule; every end is checked against the word before it."""
    start = 0
    for match in _END.finditer(text):
        before = text[start : match.start()].rsplit(None, 1)
        word = before[-1].strip("\"'([").lower() if before else ""
        if text[match.start()] == "." and (_ABBREVIATIONS.fullmatch(word) or (len(word) == 1 and word.isalpha())):
            continue
        yield text[start : match.end()].strip()
        start = match.end()
    if text[start:].strip():
        yield text[start:].strip()


def block(document: dict[str, Any], title: list[int], texts: list[str], ids: list[int]) -> dict[str, Any]:
    """A row of the reference's file."""
    return {"doc_id": document["id"], "title": document["title"], "text": " ".join(texts), "title_ids": title, "token_ids": ids}


def reference(sample: Path, tokenizer_directory: Path, out: Path) -> int:
    """Build blocks of 288 wordpieces as a plain script does. Returns their number."""
    import transformers.utils.logging
    from transformers import AutoTokenizer

    transformers.utils.logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_directory)
    rows: list[dict[str, Any]] = []
    with open(sample, encoding="utf-8") as file:
        for line in file:
            document = json.loads(line)
            title = tokenizer(document["title"], add_special_tokens=False)["input_ids"][:72]
            room = 288 - 3 - len(title)
            texts: list[str] = []
            ids: list[int] = []

            for sentence in (sentence for paragraph in document["text"].split("\n") for sentence in punkt_like(paragraph)):
                found = tokenizer(sentence, add_special_tokens=False)["input_ids"][:room]
                if texts and len(ids) + len(found) > room:
                    rows.append(block(document, title, texts, ids))
                    texts, ids = [], []
                texts.append(sentence)
                ids = ids + found
            if texts:
                rows.append(block(document, title, texts, ids))
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_file(str(out), table.schema) as writer:
        writer.write_table(table)
    return len(rows)


def run_one(method: str, sample: Path, scratch: Path) -> dict[str, Any]:
    """One run in this process."""
    with tempfile.TemporaryDirectory(dir=scratch) as out:
        before, started = time.process_time(), time.perf_counter()
        if method == "reference":
            blocks = reference(sample, scratch / "tokenizer", Path(out) / "blocks.arrow")
        else:
            blocks = build_corpus([sample], Path(out) / "corpus", tokenizer=scratch / "tokenizer", **METHODS[method]).blocks
        seconds = time.perf_counter() - started
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, child = (usage.ru_maxrss // 1024 for usage in used)
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in used) - before
    facts = {"method": method, "seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2), "blocks": blocks}
    return {**facts, "peak_mb": own, "peak_child_mb": child}


def make_sample(documents: Path, mb: float, scratch: Path) -> Path:
    """The first articles, and a tokenizer trained on them."""
    sample, size = scratch / "sample.jsonl", 0
    opener: Any = lzma.open if documents.suffix == ".xz" else open
    texts = []
    with opener(documents, "rb") as source, open(sample, "wb") as target:
        for line in source:
            target.write(line)
            texts.append(json.loads(line)["text"])
            size += len(line)
            if size >= mb * 1e6:
                break
    trained: TextTokenizer = train_wordpiece(texts, 8000)
    trained.save(scratch / "tokenizer")
    return sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--documents", type=Path, default=Path(os.environ.get("REALM_DATA", "data")) / "corpus" / "simplewiki_2021.jsonl.xz"
    )
    parser.add_argument("--mb", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="the reference comes first")
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "SAMPLE", "SCRATCH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        method, sample, scratch = arguments.one
        print(json.dumps(run_one(method, Path(sample), Path(scratch))))
        return
    from common import result  # not above: workers import this file, and need no torch

    methods = list(dict.fromkeys(["reference", *arguments.methods]))
    runs: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
    with tempfile.TemporaryDirectory() as directory:
        sample = make_sample(arguments.documents, arguments.mb, Path(directory))
        for _ in range(arguments.rounds):
            for method in methods:
                command = [sys.executable, __file__, "--one", method, str(sample), directory]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                runs[method].append(json.loads(done.stdout.splitlines()[-1]))
                print(runs[method][-1], file=sys.stderr)
    rows = []
    for method, measured in runs.items():
        seconds = statistics.median(run["seconds"] for run in measured)
        cpu = statistics.median(run["cpu_seconds"] for run in measured)
        rows.append({**measured[0], "seconds": seconds, "cpu_seconds": cpu, "mb_per_second": round(arguments.mb / seconds, 2)})
        memory = f"{rows[-1]['peak_mb']:6d} + {rows[-1]['peak_child_mb']} MB"
        print(f"{method:18s} {seconds:7.2f} s {arguments.mb / seconds:6.2f} MB/s {memory}")
    base = rows[0]["seconds"]
    ratios = {f"{row['method']} over reference": round(base / row["seconds"], 2) for row in rows[1:]}
    ratios |= {f"{row['method']} over reference, CPU time": round(rows[0]["cpu_seconds"] / row["cpu_seconds"], 2) for row in rows[1:]}
    print(json.dumps(result("corpus", len(os.sched_getaffinity(0)), mb=arguments.mb, rows=rows, ratios=ratios)))


if __name__ == "__main__":
    main()
