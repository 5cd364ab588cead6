"""Jobs of several forked ranks, which may be killed: standard input names plans (JSON lists of jobs), exit codes go to PLAN.done."""

import contextlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import transformers.models.bert.modeling_bert  # noqa: F401  (what the forked ranks would each import)
from safetensors.torch import save_file
from torch import nn

import realm.training.loop.loop
from realm.errors import RealmError
from realm.progress import Progress
from realm.recipe import Recipe, load_recipe
from realm.runs.run import run_recipe
from realm.search.candidates import DenseCandidates
from realm.search.publishing.generation import open_generation
from realm.storage.layout import RunPaths, stage_facts
from realm.training.beams import LiveSource
from realm.training.context import StageContext, load_stage, open_context
from realm.training.finetune.task import ReadingTask, training_questions
from realm.training.loop.distributed import is_first, joined, rank, sum_gradients
from realm.training.loop.stepping import one_step
from realm.training.loop.task import LoopOptions, Task
from realm.training.order import Share
from realm.training.pretrain.task import PretrainTask
from realm.training.starting import new_model, with_new_reader
from realm.training.warm import IctTask, WarmTask

Job = dict[str, Any]


def recipe_of(job: Job) -> Recipe:
    return load_recipe(Path(job["run"]) / "config.toml", job.get("set", {}))


def exact(model: nn.Module) -> Any:
    """In float64, without dropout: what remains is the order of sums."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.double()


def tasks(context: StageContext) -> list[Task]:
    """The four stages as they begin, in float64."""
    generation = open_generation(context.paths, context.inputs, stage_facts(context.paths, "pretrain")["generation"])
    pretrain = PretrainTask(context, exact(load_stage(context, "ict").with_parts(encoder=load_stage(context, "warm").encoder)))
    pretrain.generation = generation
    tuned = exact(with_new_reader(context, load_stage(context, "pretrain").fork_document_embedder()))
    source = LiveSource(DenseCandidates(tuned.embedder, generation.snapshot, generation.index, context.inputs), tuned.embedder)
    return [
        IctTask(context, exact(new_model(context).with_parts(encoder=None))),
        WarmTask(context, exact(new_model(context).with_parts(embedder=None))),
        pretrain,
        ReadingTask("finetune", context, source, tuned.reader, *training_questions(context)),
    ]


def gradients(job: Job) -> None:
    """One step of each stage; the first rank writes its gradients and loss."""
    with joined(cuda=False):
        context, found = open_context(RunPaths(Path(job["run"])), recipe_of(job), lambda *_: None), {}
        for task in tasks(context):
            options = LoopOptions(steps=9, lr=0.0, warmup=0, clip=1e9, accumulate=job["accumulate"])
            outcome = one_step(task, 0, torch.optim.SGD(task.model.parameters(), lr=0.0), options)
            found |= {f"{task.name}.{name}": p.grad.clone() for name, p in task.model.named_parameters() if p.grad is not None}
            found[f"{task.name} loss"] = torch.tensor(outcome.loss, dtype=torch.float64)
            if job["world"] == 1:
                found[f"{task.name} weights"] = torch.tensor([task.step(0, Share(part, 4)).weight for part in range(4)])
        if is_first():
            save_file({name: value.contiguous() for name, value in found.items()}, job["out"])


def unused(job: Job) -> None:
    with joined(cuda=False):
        learnt = [nn.Parameter(torch.zeros(3)) for _ in range(3)]
        learnt[0].grad = torch.full((3,), 1.0 + rank())
        if rank() == 1:
            learnt[1].grad = torch.full((3,), 5.0)
        sum_gradients(learnt)
        Path(f"{job['out']}.{rank()}").write_text(json.dumps([None if p.grad is None else p.grad.tolist() for p in learnt]))


def stages(job: Job) -> None:
    """Stages of a recipe; ``kill`` is [rank, step, stage]: SIGKILL inside that step; ``stop`` the same with SIGSTOP."""
    sent, step_of = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}, realm.training.loop.loop._one_step

    def one_step(task: Task, step: int, *rest: Any) -> Any:
        for name, number in sent.items():
            if name in job and job[name] == [rank(), step, task.name]:
                os.kill(os.getpid(), number)
        return step_of(task, step, *rest)

    realm.training.loop.loop._one_step = one_step
    recipe = recipe_of(job)
    realm.training.loop.distributed.SILENT_SECONDS = job.get("timeout", 60)
    run_recipe(recipe, Path(job["run"]), stages=tuple(job["stages"]), progress=Progress(quiet=True))


WORK = {"gradients": gradients, "unused": unused, "stages": stages}


def start(job: Job, number: int, port: int, errors: Path) -> int:
    if pid := os.fork():
        return pid
    code = 1
    try:
        with open(errors, "w") as file, contextlib.redirect_stderr(file):
            world = str(job["world"])
            os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": world, "MASTER_ADDR": "localhost"}
            os.environ |= {"MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
            try:
                WORK[job["work"]](job)
                code = 0
            except RealmError as error:
                print(f"error: {error}", file=file)
                code = 2
            except SystemExit as error:
                code = int(error.code or 0)
            except BaseException:
                traceback.print_exc(file=file)
    finally:
        os._exit(code)


def finish(pids: list[int], seconds: float) -> list[int]:
    """Exit codes, negative for signals; what does not end in time is killed (-9)."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    while len(codes) < len(pids):
        for pid in [p for p in pids if p not in codes]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline or (codes and -signal.SIGKILL not in codes.values() and not pids_alive(pid)):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[pid] for pid in pids]


def pids_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T"


def run_plan(plan: Path) -> None:
    done = []
    for number, job in enumerate(json.loads(plan.read_text())):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        errors = [plan.with_name(f"{plan.name}.{number}.{place}") for place in range(job["world"])]
        started = time.monotonic()
        codes = finish([start(job, place, port, errors[place]) for place in range(job["world"])], job.get("seconds", 100))
        done.append({"codes": codes, "errors": [path.read_text() for path in errors], "seconds": time.monotonic() - started})
    Path(f"{plan}.done").write_text(json.dumps(done))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        run_plan(Path(line.strip()))
        print("done", flush=True)
