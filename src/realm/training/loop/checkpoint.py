"""Checkpoints of one stage: directories of safetensors and JSON, staged, fsynced, renamed; the newest valid one wins.

The best weights by one of the stage's numbers lie beside them. With ``publish = "better"`` a network that got worse goes back to its start.
"""

import json
import logging
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from realm.errors import RunError, made_earlier
from realm.models.tensor_files import save_tensors
from realm.storage.files import is_transient, json_value, publish_directory, reached, remove_staging
from realm.storage.manifests import Errors, changed_files, file_hashes, read_sealed, unsealed, write_sealed
from realm.training.loop.distributed import on_first

FORMAT = 1
WEIGHTS, OPTIMIZER = "weights.safetensors", "optimizer.safetensors"
SCORE_FILE = "best.json"
KEPT_CHECKPOINTS = 2
"""So many of the newest checkpoints stay."""
log = logging.getLogger(__name__)
_OLDER = "An older checkpoint is used"


_DAMAGED = Errors.of(RunError, _OLDER)


@dataclass(frozen=True)
class Restored:
    """Finished steps of a checkpoint and what was saved with it."""

    step: int
    extra: dict[str, Any]


@contextmanager
def publish_anew(target: Path) -> Iterator[Path]:
    """``publish_directory`` for what may stand there already, damaged or of a run that was killed and has come by again."""
    if target.exists():
        shutil.rmtree(target)
    reached("checkpoint: replaced", target)
    with publish_directory(target) as staging:
        yield staging


