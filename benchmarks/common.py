"""What the benchmarks share: the frame of the closing JSON object, commands with what they took, memory, a cut of a file of documents.

Nothing of ``realm`` is imported: the peer of ``training/bench_step.py`` runs where it is not installed.
"""

import contextlib
import ctypes
import json
import lzma
import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers

REALM = (sys.executable, "-m", "realm")
CHARACTERS = 4.0
"""Of a wordpiece in English text, cautiously."""


def result(benchmark: str, threads: int, **fields: Any) -> dict[str, Any]:
    """The closing object: what ran on what, and its fields."""
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "python": platform.python_version()}
    return {"benchmark": benchmark, "hardware": f"{platform.machine()}, {threads} threads", "versions": versions, **fields}


def _status(name: str) -> int | None:
    """One line of /proc/self/status in MiB."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith(f"{name}:")), None)


class Extra:
    """``Extra()`` at the start of the work, ``mib()`` at its end."""

    def __init__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # what earlier work freed and glibc kept would be used again unseen
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the kernel forgets the peak so far
        self.before = _status("VmRSS")

    def mib(self) -> int | None:
        peak = _status("VmHWM")
        return None if peak is None or self.before is None else peak - self.before


def timed(name: str, command: tuple[str, ...]) -> dict[str, Any]:
    """Run a command and say what it took. Raises CalledProcessError: it failed."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), command, out)
    seconds = time.perf_counter() - started
    row = {"step": name, "seconds": round(seconds, 1), "processor_seconds": round(used.ru_utime + used.ru_stime, 1)}
    row |= {"peak_mib": used.ru_maxrss >> 10, "said": json.loads(out.splitlines()[-1]) if out.strip().endswith("}") else {}}
    print(json.dumps(row), flush=True)
    return row


def size_mib(directory: Path) -> int:
    """Bytes on disk in MiB."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) >> 20


def take_documents(source: Path, target: Path, blocks: int, block_length: int) -> None:
    """So many documents that they make at least about ``blocks`` blocks, or all there are."""
    left = float(blocks)
    with lzma.open(source, "rt", encoding="utf-8") as lines, open(target, "w", encoding="utf-8") as out:
        for line in lines:
            out.write(line)
            left -= max(1.0, len(line) / (CHARACTERS * block_length))
            if left < 0:
                return


WORST_CODE = 4
"""Cranfield's codes of relevance count from 1, the best, to this one, and become grades 4 to 1; -1 is undocumented and left out."""
BATCH = 64


def load_cranfield(folder: Path) -> dict[str, tuple[str, dict[str, int]]]:
    """Text and graded documents of every query that has a relevant one, from DATA/ir."""

    def rows(name: str) -> list[dict[str, Any]]:
        with lzma.open(folder / f"cranfield_{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    grades: dict[str, dict[str, int]] = {}
    for row in rows("qrels"):
        if row["code"] > 0:
            grades.setdefault(str(row["qid"]), {})[str(row["did"])] = max(0, WORST_CODE + 1 - row["code"])
    texts = {str(row.get("_id", row.get("id"))): row.get("text", row.get("query")).strip() for row in rows("queries")}
    return {name: (text, grades[name]) for name, text in texts.items() if any(grades.get(name, {}).values())}


def judged_values(source: Any, store: Any, queries: dict[str, tuple[str, dict[str, int]]], depth: int = 20) -> dict[str, list[float]]:
    """nDCG at 10 and recall of relevant documents at ``depth`` of each query, a document at its best block; ``source`` finds blocks."""
    values: dict[str, list[float]] = {"ndcg_10": [], f"recall_{depth}": []}
    asked = list(queries.values())
    for at in range(0, len(asked), BATCH):
        texts = [text for text, _ in asked[at : at + BATCH]]
        found = source.find(texts, store.tokenizer.encode(texts), 8 * depth)
        for rows, (_, grades) in zip(found.rows.tolist(), asked[at : at + BATCH], strict=True):
            ranked = list(dict.fromkeys(store.doc_id(row) for row in rows if row >= 0))
            best = sorted(grades.values(), reverse=True)
            gains = [
                sum(grade / math.log2(rank + 2) for rank, grade in enumerate(order[:10]))
                for order in ([grades.get(d, 0) for d in ranked], best)
            ]
            values["ndcg_10"].append(gains[0] / gains[1])
            relevant = {document for document, grade in grades.items() if grade > 0}
            values[f"recall_{depth}"].append(len(relevant & set(ranked[:depth])) / len(relevant))
    return values
