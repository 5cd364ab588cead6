"""The verbs about a corpus."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from realm.cli import show
from realm.cli.arguments import Columns, Corpus, Flag, Json, Place, Word, Workers, columns
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


VERBS = (corpus_build, corpus_add, corpus_update, corpus_sync, corpus_remove, corpus_compact, corpus_info, corpus_show)
