"""Ranks of one training job: what they exchange, and how the job ends if one does not answer.

Without ``torchrun`` there is one rank, which does the work itself. Else all ranks call the same functions in the same order and exchange
numbers and JSON; gradients are summed over ranks and divided once by the number of targets of the whole batch.

What every rank does at every step must be answered within the time limit. What the first rank does alone may take days; torch sees a rank
that has died at once, and one that hangs at the next step."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from realm.errors import RealmError, TrainingError
from realm.storage.processes import place

BUCKET_NUMBERS = 2**24
"""Gradients summed in one message, in numbers: what a message takes in memory besides the gradients themselves."""
SILENT_SECONDS = 600.0
"""A rank that gives no answer within a step for so long ends the job."""
LONGEST_ALONE = timedelta(days=7)
"""For so long the others wait for what the first rank does alone."""
_CURE = "Start the same command again: the stage continues from its newest checkpoint."


@dataclass
class _Job:
    """The job that this process is a rank of."""

    rank: int
    world: int
    patient: Any
    alone: bool = False


_job: _Job | None = None


class EndedElsewhere(SystemExit):
    """The first rank has failed and says why; this one has nothing to add."""


@contextlib.contextmanager
def joined(*, cuda: bool) -> Iterator[None]:
    """Be a rank of ``torchrun``'s job until the block ends; ``cuda``: one GPU a rank. Raises TrainingError: a rank was not reached."""
    global _job
    here = place()
    if here.world == 1 or _job is not None:
        yield
        return
    if cuda:
        torch.cuda.set_device(here.local)
    with _speaking():
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timedelta(seconds=SILENT_SECONDS))
        _job = _Job(here.rank, here.world, dist.new_group(backend="gloo", timeout=LONGEST_ALONE))
    try:
        yield
        with _speaking():
            dist.barrier(_job.patient)
    finally:
        _job = None
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def rank() -> int:
    """This process's number among the ranks of the job, from 0."""
    return 0 if _job is None else _job.rank


def world() -> int:
    """Number of ranks in the job."""
    return 1 if _job is None else _job.world


def is_first() -> bool:
    """Tell whether this is the rank that writes."""
    return rank() == 0


def on_first(work: Callable[[], Any]) -> Any:
    """Result of the first rank's ``work`` on every rank; the others wait.

    ``work`` returns JSON and speaks to no other rank. If it fails, the first rank raises and the others end."""
    if _job is None or _job.alone:
        return work()
    if _job.rank:
        said = _broadcast(None)
        if "failed" in said:
            raise EndedElsewhere(said["failed"])
        return said["value"]
    _job.alone = True
    try:
        value = work()
    except BaseException as error:
        _job.alone = False
        with contextlib.suppress(TrainingError):
            _broadcast({"failed": 2 if isinstance(error, RealmError) else 1})
        raise
    _job.alone = False
    _broadcast({"value": value})
    return value


def exchange(value: Any) -> list[Any]:
    """Every rank's JSON value, in the order of ranks."""
    if _job is None:
        return [value]
    data = _numbers(value)
    with _speaking():
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(_job.world)]
        dist.all_gather(sizes, torch.tensor([len(data)]))
        padded = nn.functional.pad(data, (0, int(max(sizes)) - len(data)))
        rows = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(rows, padded)
    return [json.loads(row[: int(size)].numpy().tobytes()) for row, size in zip(rows, sizes, strict=True)]


def total(values: Tensor) -> Tensor:
    """The sum over ranks of a tensor without gradient, of the same shape everywhere."""
    if _job is None:
        return values
    summed = values.detach().clone()
    with _speaking():
        dist.all_reduce(summed)
    return summed


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each gradient by its sum over the ranks. One that no rank has stays None: the optimiser must pass over it."""
    if _job is None:
        return
    learnt = list(parameters)
    with _speaking():
        used = torch.tensor([p.grad is not None for p in learnt], dtype=torch.int32)
        dist.all_reduce(used)
    for parameter in (present := [p for p, some in zip(learnt, used.tolist(), strict=True) if some]):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    for bucket in _buckets(present):
        gradients = [p.grad for p in bucket if p.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        with _speaking():
            dist.all_reduce(flat)
        for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))


def gather(values: Tensor) -> Tensor:
    """Rows of every rank, [b, ...] each -> [ranks * b, ...] in the order of ranks, with the gradient, summed over ranks."""
    return values if _job is None else _Gather.apply(values)


class _Gather(torch.autograd.Function):
    """All ranks' rows forwards; backwards, the sum over ranks of the gradient of this rank's rows."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        rows = [torch.empty_like(values, memory_format=torch.contiguous_format) for _ in range(world())]
        with _speaking():
            dist.all_gather(rows, values.contiguous())
        return torch.cat(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        summed = gradients[0].contiguous().clone()
        with _speaking():
            dist.all_reduce(summed)
        return summed.chunk(world())[rank()]


def _buckets(parameters: list[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Parameters of one type, so many as one message takes."""
    bucket: list[nn.Parameter] = []
    for parameter in parameters:
        full = sum(p.numel() for p in bucket) + parameter.numel() > BUCKET_NUMBERS
        if bucket and (full or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket


def _broadcast(value: dict[str, Any] | None) -> dict[str, Any]:
    assert _job is not None
    data = _numbers(value)
    size = torch.tensor([len(data)])
    with _speaking():
        dist.broadcast(size, 0, group=_job.patient)
        data = data if _job.rank == 0 else torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(data, 0, group=_job.patient)
    return dict(json.loads(data.numpy().tobytes()))


def _numbers(value: Any) -> Tensor:
    """The JSON of a value: torch would pickle objects, which run code where they are read."""
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


@contextlib.contextmanager
def _speaking() -> Iterator[None]:
    """Say in one line that a rank does not answer."""
    try:
        yield
    except RuntimeError as error:
        here = place()
        problem = f"rank {here.rank} of {here.world} gets no answer: another rank has ended or hangs"
        raise TrainingError(problem, cure=_CURE) from error
