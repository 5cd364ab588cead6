"""What each part of ``gpu_suite.py`` measures, and how large everything in it is: full size on a GPU, toy size on a CPU."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import Extra, take_documents
from benchmarks.training.bench_step import BLOCK, QUERY, K, gradient_gap, new_model
from benchmarks.training.step_work import Workload, full_workload, gemm_peak, our_loss, step_flops, wait
from realm.experiments.atlas import write_atlas
from realm.models.model import RealmModel
from realm.search.index.choice import make_index
from realm.storage.metrics import MetricsLog
from realm.training.loop.optim import adamw
from realm.training.loop.stepping import StepWindow, one_step as one_training_step
from realm.training.loop.task import LoopOptions, StepResult, Task
from realm.training.order import WHOLE, Share

Row = dict[str, Any]


class OutOfTime(Exception):
    """The part's time is over; what is left is for the next start."""


class Rows:
    """The rows of one part, on disk after each: in ``path``, whose rows are not measured again; ``device`` in words; ``seconds`` it may
    take."""

    def __init__(self, path: Path, part: str, device: str, seconds: float):
        self.path = path
        self.end = time.monotonic() + seconds
        self.state: dict[str, Any] = {"part": part, "device": device, "done": False, "rows": {}}
        if path.exists() and (found := json.loads(path.read_text("utf-8")))["device"] == device:
            self.state = found

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def measure(self, name: str, run: Callable[[], Row]) -> None:
        """Ask for a row unless it is there; what goes wrong in it is noted and the next is asked for. Raises OutOfTime: none is begun."""
        if name in self.state["rows"] and "error" not in self.state["rows"][name]:
            return
        if self.left <= 0:
            raise OutOfTime
        try:
            self.put(name, run())
        except OutOfTime:
            raise
        except Exception as error:  # an accelerator without memory, an index kind without a kernel: the other rows still count
            self.put(name, {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"})
            traceback.print_exc()

    def put(self, name: str, row: Row) -> None:
        """Set a row and write the file whole: a reader never sees half of it."""
        self.state["rows"][name] = row
        print(f"{self.state['part']}: {name}: {row}", file=sys.stderr, flush=True)
        self.write()

    def finish(self) -> None:
        self.state["done"] = not any("error" in row for row in self.state["rows"].values())
        self.write()

    def write(self) -> None:
        staged = self.path.with_suffix(".part")
        with open(staged, "w", encoding="utf-8") as file:
            json.dump(self.state, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, self.path)


MINILM = {"hidden": 384, "layers": 6, "heads": 12, "intermediate": 1536, "projection": 384}
"""all-MiniLM-L6-v2's sizes."""
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BLOCKS_PER_DOCUMENT_FILE = 60_000
EARLY = "corpus,warm,ict"
ROUNDS = 5


@dataclass(frozen=True)
class Size:
    """How large everything is.

    Args:
        parity, trained: presets of those parts.
        steps_of: networks whose steps are measured, by name: a preset, or [model]'s sizes in its place.
        batches: queries of a step, each a row.
        blocks: embeddings searched.
        steps: of pre-training, for the slow-down and for the long run.
        documents: JSONL.xz, or None for the atlas.
        threads: of the CPU.
    """

    parity: str
    steps_of: dict[str, dict[str, int]]
    trained: str
    batches: tuple[int, ...]
    query: int
    block: int
    blocks: int
    steps: tuple[int, int]
    documents: Path | None
    threads: int


def size_of(toy: bool, documents: Path | None, threads: int) -> Size:
    torch.set_num_threads(threads)
    if toy:
        return Size("tiny", {"tiny": {}}, "tiny", (1, 2), 16, 32, 20_000, (40, 4), documents, threads)
    return Size(
        "mini", {"base": {}, "minilm": MINILM}, "small", (4, 8, 16, 32, 64), QUERY, BLOCK, 13_350_000, (120, 20_000), documents, threads
    )


def device_in_words() -> str:
    return torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"


def documents_of(size: Size, out: Path) -> Path:
    """A file of documents: those of the caller, cut, or the atlas."""
    if size.documents is None:
        if not (out / "atlas").exists():
            write_atlas(out / "atlas")
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
        "pretrain": {"steps": steps, "batch": 2 if toy else 64, "force": True, **pretrain},
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
        swaps = sum("wait_seconds" in row for row in logged)
        return {"seconds_per_step": (ended - began - waits) / (last - first), "refreshes": swaps}

    for mode in ("frozen", "process"):
        rows.measure(mode, lambda mode=mode: measure(mode))


def pretrain(rows: Rows, size: Size, out: Path) -> None:
    """Pre-training as long as the part may take, from where it stopped; the row is what the run shows so far."""
    steps, metrics = size.steps[1], out / "pretrain" / "metrics.jsonl"
    done = pretrained(size, out, "pretrain", steps, lambda: rows.left, refresh_every=max(1, steps // 60))
    logged = list(MetricsLog(metrics).rows()) if metrics.exists() else []
    recall = [[row["step"], row["held_out_recall"]] for row in logged if "held_out_recall" in row]
    last = {stage: row for row in logged if "loss" in row and (stage := row["stage"])}
    rows.put("run", {"finished": done, "last": last, "held_out_recall": recall})
    if not done:
        raise OutOfTime


def precise() -> None:
    """Products of float32 in float32: TF32 keeps three digits."""
    torch.set_float32_matmul_precision("highest")


def one_step(model: RealmModel, work: Workload, *, bf16: bool) -> float:
    """Loss of one forward and backward pass; the gradients are left in the model."""
    model.zero_grad(set_to_none=True)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=bf16):
        loss = our_loss(model, work)
    loss.backward()
    return loss.item()


def parity(rows: Rows, size: Size, out: Path) -> None:
    """CPU beside the accelerator: the same weights, the same batch."""
    precise()
    work = full_workload(2, K, query_length=size.query, block_length=size.block)
    there, here = new_model(size.parity).train(), new_model(size.parity).train().to(DEVICE)

    def compare(bf16: bool) -> Row:
        there.zero_grad(set_to_none=True)
        expected = our_loss(there, work)
        expected.backward()
        found = one_step(here, work, bf16=bf16)
        back = new_model(size.parity).to("cpu")
        for parameter, other in zip(back.parameters(), here.parameters(), strict=True):
            parameter.grad = None if other.grad is None else other.grad.detach().float().cpu()
        bound = 1e-2 if bf16 else 1e-4
        gaps = {"loss": abs(found / expected.item() - 1), "gradients": gradient_gap(back, there)}
        return gaps | {"bound": bound, "passed": gaps["loss"] <= bound and (bf16 or gaps["gradients"] <= bound)}

    def searches() -> Row:
        vectors = np.random.default_rng(0).standard_normal((min(size.blocks, 200_000), 128), np.float32)
        queries, ids = torch.from_numpy(vectors[:16] + 0.1), np.arange(len(vectors))
        expected = make_index(vectors, ids, kind="exact").search(queries, K)
        found = {kind: make_index(vectors, ids, kind=kind, device=str(DEVICE)).search(queries, K) for kind in ("exact", "compressed")}
        same = {kind: bool((hits.ids == expected.ids).all() and (hits.scores == expected.scores).all()) for kind, hits in found.items()}
        return same | {"passed": all(same.values())}

    rows.measure("float32", lambda: compare(False))
    rows.measure("bf16", lambda: compare(True))
    rows.measure("search", searches)
    rows.measure("deferred", lambda: deferred(size, work))


class Learning(Task):
    """A task of one batch, the same in every step; the loss of step 1 is not finite."""

    name = "learning"

    def __init__(self, model: RealmModel, work: Workload):
        self.model, self.work = model, work

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        loss = our_loss(self.model, self.work) * (float("nan") if step == 1 else 1.0)
        return StepResult(loss, 1, {"loss_of_step": loss.detach()})


def _tell_of_waits(wanted: bool) -> None:
    if DEVICE == "cuda":
        torch.cuda.set_sync_debug_mode("warn" if wanted else "default")


def deferred(size: Size, work: Workload) -> Row:
    """A few steps whose numbers are read at each, and at the end alone: the same weights, one step left out, and how often the second waits
    for the accelerator in its step, as torch tells (0 on a CPU, where nothing is waited for)."""
    weights, skipped, waits = [], [], 0
    for later in (False, True):
        task = Learning(new_model(size.parity).train().to(DEVICE), work)
        options = LoopOptions(steps=4, lr=1e-4, warmup=0, device=DEVICE, deferred=later)
        optimizer, window = adamw([task.model], lr=1e-4), StepWindow(task, options, Path("not_finite"))
        for number in range(4):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                _tell_of_waits(later)
                window.add(number, one_training_step(task, number, optimizer, options))
                _tell_of_waits(False)
            waits += sum("synchroniz" in str(warning.message) for warning in said)
        skipped.append(window.close(1e-4)["skipped"])
        weights.append([weight.detach() for weight in task.model.parameters()])
    gap = max(float((a - b).abs().max() / a.abs().max().clamp(min=1e-12)) for a, b in zip(*weights, strict=True))
    return {"gap": gap, "skipped": skipped, "waits": waits, "passed": gap <= 1e-4 and skipped == [0.25, 0.25]}


@contextmanager
def peak_memory() -> Iterator[dict[str, float]]:
    """MiB beyond what was there before, of the accelerator or of this process."""
    found: dict[str, float] = {}
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
        yield found
        found["peak_mib"] = torch.cuda.max_memory_allocated() >> 20
    else:
        memory = Extra()
        yield found
        found["peak_mib"] = memory.mib() or 0


def step(rows: Rows, size: Size, out: Path) -> None:
    """Seconds, memory and share of the peak by network and batch."""
    torch.set_float32_matmul_precision("high")
    for name, sizes in size.steps_of.items():
        _step_of(name, new_model("base" if sizes else name, **sizes).train().to(DEVICE), rows, size)


def _step_of(name: str, model: RealmModel, rows: Rows, size: Size) -> None:
    optimizer = adamw([model], lr=1e-5)
    spec, bf16 = model.embedder.spec.body, DEVICE == "cuda"
    dtype = torch.bfloat16 if bf16 else torch.float32

    def measure(b: int) -> Row:
        work = full_workload(b, K, query_length=size.query, block_length=size.block)
        taken: list[float] = []
        with peak_memory() as memory:
            for _ in range(ROUNDS + 2):
                wait(DEVICE)
                started = time.perf_counter()
                one_step(model, work, bf16=bf16)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                wait(DEVICE)
                taken.append(time.perf_counter() - started)
        seconds = statistics.median(taken[2:])
        flops = step_flops(spec, model.embedder.spec.projection, work)
        peak = gemm_peak(spec.hidden, int(spec.config["intermediate_size"]), dtype, device=DEVICE, rows=16384 if bf16 else 4096)
        utilisation = {"model_flops_utilisation": flops / seconds / peak, "tflops": flops / seconds / 1e12, "gemm_peak_tflops": peak / 1e12}
        return {"seconds": seconds, "queries_per_second": b / seconds, **memory, **utilisation}

    for b in size.batches:
        rows.measure(f"{name}, {b} x {K}", lambda b=b: measure(b))


def search(rows: Rows, size: Size, out: Path) -> None:
    """Exact search of as many embeddings as the paper had, made where they are searched."""
    vectors = torch.empty(size.blocks, 128, device=DEVICE)
    generator = torch.Generator(DEVICE).manual_seed(0)
    for part in vectors.split(1 << 20):
        part.normal_(generator=generator)
    index = make_index(vectors.cpu().numpy(), np.arange(len(vectors)), device=str(DEVICE))
    queries = torch.randn(64, 128, generator=torch.Generator().manual_seed(1))

    def measure(b: int) -> Row:
        taken = []
        for _ in range(ROUNDS + 1):
            wait(DEVICE)
            started = time.perf_counter()
            hits = index.search(queries[:b], K)
            wait(DEVICE)
            taken.append(time.perf_counter() - started)
        found = torch.from_numpy(hits.ids[0]).to(DEVICE)
        threshold = (vectors[found].double() @ queries[0].to(DEVICE).double()).min()
        better = sum(int((part.double() @ queries[0].to(DEVICE).double() > threshold).sum()) for part in vectors.split(1 << 20))
        return {"seconds": statistics.median(taken[1:]), "kind": index.info()["kind"], "rows": len(vectors), "exact": better <= K - 1}

    for b in (1, 16, 64):
        rows.measure(f"{b} queries", lambda b=b: measure(b))


MEASURES: dict[str, Callable[[Rows, Size, Path], None]] = {
    "parity": parity,
    "step": step,
    "search": search,
    "refresh": refresh,
    "pretrain": pretrain,
}
