"""The swaps of a run as a record, and the same swaps again: asynchronous refreshes that can be repeated exactly.

``swaps.jsonl`` has a row for each swap: before which step the trainer went over to which generation, and of which step's parameters that
was made. A replay publishes the parameters of those steps and builds and opens the index where the other run opened it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from realm.errors import ConfigError, TrainingError
from realm.nn.model import RealmModel
from realm.refresh.embedding import EmbedOptions
from realm.refresh.generation import Generation
from realm.refresh.index_source import IndexSource, RefreshContext
from realm.refresh.locks import publishing
from realm.refresh.parameters import next_number, parameters_path, prune_run, publish_parameters, read_facts
from realm.refresh.refresher import build_generation
from realm.train.metrics import MetricsLog


@dataclass(frozen=True)
class Swap:
    """One row of the record.

    Attributes:
        step: the first step that searched it.
        generation: its number in that run.
        params_step: the steps behind its parameters.
        parameters: ``state_sha256`` of them.
        vectors: SHA-256 of the file of vectors.
        threads: CPU threads that embedded it: the last bits depend on them.
        bf16: whether it was embedded in bfloat16.
    """

    step: int
    generation: int
    params_step: int
    parameters: str
    vectors: str
    threads: int
    bf16: bool


def swap_of(step: int, source: IndexSource) -> Swap:
    """The row for going over to the generation that ``source`` has now, before ``step``."""
    found = source.generation
    assert found is not None
    manifest = found.snapshot.manifest
    facts = read_facts(parameters_path(source.context.paths, manifest.params_generation))
    parameters = "" if facts is None else facts.sha256
    return Swap(step, found.number, found.step, parameters, manifest.shards[0].sha256, *source.made_with)


def read_swaps(path: Path) -> list[Swap]:
    """The record of a run.

    Raises:
        ConfigError: no such file, or no record.
    """
    cure = "Name the swaps.jsonl of a run of this recipe"
    if not path.is_file():
        raise ConfigError("no swaps.jsonl here", path=path, cure=cure)
    try:
        rows = list(MetricsLog(path).rows())
        swaps = [Swap(**{key: row[key] for key in Swap.__dataclass_fields__}) for row in rows]
    except (KeyError, TypeError) as error:
        raise ConfigError(f"not a record of swaps: {error} is missing", path=path, cure=cure) from error
    if any(row.get("kind", "whole") != "whole" for row in rows):
        raise ConfigError("a record of indexes of which a part was embedded, which this version does not repeat", path=path, cure=cure)
    if not swaps or swaps[0].step != 0:
        raise ConfigError("the record of swaps does not begin with step 0", path=path, cure=cure)
    return swaps


class Replay(IndexSource):
    """Takes the swaps of another run of the same recipe.

    Args:
        context: of the stage.
        swaps: the record.

    Attributes:
        kept: step -> number of the parameters published for a swap to come; a checkpoint carries it.
    """

    def __init__(self, context: RefreshContext, swaps: list[Swap]):
        super().__init__(context)
        self.kept: dict[int, int] = {}
        # The first of a step: a second one was made for what comes after the stage, and is made for that again.
        self._swaps = {swap.step: swap for swap in reversed(swaps)}
        self._needed = {swap.params_step: swap for swap in reversed(swaps)}

    def state(self) -> dict[str, Any]:
        return {"kept": {str(step): number for step, number in self.kept.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        self.kept = {int(step): number for step, number in state["kept"].items()}

    def between(self, step: int, model: RealmModel) -> Generation | None:
        if step in self._needed:
            self._keep(step, model)
        swap = self._swaps.get(step)
        return None if swap is None else self._swap(swap)

    def _keep(self, step: int, model: RealmModel) -> None:
        number = self.kept.get(step) or next_number(self.context.paths)
        directory = parameters_path(self.context.paths, number)
        facts = read_facts(directory) if directory.exists() else publish_parameters(model, directory, step=step)
        if facts is None or facts.sha256 != self._needed[step].parameters:
            cure = "Take the same recipe, corpus, version and threads as the recorded run"
            raise TrainingError(f"replay: the parameters of step {step} are not the recorded ones", path=directory, cure=cure)
        self.kept[step] = number

    def _swap(self, swap: Swap) -> Generation:
        context, number = self.context, self.kept.pop(swap.params_step)
        embedder = RealmModel.from_pretrained(parameters_path(context.paths, number)).documents.eval().requires_grad_(False)
        options = EmbedOptions(bf16=swap.bf16)
        with _threads(swap.threads), publishing(context.paths.index):
            build_generation(context.paths, context.inputs, number, embedder.to(context.device), swap.params_step, options)
            prune_run(context.paths, context.protect() | frozenset(self.kept.values()))
        self.generation, self.made_with = context.open(number), (swap.threads, swap.bf16)
        return self.generation


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def as_row(swap: Swap) -> dict[str, Any]:
    """What ``MetricsLog.write`` takes besides stage and step."""
    return {key: value for key, value in asdict(swap).items() if key != "step"}
