"""How a recipe's pre-training gets its index."""

from collections.abc import Callable

from realm.recipes.context import StageContext
from realm.refresh import EmbedOptions, Generation
from realm.refresh.async_refresh import AsyncRefresh
from realm.refresh.index_source import IndexSource, Inline, RefreshContext, Schedule
from realm.refresh.ranked import for_all_ranks
from realm.refresh.refresher_process import RefresherProcess


def index_source(context: StageContext, protect: Callable[[], frozenset[int]]) -> IndexSource:
    """What the recipe's ``pretrain.refresh`` says; on several ranks, the first one's for all."""
    return for_all_ranks(_index_source(context, protect))


def _index_source(context: StageContext, protect: Callable[[], frozenset[int]]) -> IndexSource:
    section, refresher = context.recipe.pretrain, context.recipe.refresher
    every = 0 if section.refresh == "frozen" else section.refresh_every
    limit = refresher.staleness_limit or 5 * section.refresh_every
    schedule = Schedule(section.steps, every, limit, refresher.deadline)
    options = EmbedOptions(bf16=context.recipe.run.bf16)
    refresh = RefreshContext(context.paths, context.inputs, context.device, schedule, protect, options, context.embedded)
    if section.refresh not in ("process", "external"):
        return Inline(refresh)
    child = RefresherProcess(context.paths, refresher.threads, context.device.type) if section.refresh == "process" else None
    return AsyncRefresh(refresh, child)


def speed(found: Generation) -> dict[str, float]:
    """What the refresh behind a generation took, as measured by the process that embedded it."""
    manifest = found.snapshot.manifest
    return {"refresh_seconds": manifest.seconds, "blocks_per_second": manifest.count / max(1e-3, manifest.seconds)}
