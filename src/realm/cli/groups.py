"""The verbs that come in groups: corpus, index, data, knn, tagger."""

from collections.abc import Callable
from functools import partial

from realm.cli import corpus as corpora
from realm.cli import knn, questions, refreshing, show, taggers
from realm.cli.arguments import Json, Run, Text
from realm.progress import Progress


def index_build(run: Run, /, *, json: Json = False) -> None:
    """Embed documents added since the index was made, with the document embedder that made it."""
    from realm.opening import open_run

    with Progress() as progress:
        opened, count = open_run(run).with_added(partial(progress.count, "index: blocks"))
    found = {"embedded": count, **opened.index_facts()}
    show.result(found, json)


def index_info(run: Run, /, *, json: Json = False) -> None:
    """What the index of a run holds, how it is searched, and its recall against exact search, measured on a sample."""
    from realm.opening import open_run

    opened = open_run(run)
    found = {**opened.index_facts(), **opened.searching_facts()}
    show.result(found, json)


def index_search(run: Run, text: Text, /, *, k: int = 5, json: Json = False) -> None:
    """Find the nearest documents of a text; works as soon as pre-training has ended.

    Args:
        text: a question or any text.
        k: documents to find.
    """
    from dataclasses import asdict

    from realm.opening import open_run

    opened = open_run(run)
    found = {"text": text, "results": [asdict(hit) for hit in opened.search(text, k)], "versions": opened.versions}
    show.result(found, json, show.hits)


ABOUT = {
    "corpus": "Make, change and inspect corpora: build, add, update, remove, compact, info, show.",
    "data": "Question files: check, convert.",
    "index": "The index of a run: build, info, search, verify.",
    "knn": "kNN beside a language or translation model: build, eval, tune, prune, generate.",
    "tagger": "Salient-span taggers: eval.",
}
GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    group: {verb.__name__.removeprefix(f"{group}_"): verb for verb in verbs}
    for group, verbs in {
        "corpus": corpora.VERBS,
        "data": (questions.data_check, questions.data_convert),
        "index": (index_build, index_info, index_search, refreshing.index_verify),
        "knn": (knn.knn_build, knn.knn_eval, knn.knn_tune, knn.knn_prune, knn.knn_generate),
        "tagger": (taggers.tagger_eval,),
    }.items()
}
