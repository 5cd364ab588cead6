"""How a recipe's pre-training gets its index, and the record of the swaps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from realm.recipes.context import StageContext
from realm.refresh import EmbedOptions, Generation
from realm.refresh.beside import Companion
from realm.refresh.ranked import Ranked
from realm.refresh.replay import Replay, as_row, read_swaps, swap_of
from realm.refresh.swapping import Beside, Inline, Schedule
from realm.train.distributed import is_first, world
from realm.train.metrics import MetricsLog, Row

STAGE = "pretrain"


def index_source(context: StageContext, protect: Callable[[], frozenset[int]]) -> Inline:
    """What the recipe's ``pretrain.refresh`` says, or a replay if one is asked for; on several ranks, the first one's for all."""
    source = _index_source(context, protect)
    return source if world() == 1 else Ranked(source)


def _index_source(context: StageContext, protect: Callable[[], frozenset[int]]) -> Inline:
    section, refresher = context.recipe.pretrain, context.recipe.refresher
    every = 0 if section.refresh == "frozen" else section.refresh_every
    limit = refresher.staleness_limit or 5 * section.refresh_every
    schedule = Schedule(section.steps, every, limit, refresher.deadline)
    options = EmbedOptions(bf16=context.recipe.run.bf16)
    inline = Inline(context.paths, context.inputs, context.device, schedule, protect, options, context.embedded)
    if refresher.replay:
        return Replay(inline, read_swaps(Path(refresher.replay)))
    if section.refresh == "process":
        return Beside(inline, Companion(context.paths, refresher.threads, context.device.type), refresher.threads)
    return Beside(inline, None, refresher.threads) if section.refresh == "external" else inline


class SwapLog:
    """``swaps.jsonl``: a row for each swap; a checkpoint carries the rows, and a resumed run takes back what came after it."""

    def __init__(self, path: Path):
        self.rows: list[Row] = []
        self._log = MetricsLog(path)

    def add(self, step: int, source: Inline) -> None:
        """Note that the generation of ``source`` is searched from ``step`` on."""
        if not self.rows:
            self._log.rewind(STAGE, 0)  # the record of a run that was started again from nothing
        row = as_row(swap_of(step, source))
        self.rows.append({"step": step, **row})
        self._log.write(STAGE, step, **row)

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Take back the rows of a checkpoint."""
        self.rows = list(rows)
        if is_first():
            self._log.rewind(STAGE, len(rows))


def speed(found: Generation) -> dict[str, float]:
    """What the refresh behind a generation took, as whoever embedded it measured."""
    manifest = found.snapshot.manifest
    return {"refresh_seconds": manifest.seconds, "blocks_per_second": manifest.count / max(1e-3, manifest.seconds)}
