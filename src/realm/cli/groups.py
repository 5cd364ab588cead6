"""The verbs that come in groups: cache, corpus, index and knn; and ``realm refresh``, which builds indexes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from realm.cli import knn, show
from realm.cli.arguments import Columns, Corpus, Flag, Json, Place, Places, Run, Text, Word, Workers, columns, helpful, optional_value
from realm.progress import Progress

if TYPE_CHECKING:
    from realm.documents.sources import SourceOptions
    from realm.documents.store.manifest import CorpusManifest

Sources = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="SOURCE", help="files or folders")]
Documents = Annotated[tuple[str, ...], tyro.conf.arg(metavar="ID")]


@dataclass(frozen=True)
class SourceFlags:
    """Options of the readers of sources.

    Args:
        format: how the sources are read: jsonl, csv, html or another format of docs/data-formats.md; detected if not given.
        column: column or JSON key of a role: id (if not given: id or _id, else rows are named by file and number), title (title) or text
            (text or contents), such as --column text=body; may be repeated.
        templates: a TOML or JSON file with a sentence for each relation of triples (docs/data-formats.md).
        strict: stop at the first document that cannot be used instead of counting it."""

    format: Word = ""
    column: Columns = ()
    templates: Word = ""
    strict: Flag = False

    def options(self) -> "SourceOptions":
        """Options of the readers."""
        from realm.documents.sources import SourceOptions

        named = columns(self.column, "id", "title", "text")
        return SourceOptions.of(self.format, named.get("id", ""), named.get("title", ""), named.get("text", ""), self.templates)


Reading = Annotated[SourceFlags, tyro.conf.arg(name="")]


def _change_verb(change: str, about: str) -> Callable[..., None]:
    """The verb that changes a corpus by documents and says what it holds then; ``change``: of ``corpus.change.updates``."""

    def verb(corpus: Corpus, sources: Sources, /, *, reading: Reading = SourceFlags(), workers: Workers = None, json: Json = False) -> None:
        from realm.documents.change import updates

        act: Callable[..., CorpusManifest] = getattr(updates, f"{change}_documents")
        with Progress() as progress:
            counting = progress.counting("corpus")
            act(corpus, sources, strict=reading.strict, workers=workers, progress=counting, source_options=reading.options())
        corpus_info(corpus, json=json)

    verb.__name__, verb.__doc__ = f"corpus_{change}", about
    return verb


corpus_add = _change_verb(
    "add", "Add documents to a corpus. Until realm index build RUN has embedded them, ask says that they are not searchable."
)
corpus_update = _change_verb(
    "update", "Replace documents of a corpus by those with the same ids in the sources. For new ids, use realm corpus add."
)
corpus_sync = _change_verb("sync", "Make a corpus match its sources: add new documents, replace changed ones, remove missing ones.")


def corpus_build(
    sources: Sources,
    /,
    *,
    out: Path,
    tokenizer: str = "",
    vocab_size: int = 8000,
    block_length: int = 288,
    tagger: str = "default",
    reading: Reading = SourceFlags(),
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Make a corpus from files and folders of documents.

    Args:
        out: the corpus directory; must not exist.
        tokenizer: a tokenizer directory or hub name; if not given, a WordPiece vocabulary is trained on the documents.
        vocab_size: entries of a vocabulary trained here.
        block_length: wordpieces of a block, title and special tokens counted.
        tagger: what finds the salient spans: default, none, or parts joined by + of truecase, dates, collocations, gazetteer:FILE,
            hf:MODEL (docs/salient-spans.md)."""
    from realm.documents.ingest.builder import BuildOptions, build_corpus

    options = BuildOptions(
        tokenizer=tokenizer or None,
        vocab_size=vocab_size,
        block_length=block_length,
        tagger=tagger,
        strict=reading.strict,
        source_options=reading.options(),
    )
    with Progress() as progress:
        build_corpus(sources, out, options, workers=workers, progress=progress.counting("corpus"))
    corpus_info(out, json=json)


def corpus_info(corpus: Corpus, /, *, json: Json = False) -> None:
    """Show what a corpus holds, and whether it can teach a retriever."""
    from realm.documents.store.info import corpus_info as facts_of

    show.result(facts_of(corpus), json)


def corpus_remove(corpus: Corpus, documents: Documents = (), /, *, ids: Place = None, json: Json = False) -> None:
    """Remove documents from a corpus: no search returns them from then on. Their text leaves the disk with realm corpus compact --purge.

    Args:
        documents: ids of documents.
        ids: a file of more ids, one a line."""
    from realm.documents.change.updates import remove_documents
    from realm.storage.files import open_text

    listed: list[str] = []
    if ids is not None:
        with open_text(ids) as lines:
            listed = [line for line in lines if not line.isspace()]
    remove_documents(corpus, [*documents, *listed])
    corpus_info(corpus, json=json)


def corpus_compact(corpus: Corpus, /, *, purge: bool = False, json: Json = False) -> None:
    """Drop the rows of removed documents and merge small segments.

    Args:
        purge: also delete older files at once, so that no removed text is left on disk."""
    from realm.documents.change.compaction import compact_corpus

    compact_corpus(corpus, purge=purge)
    corpus_info(corpus, json=json)


def corpus_show(corpus: Corpus, document: Annotated[str, tyro.conf.arg(metavar="ID")], /, *, json: Json = False) -> None:
    """Show the sentences of one document, block by block, with the salient spans marked, and where it was read.

    Args:
        document: the document's id."""
    from realm.documents.store.info import document_blocks

    show.result({"id": document, "blocks": document_blocks(corpus, document)}, json, show.document)


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
        "corpus": (corpus_build, corpus_add, corpus_update, corpus_sync, corpus_remove, corpus_compact, corpus_info, corpus_show),
        "index": (index_build, index_info, index_search),
        "knn": (knn.knn_build, knn.knn_eval, knn.knn_tune, knn.knn_generate),
    }.items()
}
