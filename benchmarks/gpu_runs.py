"""The parts of ``gpu_suite.py`` that train: a refresher beside a trainer, and a long pre-training. Both run ``realm run``."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_step import QUERY
from gpu_size import DEVICE, Size
from realm.demo.atlas import write_atlas
from realm.pipeline.demo_from_nothing import DEMO_DOMAINS
from realm.train.metrics import MetricsLog
from refresh_corpus import take_documents
from suite_rows import OutOfTime, Row, Rows

BLOCKS_PER_DOCUMENT_FILE = 60_000
EARLY = "corpus,warm,ict"


def documents_of(size: Size, out: Path) -> Path:
    """A file of documents: those of the caller, cut, or the atlas."""
    if size.documents is None:
        if not (out / "atlas").exists():
            write_atlas(out / "atlas", domains=DEMO_DOMAINS)
        return out / "atlas" / "documents.jsonl"
    target = out / "documents.jsonl"
    if not target.exists():
        take_documents(size.documents, target.with_suffix(".part"), BLOCKS_PER_DOCUMENT_FILE, size.block)
        target.with_suffix(".part").rename(target)
    return target


def write_recipe(path: Path, size: Size, documents: Path, steps: int, **pretrain: Any) -> None:
    """A recipe of preset ``small`` (tiny as a toy) on the documents."""
    toy = size.trained == "tiny"
    early = {"steps": 4, "batch": 4} if toy else {}
    sections: dict[str, dict[str, Any]] = {
        "run": {"threads": size.threads, "device": DEVICE, "bf16": DEVICE == "cuda", "checkpoint_every": 2 if toy else 100},
        "corpus": {"sources": [str(documents.resolve())], "vocab_size": 1000 if toy else 30522, "block_length": size.block * (1 + toy)},
        "model": {"preset": size.trained, "query_length": QUERY},
        "warm": early,
        "ict": early,
        "pretrain": {"steps": steps, "batch": 2 if toy else 64, "probe_queries": 8 if toy else 500, "force": True, **pretrain},
        "refresher": {"staleness_limit": 10 * steps},
    }
    lines = [f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in body.items()) for name, body in sections.items()]
    path.write_text("\n".join(lines), "utf-8")


def realm_run(recipe: Path, run: Path, stages: str, seconds: float) -> bool:
    """`realm run` until it is done or the time is over; whether it is done. It goes on where it was interrupted before."""
    command = [sys.executable, "-m", "realm", "run", str(recipe), "--out", str(run), "--stages", stages]
    process = subprocess.Popen(command, stdout=sys.stderr)
    try:
        code = process.wait(max(1.0, seconds))
    except subprocess.TimeoutExpired:
        return False
    finally:
        interrupt(process)
    if code:
        raise RuntimeError(f"realm run ended with exit code {code}")
    return True


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C for a process that still runs, then time to put its things down."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()


def pretrained(size: Size, out: Path, name: str, steps: int, seconds: Callable[[], float], **settings: Any) -> bool:
    """Pre-train in ``out/name`` from a start that all runs share; whether it is done."""
    base, run, recipe = out / "base", out / name, out / f"{name}.toml"
    if not run.exists():
        write_recipe(out / "base.toml", size, documents_of(size, out), steps)
        if not realm_run(out / "base.toml", base, EARLY, seconds()):
            return False
        shutil.copytree(base, run.with_suffix(".part"), dirs_exist_ok=True)
        run.with_suffix(".part").rename(run)
    write_recipe(recipe, size, documents_of(size, out), steps, **settings)
    return realm_run(recipe, run, f"{EARLY},pretrain", seconds())


def refresh(rows: Rows, size: Size, out: Path) -> None:
    """Seconds a step with a frozen index and beside a refresher."""
    steps = size.steps[0]

    def measure(mode: str) -> Row:
        name = f"refresh-{mode}"
        if not pretrained(size, out, name, steps, lambda: rows.left, refresh=mode, refresh_every=max(1, steps // 12)):
            raise OutOfTime
        logged = [row for row in MetricsLog(out / name / "metrics.jsonl").rows() if row["stage"] == "pretrain"]
        times = [(row["step"], row["time"]) for row in logged if "loss" in row]
        (first, began), (last, ended) = times[0], times[-1]
        # The first index is waited for before the first row, the last one after the last.
        waits = sum(row.get("wait_seconds", 0.0) for row in logged if first < row["step"] < last)
        swaps = sum("probe_recall" in row for row in logged)
        return {"seconds_per_step": (ended - began - waits) / (last - first), "refreshes": swaps}

    for mode in ("frozen", "process"):
        rows.measure(mode, lambda mode=mode: measure(mode))


def pretrain(rows: Rows, size: Size, out: Path) -> None:
    """Pre-training as long as the part may take, from where it stopped; the row is what the run shows so far."""
    steps, metrics = size.steps[1], out / "pretrain" / "metrics.jsonl"
    done = pretrained(size, out, "pretrain", steps, lambda: rows.left, refresh_every=max(1, steps // 60))
    logged = list(MetricsLog(metrics).rows()) if metrics.exists() else []
    probes = [[row["step"], row["probe_recall"]] for row in logged if "probe_recall" in row]
    last = {stage: row for row in logged if "loss" in row and (stage := row["stage"])}
    rows.put("run", {"finished": done, "last": last, "probe_recall": probes})
    if not done:
        raise OutOfTime
