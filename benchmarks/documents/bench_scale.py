"""How do costs grow with the corpus? Exponents of processor time, memory and disk, and how well they forecast one point outside the fit.

    python -m benchmarks.documents.bench_scale DATA/corpus/simplewiki_2021.jsonl.xz --scratch DIR
    python -m benchmarks.documents.bench_scale DATA/corpus/simplewiki_2021.jsonl.xz --scratch DIR --vectors 10000 100000 1000000 10000000

Documents: the first of a source, built, embedded under --body (in bfloat16 where the processor multiplies it), then a fixed number of
them changed and embedded again (a refresh). Vectors: random of length one, searched exactly. Each point is a process of its own; the
least of its sizes only says what starting costs, which is taken off the others. An exponent is fitted to all sizes but the largest, the
"outside" one, which is compared with what the fit says. Points are kept in DIR/points.jsonl: the same command goes on where it was
stopped, and takes --documents and --vectors that were measured before from there. The last line is one JSON object.
"""

import argparse
import itertools
import json
import lzma
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import REALM, Extra, result, size_mib, timed
from realm.search.index.exact import CompressedIndex

RECIPE = """
run = {{ bf16 = true, threads = {threads} }}
corpus = {{ sources = {sources} }}
model = {{ body = "{body}" }}
"""
CHANGED = 100  # documents of a refresh
CHUNK = 1 << 18
SEARCHES = 7


def first_documents(source: Path, count: int, out: Path) -> Path:
    """The first documents of a source as a file."""
    with lzma.open(source, "rt", encoding="utf-8") as lines:
        out.write_text("".join(itertools.islice(lines, count)), "utf-8")
    return out


def document_point(source: Path, count: int, scratch: Path, body: str, threads: int) -> dict[str, float]:
    """What a corpus of so many documents costs: processor seconds, MiB."""
    shutil.rmtree(scratch, ignore_errors=True)  # of a point that was stopped
    scratch.mkdir(parents=True)
    documents, run, recipe = first_documents(source, count, scratch / "documents.jsonl"), scratch / "run", scratch / "recipe.toml"
    sources = json.dumps([str(documents.resolve())])
    recipe.write_text(RECIPE.format(threads=threads, sources=sources, body=body), "utf-8")
    corpus = timed("corpus", (*REALM, "corpus", "build", str(documents), "--out", str(scratch / "corpus"), "--workers", "1", "--json"))
    index = timed("index", (*REALM, "run", str(recipe), "--out", str(run), "--stages", "corpus,pretrain", "--json"))
    sizes = {"corpus, MiB on disk": size_mib(run / "corpus"), "index, MiB on disk": size_mib(run / "index")}
    new = scratch / "changed.jsonl"
    with documents.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in itertools.islice(lines, CHANGED)]
    new.write_text("".join(json.dumps(row | {"text": f"{row['text']} Changed for a measurement."}) + "\n" for row in rows), "utf-8")
    refresh = [timed("update", (*REALM, "corpus", "update", str(run / "corpus"), str(new), "--json"))]
    refresh.append(timed("refresh", (*REALM, "index", "build", str(run), "--json")))
    shutil.rmtree(scratch)
    return {
        "size": index["said"]["corpus"]["blocks"],
        "corpus build, s": corpus["processor_seconds"],
        "corpus build, peak MiB": corpus["peak_mib"],
        "corpus and embedding, s": index["processor_seconds"],
        "corpus and embedding, peak MiB": index["peak_mib"],
        f"{CHANGED} documents changed, s": sum(row["processor_seconds"] for row in refresh),
        **sizes,
    }


