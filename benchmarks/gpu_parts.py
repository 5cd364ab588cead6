"""What each part of ``gpu_suite.py`` measures; parity, step and search are here, what trains is in ``gpu_runs.py``."""

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from bench_step import K, gradient_gap, new_model
from gpu_runs import pretrain, refresh
from gpu_size import DEVICE, Size
from memory import Extra
from realm.data.loader import WHOLE, Share
from realm.index.choice import make_index
from realm.nn.model import RealmModel
from realm.train.loop import LoopOptions, StepResult, Task
from realm.train.optim import adamw
from realm.train.stepping import StepWindow, one_step as one_training_step
from step_batch import Workload, full_workload
from step_figures import gemm_peak, step_flops, wait
from step_ways import our_loss
from suite_rows import Row, Rows

ROUNDS = 5


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
        found = {
            kind: make_index(torch.from_numpy(vectors).to(DEVICE), ids, kind=kind).search(queries, K) for kind in ("exact", "compressed")
        }
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
    index = make_index(vectors, np.arange(len(vectors)))
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
