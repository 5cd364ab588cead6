"""A large corpus under a published body, as somebody types it: how long, how much memory, and the same after documents change.

    python benchmarks/bench_large_corpus.py DATA/corpus/simplewiki_2021.jsonl.xz --questions DATA/webquestions/dev.jsonl.xz --scratch DIR

realm index build SOURCE --body minilm, then a search, then new texts for --changed documents (realm corpus update, realm index build RUN)
and the search again. Each row is one command in a process of its own: wall and processor seconds of it and its children, and the peak of
memory of the largest of them. A directory that holds a run already is not built again. The last line is one JSON object.
"""

import argparse
import json
import lzma
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import result

REALM = (sys.executable, "-m", "realm")
SEARCH = "benchmarks/bench_ask.py"


def timed(name: str, command: tuple[str, ...]) -> dict[str, Any]:
    """Run a command and say what it took.

    Raises:
        CalledProcessError: it failed.
    """
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


def changed(source: Path, count: int, out: Path) -> Path:
    """Documents spread evenly over a source, each with one more sentence, as a file."""
    with lzma.open(source, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    chosen = rows[:: max(1, len(rows) // count)][:count]
    more = [row | {"text": f"{row['text']} This article was changed for a measurement."} for row in chosen]
    out.write_text("".join(json.dumps(row) + "\n" for row in more), "utf-8")
    return out


def size_mib(directory: Path) -> int:
    """Bytes on disk in MiB."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) >> 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="documents as JSON lines, compressed by xz")
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--body", default="minilm")
    parser.add_argument("--changed", type=int, default=1000)
    parser.add_argument("--asked", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    run, rows = arguments.scratch / "run", []
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    search = (sys.executable, SEARCH, str(run), "--questions", str(arguments.questions), "--limit", str(arguments.asked))
    search += ("--threads", str(arguments.threads))
    if not (run / "run.json").exists():
        rows.append(
            timed("index build", (*REALM, "index", "build", str(arguments.source), "--body", arguments.body, "--out", str(run), "--json"))
        )
    rows.append({"step": "disk", "index_mib": size_mib(run / "index"), "corpus_mib": size_mib(run / "corpus")})
    rows.append(timed("ask", search))
    new = changed(arguments.source, arguments.changed, arguments.scratch / "changed.jsonl")
    rows.append(timed("corpus update", (*REALM, "corpus", "update", str(run / "corpus"), str(new), "--json")))
    rows.append(timed("index build of the changes", (*REALM, "index", "build", str(run), "--json")))
    rows.append(timed("ask after the changes", search))
    facts = {"source": arguments.source.name, "body": arguments.body, "changed": arguments.changed, "rows": rows}
    print(json.dumps(result("large corpus", arguments.threads, **facts)))


if __name__ == "__main__":
    main()