class CheckpointDirectory:
    """``step-N`` directories of one stage; those of another ``fingerprint`` (configuration, data) are refused."""

    def __init__(self, path: Path, *, fingerprint: str):
        self.path = path
        self.fingerprint = fingerprint

    def save(self, step: int, module: nn.Module, optimizer: torch.optim.Optimizer, extra: dict[str, Any]) -> None:
        """Publish everything that exact resume needs after ``step`` finished steps."""
        target = self.path / f"step-{step:07d}"
        with publish_anew(target) as staging:
            save_tensors({k: v.contiguous() for k, v in module.state_dict().items()}, staging / WEIGHTS)
            save_tensors(_optimizer_tensors(optimizer), staging / OPTIMIZER)
            files = file_hashes(staging, (WEIGHTS, OPTIMIZER))
            state = {"format": FORMAT, "step": step, "fingerprint": self.fingerprint, "files": files, "extra": extra}
            write_sealed(staging / "state.json", json.loads(json.dumps(state)))  # the checksum is over what will be read: keys are strings
        reached("checkpoint: pruned", target)
        for old in self._steps()[:-KEPT_CHECKPOINTS]:
            shutil.rmtree(old)

    def restore(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> Restored | None:
        """Load the newest valid checkpoint in place, the same on every rank. Raises RunError: of another format or recipe."""
        name = on_first(self._newest)
        if name is None:
            return None
        directory = self.path / name
        state = json_value((directory / "state.json").read_text("utf-8"))
        module.load_state_dict(load_file(directory / WEIGHTS))
        _load_optimizer(optimizer, load_file(directory / OPTIMIZER))
        return Restored(int(state["step"]), state["extra"])

    def _newest(self) -> str | None:
        """The name of the newest valid checkpoint; what a killed process left half-written is removed."""
        remove_staging(self.path) if self.path.is_dir() else None
        return next((found.name for found in reversed(self._steps()) if self._is_valid(found)), None)

    def states(self) -> list[dict[str, Any]]:
        """Extra state in each checkpoint that is kept; incomplete ones are skipped."""
        states = []
        for directory in self._steps():
            try:
                states.append(json_value((directory / "state.json").read_text("utf-8"))["extra"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return states

    def discard(self) -> None:
        """Remove all checkpoints: the stage is published, they have served."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _steps(self) -> list[Path]:
        return sorted(self.path.glob("step-[0-9]*[0-9]")) if self.path.is_dir() else []

    def _is_valid(self, directory: Path) -> bool:
        """Tell whether a checkpoint is whole; a warning names a damaged or missing file."""
        if (problem := checkpoint_problem(directory)) is not None:
            log.warning("checkpoint %s is %s; using an older one", directory, problem)
            return False
        state = json_value((directory / "state.json").read_text("utf-8"))
        if state.get("fingerprint") != self.fingerprint:
            cure = "Give the same recipe and corpus, or start a new run with --out."
            raise RunError("the checkpoint was made with another recipe or corpus", path=directory, cure=cure)
        return True


def checkpoint_problem(directory: Path) -> str | None:
    """The problem with a checkpoint's files, all read; None if whole. Raises RunError: an earlier version's; OSError: no descriptors."""
    try:
        state: dict[str, Any] = json_value((directory / "state.json").read_text("utf-8"))
        if state.get("format") != FORMAT:
            raise made_earlier(RunError, directory)
        unsealed(state, _DAMAGED, directory / "state.json")
        damaged = changed_files(directory, state["files"])
    except RunError as error:
        if error.cure != _OLDER:
            raise
        return f"damaged (state.json {error.problem})"
    except (OSError, ValueError, KeyError, AttributeError) as error:
        if is_transient(error):
            raise
        return f"incomplete ({error})"
    return f"damaged ({', '.join(damaged)})" if damaged else None


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's state as named tensors; the index is the parameter's place in the groups."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{key}": torch.as_tensor(value).contiguous() for i, entry in state.items() for key, value in entry.items()}


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    values = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": values["param_groups"]})


class BestWeights:
    """``best-N`` directories of weights and score; ``state``: {"step", "score"} of the best so far, finished steps, or None."""

    def __init__(self, path: Path):
        self.path = path
        self.state: dict[str, Any] | None = None

    def offer(self, step: int, score: float, module: nn.Module) -> None:
        """Publish the weights after ``step`` finished steps if they are better than any before."""
        if not score > (-math.inf if self.state is None else self.state["score"]):
            return
        state = {"step": step, "score": score}
        with publish_anew(self.path / f"best-{step:07d}") as staging:
            save_tensors({k: v.contiguous() for k, v in module.state_dict().items()}, staging / WEIGHTS)
            write_sealed(staging / SCORE_FILE, state | {"files": file_hashes(staging, (WEIGHTS,))})
        self.state = state

    def prune(self, known: list[dict[str, Any] | None]) -> None:
        """Delete all but the best and those that kept checkpoints know as the best."""
        kept = {state["step"] for state in [*known, self.state] if state is not None}
        for directory in self.path.glob("best-[0-9]*[0-9]"):
            if int(directory.name.removeprefix("best-")) not in kept:
                shutil.rmtree(directory)


def read_score(directory: Path) -> dict[str, Any]:
    """Step and score of best weights. Raises RunError: they or the weights are damaged."""
    errors = Errors.of(RunError, f"Remove {directory.name} and run the same command again", "damaged: ")
    score = read_sealed(directory / SCORE_FILE, errors)
    try:
        damaged = changed_files(directory, score["files"])
    except OSError as error:
        raise errors.unreadable(error, directory) from error
    if damaged:
        raise errors.damaged(f"{damaged[0]} changed since it was published (SHA-256 differs)", path=directory)
    return score


def shared_best(path: Path) -> tuple[int, float, Path] | None:
    """Step, score and weights of the best, the same on every rank; None without any. Raises RunError: a score or weights are damaged."""

    def scored(directory: Path) -> list[Any]:
        facts = read_score(directory)
        return [int(facts["step"]), float(facts["score"]), str(directory / WEIGHTS)]

    found = on_first(lambda: max(map(scored, path.glob("best-[0-9]*[0-9]")), key=lambda row: row[1], default=None))
    return None if found is None else (found[0], found[1], Path(found[2]))


def load_weights(weights: Path, module: nn.Module) -> None:
    """Load weights that :class:`BestWeights` wrote. Raises RunError: the file cannot be read."""
    try:
        module.load_state_dict(load_file(weights))
    except (OSError, ValueError, RuntimeError) as error:
        raise RunError(f"the best weights cannot be read: {error}", path=weights, cure='Set pretrain.publish = "last".') from error


@dataclass(frozen=True)
class Verdict:
    """One measure of a network before a stage and after it, named in words; higher is better."""

    measure: str
    before: float
    after: float

    @property
    def improved(self) -> bool:
        """Tell whether the learnt weights are kept: unless they are worse, or the measure is NaN."""
        return self.after >= self.before

    def facts(self) -> dict[str, Any]:
        """Facts for ``stage.json`` and the report."""
        return {**asdict(self), "kept": "after" if self.improved else "before"}


def better_of(network: nn.Module, start: Mapping[str, Tensor], name: str, measure: Callable[[], float]) -> Verdict:
    """Leave a network with the better of its weights and those at the stage's ``start``, by a measure that draws nothing."""
    learnt = {key: value.clone() for key, value in network.state_dict().items()}
    after = measure()
    network.load_state_dict(start)
    verdict = Verdict(name, measure(), after)
    if verdict.improved:
        network.load_state_dict(learnt)
    return verdict
