"""A large corpus under a published body, as somebody types it: how long, how much memory, and the same after documents change.

    python -m benchmarks.documents.bench_large_corpus simplewiki_2021.jsonl.xz --questions webquestions/dev.jsonl.xz --scratch DIR

realm index build SOURCE --body minilm, then a search, then new texts for --changed documents (realm corpus update, realm index build RUN)
and the search again. Each row is one command in a process of its own: wall and processor seconds of it and its children, and the peak of
memory of the largest of them. A directory that holds a run already is not built again. The last line is one JSON object.
"""

import argparse
import json
import lzma
import sys
from pathlib import Path

from benchmarks.common import REALM, result, size_mib, timed


def changed(source: Path, count: int, out: Path) -> Path:
    """Documents spread evenly over a source, each with one more sentence, as a file."""
    with lzma.open(source, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    chosen = rows[:: max(1, len(rows) // count)][:count]
    more = [row | {"text": f"{row['text']} This article was changed for a measurement."} for row in chosen]
    out.write_text("".join(json.dumps(row) + "\n" for row in more), "utf-8")
    return out


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
    search = (sys.executable, "-m", "benchmarks.reading.bench_ask", str(run), "--questions", str(arguments.questions))
    search += ("--limit", str(arguments.asked), "--threads", str(arguments.threads))
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
