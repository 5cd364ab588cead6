"""The block store against a Lance dataset of the very same rows: random blocks, size on disk, opening, import.

Lance (PyPI ``pylance``) has versions, deletion files and compaction of its own, which the corpus does by itself; this says what it would
cost to read from it. Blocks are like real ones: 200 to 280 words of a Zipfian vocabulary of 30,000. Both sides are read warm, taking turns
in one process, to the same numpy arrays and strings. Without the package the script says so and ends.

    python benchmarks/bench_lance.py --n 50000
"""

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench_store import BATCH, content, lists, rate, write_corpus
from common import result
from realm.corpus.store import manifest as manifests
from realm.corpus.store.blocks import BlockStore

WORDS = 30_000
TOKENS = ("token_ids",)
INPUTS = ("title_ids", "token_ids")
"""What a candidate's model input is made of."""
LISTS = (*INPUTS, "sentence_chars", "sentence_tokens", "sentence_hashes", "span_chars", "span_tokens", "span_sentence")
SCALARS = ("block_id", "doc_id", "title", "text", "char_start", "source", "line")


def wordy_content(rng: np.random.Generator, _: int, dtype: np.dtype[Any]) -> dict[str, pa.Array]:
    """Columns of one full batch, whose text and wordpieces can be compressed about as much as those of prose."""
    columns = content(rng, WORDS, dtype)
    letters = rng.integers(ord("a"), ord("z") + 1, (WORDS, 12), dtype=np.uint8)
    words = [bytes(row[:length]).decode() for row, length in zip(letters, rng.integers(2, 12, WORDS), strict=True)]
    counts = rng.integers(200, 281, len(columns["text"]))
    ids = np.minimum(rng.zipf(1.2, int(counts.sum())) - 1, WORDS - 1)
    ends = np.cumsum(counts)
    texts = [" ".join(words[token] for token in ids[end - count : end].tolist()) for end, count in zip(ends, counts, strict=True)]
    return columns | {"text": pa.array(texts), "token_ids": lists(counts, pa.array(ids.astype(dtype)))}


def write_lance(store: BlockStore, path: Path) -> float:
    """The rows of a corpus as a dataset. Returns the seconds."""
    import lance

    files = [store.path / manifests.SEGMENTS_DIRECTORY / info.name for info in store.manifest.segments]
    tables = [pa.ipc.open_file(pa.memory_map(str(file), "r")).read_all() for file in files]
    started = time.perf_counter()
    lance.write_dataset(pa.concat_tables(tables), str(path))
    return time.perf_counter() - started


def readers(store: BlockStore, dataset: Any) -> dict[str, tuple[Callable[[np.ndarray], Any], Callable[[np.ndarray], Any]]]:
    """What is read -> (from the store, from Lance): rows int64 [512] to a list for each, of numpy arrays and plain values."""

    def whole(row: int) -> list[Any]:
        block, sentences, spans = store.block(row), store.sentences(row), store.spans(row)
        arrays = [store.title_ids(row), store.token_ids(row), sentences.chars, sentences.tokens, sentences.hashes]
        return [*arrays, spans.chars, spans.tokens, spans.sentence, *(getattr(block, name) for name in SCALARS)]

    def theirs(names: tuple[str, ...]) -> Callable[[np.ndarray], list[list[Any]]]:
        return lambda rows: by_row(dataset.take(rows, columns=list(names)))

    return {
        "token ids": (lambda rows: [[store.token_ids(row)] for row in rows.tolist()], theirs(TOKENS)),
        "inputs": (lambda rows: [[store.title_ids(row), store.token_ids(row)] for row in rows.tolist()], theirs(INPUTS)),
        "all columns": (lambda rows: [whole(row) for row in rows.tolist()], theirs((*LISTS, *SCALARS))),
    }


def by_row(table: pa.Table) -> list[list[Any]]:
    """The rows of a table: lists as views, of which the offsets are read once."""
    columns = []
    for column in (column.combine_chunks() for column in table.columns):
        if not pa.types.is_list(column.type):
            columns.append(column.to_pylist())
            continue
        values, offsets = column.values, column.offsets.to_numpy().tolist()
        flat = values.flatten().to_numpy().reshape(-1, 2) if pa.types.is_fixed_size_list(values.type) else values.to_numpy()
        columns.append([flat[start:end] for start, end in pairwise(offsets)])
    return [list(row) for row in zip(*columns, strict=True)]


def same(one: list[Any], other: list[Any]) -> bool:
    return all(bool(np.all(a == b)) for a, b in zip(one, other, strict=True))


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def import_seconds(statement: str) -> float:
    """Seconds that an import takes in a fresh process, the median of five."""
    code = f"import time; started = time.perf_counter(); {statement}; print(time.perf_counter() - started)"
    command = [sys.executable, "-c", code]
    return float(np.median([float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(5)]))


def median_seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(9):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def processor() -> str:
    """The processor's name, as Linux has it."""
    names = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=50_000, help="blocks")
    parser.add_argument("--dir", type=Path, default=None, help="where both are written for a while; default: the temporary directory")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measured rate")
    parser.add_argument("--turns", type=int, default=5, help="times that store and Lance take turns")
    arguments = parser.parse_args()
    if importlib.util.find_spec("lance") is None:
        print("lance is not installed: pip install pylance")
        return
    import lance

    with tempfile.TemporaryDirectory(dir=arguments.dir) as scratch:
        corpus, other = Path(scratch) / "corpus", Path(scratch) / "blocks.lance"
        write_corpus(corpus, arguments.n, wordy_content)
        store = BlockStore.open(corpus)
        figures = {"write Lance, s": write_lance(store, other)}
        dataset = lance.dataset(str(other))
        figures |= {"size, MB: store": size_of(corpus) / 1e6, "size, MB: Lance": size_of(other) / 1e6}
        figures |= {"open, ms: store": 1e3 * median_seconds(lambda: BlockStore.open(corpus))}
        figures |= {"open, ms: Lance": 1e3 * median_seconds(lambda: lance.dataset(str(other)))}
        ratios = {}
        for what, pair in readers(store, dataset).items():
            rows = np.random.default_rng(1).integers(0, len(store), BATCH)
            assert all(same(a, b) for a, b in zip(pair[0](rows), pair[1](rows), strict=True))
            rates: tuple[list[float], list[float]] = ([], [])
            for turn in range(arguments.turns):
                for fetch, found in zip(pair, rates, strict=True):
                    found.append(rate(fetch, len(store), arguments.seconds, turn))
            both = [float(np.median(found)) for found in rates]
            for name, found in zip(("store", "Lance"), both, strict=True):
                figures[f"{BATCH} random blocks, {what}, ms: {name}"] = 1e3 / found
            ratios[f"{what}: time of Lance / time of the store"] = both[0] / both[1]
    figures |= {"import, s: store": import_seconds("import realm.corpus.store.blocks"), "import, s: Lance": import_seconds("import lance")}
    figures |= {"import, s: pyarrow": import_seconds("import pyarrow"), "package, MB": size_of(Path(lance.__file__).parent) / 1e6}
    for name, figure in figures.items():
        print(f"{name}  {figure:.4g}")
    facts = {"blocks": arguments.n, "processor": processor(), "lance": lance.__version__, "pyarrow": pa.__version__}
    print(json.dumps(result("lance", os.cpu_count() or 1, figures=figures, ratios=ratios, **facts)))


if __name__ == "__main__":
    main()