def vector_point(n: int, dim: int) -> dict[str, float]:
    """What searching so many vectors costs: processor time, own memory."""
    rng, vectors = np.random.default_rng(0), np.empty((n, dim), np.float32)
    for start in range(0, n, CHUNK):
        part = rng.standard_normal((min(CHUNK, n - start), dim), np.float32)
        vectors[start : start + len(part)] = part / np.linalg.norm(part, axis=1, keepdims=True)
    queries = torch.from_numpy(rng.standard_normal((64, dim), np.float32))
    extra, started = Extra(), time.process_time()
    index = CompressedIndex(vectors, np.arange(n))
    figures = {"size": n, "index made, s": time.process_time() - started, "index, MiB": index.info()["bytes"] / 2**20}
    for count in (1, len(queries)):
        taken = []
        for _ in range(SEARCHES):
            started = time.process_time()
            index.search(queries[:count], 8)
            taken.append(time.process_time() - started)
        figures[f"{count} queries, ms"] = 1000 * float(np.median(taken))
    return figures | {"index and searches, peak MiB": float(extra.mib() or 0)}


def in_own_process(n: int, dim: int) -> dict[str, float]:
    command = (sys.executable, "-m", "benchmarks.documents.bench_scale", "-", "--scratch", "-", "--point", str(n), "--dim", str(dim))
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(said.strip(), flush=True)
    figures: dict[str, float] = json.loads(said)
    return figures


def kept(points: Path, what: str, size: int, measure: Callable[[int], dict[str, float]]) -> dict[str, float]:
    """The point of this size from the file ``points``, measured and put there unless it is there."""
    known = [json.loads(line) for line in points.read_text("utf-8").splitlines()] if points.is_file() else []
    for point in known:
        if (point["what"], point["asked"]) == (what, size):
            return dict(point["figures"])
    figures = measure(size)
    with points.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"what": what, "asked": size, "figures": figures}) + "\n")
    return figures


def fits(points: list[dict[str, float]]) -> list[dict[str, Any]]:
    """For each figure the exponent over all points but the first, which is taken off, and the last, which is forecast."""
    least, *fitted, outside = points
    rows = []
    for name in least:
        values = [point[name] - least[name] for point in (*fitted, outside)]
        if name == "size" or min(values) <= 0:  # what does not grow has no exponent
            continue
        sizes = np.log([point["size"] for point in fitted])
        exponent, constant = np.polyfit(sizes, np.log(values[:-1]), 1)
        forecast = float(np.exp(constant + exponent * np.log(outside["size"])) + least[name])
        row = {"figure": name, "exponent": round(float(exponent), 3), "outside": outside["size"], "measured": round(outside[name], 3)}
        rows.append(row | {"forecast": round(forecast, 3), "off": round(forecast / outside[name] - 1, 3)})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="documents as JSON lines, compressed by xz")
    parser.add_argument("--scratch", type=Path, required=True, help="a directory of its own; points are kept there")
    parser.add_argument("--documents", type=int, nargs="*", default=[100, 500, 1000, 2000, 4000], help="at least four, ascending")
    parser.add_argument(
        "--vectors", type=int, nargs="*", default=[1000, 30_000, 100_000, 300_000, 1_000_000], help="at least four, ascending"
    )
    parser.add_argument("--body", default="minilm")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--point", type=int, help=argparse.SUPPRESS)  # one number of vectors, in this process
    arguments = parser.parse_args()
    if arguments.point is not None:
        print(json.dumps(vector_point(arguments.point, arguments.dim)))
        return
    arguments.scratch.mkdir(parents=True, exist_ok=True)

    def of_vectors(n: int) -> dict[str, float]:
        return in_own_process(n, arguments.dim)

    def of_documents(count: int) -> dict[str, float]:
        return document_point(arguments.source, count, arguments.scratch / str(count), arguments.body, arguments.threads)

    points = arguments.scratch / "points.jsonl"
    vectors = [kept(points, f"vectors of {arguments.dim}", n, of_vectors) for n in arguments.vectors]
    documents = [kept(points, f"documents, {arguments.body}", count, of_documents) for count in arguments.documents]
    rows = [row for points in (vectors, documents) if len(points) > 3 for row in fits(points)]
    facts = {"source": arguments.source.name, "body": arguments.body, "dim": arguments.dim}
    print(json.dumps(result("scale", arguments.threads, **facts, vectors=vectors, documents=documents, fits=rows)))


if __name__ == "__main__":
    main()
