"""The verbs that come in groups: cache, corpus, index and knn; and ``realm refresh``, which builds indexes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from realm.cli import corpus as corpora, knn, show
from realm.cli.arguments import Json, Places, Run, Text, helpful, optional_value
from realm.progress import Progress


def index_build(run: Run, /, *, json: Json = False) -> None:
    """Embed documents added since a run's index was made."""
    from realm.answering.index_facts import index_facts

    with Progress() as progress:
        opened, count = _opened(run, progress).with_added(partial(progress.count, "index: blocks"))
    show.result({"embedded": count, **index_facts(opened)}, json)


def _opened(run: Path, progress: Progress) -> Any:
    """A run, its index built again where it is damaged or gone and what it is made of is whole."""
    from realm.answering.opening import open_run
    from realm.errors import SnapshotError
    from realm.runs.needed_index import whole_index

    try:
        return open_run(run)
    except SnapshotError:
        whole_index(run, progress, show.note)
    return open_run(run)


def index_info(run: Run, /, *, json: Json = False) -> None:
    """Show what the index of a run holds, how it is searched, and its recall against exact search on a sample."""
    from realm.answering.index_facts import index_facts, searching_facts
    from realm.answering.opening import open_run

    opened = open_run(run)
    show.result({**index_facts(opened), **searching_facts(opened)}, json)


def index_search(run: Run, text: Text, /, *, k: int = 5, json: Json = False) -> None:
    """Find the nearest documents of a text; works as soon as pre-training has ended.

    Args:
        text: a question or any text.
        k: documents to find."""
    from realm.answering.opening import open_run
    from realm.errors import require_some

    require_some("--k", k)
    opened = open_run(run)
    found = {"text": text, "results": [hit.to_dict() for hit in opened.search(text, k)], "versions": opened.versions}
    show.result(found, json, show.hits)


Address = Annotated[str | None, optional_value("ADDRESS", without="local")]


def refresh(run: Run, /, *, once: bool = False, ray: Address = None, actors: int = 2) -> None:
    """Build the index of a run beside its trainer (pretrain.refresh = "external"), until pre-training has ended.

    Args:
        once: end as soon as no index is requested.
        ray: embed by a pool of actors on Ray: a cluster on this machine, or that of ADDRESS (HOST:PORT of its head, or auto).
        actors: number of actors in that pool."""
    from realm.runs.needed_index import whole_index

    with Progress() as progress:
        count = partial(progress.count, "index: blocks")
        if ray is None:
            from realm.training.refresh.refresher_process import serve_run

            serve_run(run, once=once, say=progress.say, progress=count)
        else:
            from realm.training.pool import serve_pool

            serve_pool(run, ray, actors, once=once, say=progress.say, progress=count)
        whole_index(run, progress, progress.say)


ABOUT = {
    "cache": "The cache of documents that you ask directly: info, clear.",
    "corpus": "Make, change and inspect corpora: build, add, update, sync, remove, compact, info, show.",
    "index": "The index of a run: build, info, search.",
    "knn": "kNN beside a language or translation model: build, eval, tune, generate.",
}


def cache_info(places: Places = (), /, *, json: Json = False) -> None:
    """List the documents in the cache of realm ask and realm serve, most recently used first; of named ones, the files that were not read.

    Args:
        places: files or folders that were asked."""
    from realm.runs.cached import cache_directory, cached_runs

    show.result({"directory": str(cache_directory()), "runs": cached_runs(places)}, json, show.cached)


def cache_clear(places: Places = (), /, *, json: Json = False) -> None:
    """Delete the cache of these files and folders, or all of it. The documents themselves stay.

    Args:
        places: files or folders that were asked."""
    from realm.runs.cached import clear_cache

    show.result(clear_cache(places), json)


GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    group: {verb.__name__.removeprefix(f"{group}_"): helpful(verb) for verb in verbs}
    for group, verbs in {
        "cache": (cache_info, cache_clear),
        "corpus": corpora.VERBS,
        "index": (index_build, index_info, index_search),
        "knn": (knn.knn_build, knn.knn_eval, knn.knn_tune, knn.knn_generate),
    }.items()
}
