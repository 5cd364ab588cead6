"""The verbs that come in groups: corpus, index, data, knn, tagger."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from realm.cli import corpus as corpora
from realm.cli import knn, questions, refreshing, show, taggers
from realm.progress import Progress

Run = Annotated[Path, tyro.conf.arg(metavar="RUN")]
Text = Annotated[str, tyro.conf.arg(metavar="TEXT")]


def index_build(run: Run, /, *, json: bool = False) -> None:
    """Embed documents added since the index was made, with the document embedder that made it.

    Args:
        run: a run directory.
        json: print index info as one JSON object in the last line.
    """
    from realm.opening import open_run

    with Progress() as progress:
        opened, count = open_run(run).with_added(lambda done, total: progress.count("index: blocks", done, total))
    found = {"embedded": count, **opened.index_facts()}
    if not json:
        show.facts(found)
    show.last_line(found, json)


def index_info(run: Run, /, *, json: bool = False) -> None:
    """What the index of a run holds, how it is searched, and its recall against exact search, measured on a sample.

    Args:
        run: a run directory.
        json: print one JSON object as the last line.
    """
    from realm.opening import open_run

    opened = open_run(run)
    found = {**opened.index_facts(), **opened.searching_facts()}
    if not json:
        show.facts(found)
    show.last_line(found, json)


def index_search(run: Run, text: Text, /, *, k: int = 5, json: bool = False) -> None:
    """Find the nearest documents of a text; works as soon as pre-training has ended.

    Args:
        run: a run directory.
        text: a question or any text.
        k: documents to find.
        json: print one JSON object as the last line.
    """
    from dataclasses import asdict

    from realm.opening import open_run

    opened = open_run(run)
    hits = [asdict(hit) for hit in opened.search(text, k)]
    if not json:
        show.hits(hits)
    show.last_line({"text": text, "results": hits, "versions": opened.versions}, json)


ABOUT = {
    "corpus": "Make, change and inspect corpora: build, add, update, remove, compact, info, show.",
    "data": "Question files: check, convert.",
    "index": "The index of a run: build, info, search, verify.",
    "knn": "kNN beside a language or translation model: build, eval, tune, prune, generate.",
    "tagger": "Salient-span taggers: eval.",
}
GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    "corpus": {
        "build": corpora.corpus_build,
        "add": corpora.corpus_add,
        "update": corpora.corpus_update,
        "remove": corpora.corpus_remove,
        "compact": corpora.corpus_compact,
        "info": corpora.corpus_info,
        "show": corpora.corpus_show,
    },
    "data": {"check": questions.data_check, "convert": questions.data_convert},
    "index": {"build": index_build, "info": index_info, "search": index_search, "verify": refreshing.index_verify},
    "knn": {
        "build": knn.knn_build,
        "eval": knn.knn_eval,
        "tune": knn.knn_tune,
        "prune": knn.knn_prune,
        "generate": knn.knn_generate,
    },
    "tagger": {"eval": taggers.tagger_eval},
}
