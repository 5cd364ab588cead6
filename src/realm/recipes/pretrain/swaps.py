"""How a recipe's pre-training gets its index, and the record of the swaps."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from realm.recipes.context import StageContext
from realm.refresh import EmbedOptions, Generation
from realm.refresh.async_refresh import AsyncRefresh
from realm.refresh.index_source import IndexSource, Inline, RefreshContext, Schedule
from realm.refresh.ranked import for_all_ranks
from realm.refresh.refresher_process import RefresherProcess
from realm.refresh.replay import Replay, as_row, read_swaps, swap_of
from realm.train.distributed import is_first
from realm.train.metrics import MetricsLog, Row

STAGE = "pretrain"


def index_source(context: StageContext, protect: Callable[[], frozenset[int]]) -> IndexSource:
    """What the recipe's ``pretrain.refresh`` says, or a replay if one is asked for; on several ranks, the first one's for all."""
    return for_all_ranks(_index_source(context, protect))


def _index_source(context: StageContext, protect: Callable[[], frozenset[int]]) -> IndexSource:
    section, refresher = context.recipe.pretrain, context.recipe.refresher
    every = 0 if section.refresh == "frozen" else section.refresh_every
    limit = refresher.staleness_limit or 5 * section.refresh_every
    schedule = Schedule(section.steps, every, limit, refresher.deadline)
    options = EmbedOptions(bf16=context.recipe.run.bf16)
    refresh = RefreshContext(context.paths, context.inputs, context.device, schedule, protect, options, context.embedded)
    if refresher.replay:
        return Replay(refresh, read_swaps(Path(refresher.replay)))
    if section.refresh not in ("process", "external"):
        return Inline(refresh)
    refresh = replace(refresh, options=replace(options, threads=refresher.threads))
    child = RefresherProcess(context.paths, refresher.threads, context.device.type) if section.refresh == "process" else None
    return AsyncRefresh(refresh, child)


class SwapLog:
    """``swaps.jsonl``: a row for each swap; a checkpoint carries the rows, and a resumed run takes back what came after it."""

    def __init__(self, path: Path):
        self.rows: list[Row] = []
        self._log = MetricsLog(path)

    def add(self, step: int, source: IndexSource) -> None:
        """Note that the generation of ``source`` is searched from ``step`` on."""
        if not self.rows:
            self._log.rewind(STAGE, 0)  # the record of a run that was started again from nothing
        row = as_row(swap_of(step, source))
        self.rows.append({"step": step, **row})
        self._log.write(STAGE, step, **row)
        self._log.sync()  # there are few, and one that is missing makes the run one that cannot be repeated

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Take back the rows of a checkpoint."""
        self.rows = list(rows)
        if is_first():
            self._log.rewind(STAGE, len(rows))


def speed(found: Generation) -> dict[str, float]:
    """What the refresh behind a generation took, as measured by the process that embedded it."""
    manifest = found.snapshot.manifest
    return {"refresh_seconds": manifest.seconds, "blocks_per_second": manifest.count / max(1e-3, manifest.seconds)}
