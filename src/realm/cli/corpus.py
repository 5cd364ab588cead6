"""The verbs about a corpus."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from realm.cli import show
from realm.progress import Progress

Corpus = Annotated[Path, tyro.conf.arg(metavar="CORPUS")]
Sources = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="SOURCE")]
Documents = Annotated[tuple[str, ...], tyro.conf.arg(metavar="ID")]


def _counting(progress: Progress) -> Callable[[str, int, int | None], None]:
    return lambda what, done, total: progress.count(f"corpus: {what}", done, total)


def corpus_build(
    sources: Sources,
    /,
    *,
    out: Path,
    tokenizer: str = "",
    vocab_size: int = 8000,
    lowercase: bool = True,
    block_length: int = 288,
    tagger: str = "default",
    gazetteer: Path | None = None,
    format: str = "",
    id_column: str = "",
    title_column: str = "",
    text_column: str = "",
    strict: bool = False,
    workers: int | None = None,
    json: bool = False,
) -> None:
    """Make a corpus from files and folders of documents.

    Args:
        sources: files or folders, or hf:owner/name for a dataset on the Hugging Face hub.
        out: the corpus directory; must not exist.
        tokenizer: a tokenizer directory or hub name; empty trains a WordPiece vocabulary on the documents.
        vocab_size: entries of a vocabulary trained here.
        lowercase: whether a vocabulary trained here ignores case.
        block_length: wordpieces of a block, title and special tokens counted.
        tagger: what finds the salient spans: default, none, or parts joined by + of truecase, dates, collocations, gazetteer:FILE,
            spacy:MODEL, hf:MODEL, perceptron:DIR (docs/salient-spans.md).
        gazetteer: a file of phrases, one a line, that are salient besides what the tagger finds.
        format: how the sources are read: jsonl, csv, tsv, parquet, text, markdown, html, beir, datasets, warc or mediawiki; empty looks.
        id_column: column or JSON key with the id; empty looks for id or _id, and names rows by file and number without one.
        title_column: column or JSON key with the title; empty looks for title.
        text_column: column or JSON key with the text; empty looks for text or contents.
        strict: stop at the first malformed document instead of counting it.
        workers: processes; all cores that may be used if not given.
        json: print corpus info as one JSON object in the last line.
    """
    from realm.corpus.build import build_corpus
    from realm.corpus.sources import SourceOptions

    options = SourceOptions.of(format, id_column, title_column, text_column)

    with Progress() as progress:
        build_corpus(
            sources,
            out,
            tokenizer=tokenizer or None,
            vocab_size=vocab_size,
            lowercase=lowercase,
            block_length=block_length,
            tagger=tagger,
            gazetteer=gazetteer,
            strict=strict,
            workers=workers,
            progress=_counting(progress),
            say=progress.say,
            source_options=options,
        )
    corpus_info(out, json=json)


def corpus_add(
    corpus: Corpus,
    sources: Sources,
    /,
    *,
    format: str = "",
    id_column: str = "",
    title_column: str = "",
    text_column: str = "",
    strict: bool = False,
    json: bool = False,
) -> None:
    """Add documents to a corpus. Until realm index build RUN has embedded them, ask says that they are not searchable.

    Args:
        corpus: the corpus directory; a run keeps its own in RUN/corpus.
        sources: files or folders, or hf:owner/name for a dataset on the Hugging Face hub.
        format: how the sources are read: jsonl, csv, tsv, parquet, text, markdown, html, beir, datasets, warc or mediawiki; empty looks.
        id_column: column or JSON key with the id; empty looks for id or _id, and names rows by file and number without one.
        title_column: column or JSON key with the title; empty looks for title.
        text_column: column or JSON key with the text; empty looks for text or contents.
        strict: stop at the first malformed document instead of counting it.
        json: print corpus info as one JSON object in the last line.
    """
    from realm.corpus.living import add_documents
    from realm.corpus.sources import SourceOptions

    options = SourceOptions.of(format, id_column, title_column, text_column)

    with Progress() as progress:
        add_documents(corpus, sources, strict=strict, progress=_counting(progress), source_options=options)
    corpus_info(corpus, json=json)


def corpus_info(corpus: Corpus, /, *, json: bool = False) -> None:
    """What a corpus holds, and whether it can teach a retriever.

    Args:
        corpus: the corpus directory.
        json: print one JSON object as the last line.
    """
    from realm.corpus.info import corpus_info as facts_of

    facts = facts_of(corpus)
    if not json:
        show.facts(facts)
    show.last_line(facts, json)


def corpus_update(
    corpus: Corpus,
    sources: Sources,
    /,
    *,
    format: str = "",
    id_column: str = "",
    title_column: str = "",
    text_column: str = "",
    strict: bool = False,
    json: bool = False,
) -> None:
    """Replace documents that are in a corpus by what the sources hold under the same ids. New ids are for realm corpus add.

    Args:
        corpus: the corpus directory; a run keeps its own in RUN/corpus.
        sources: files or folders.
        format: how the sources are read: jsonl, csv, tsv, parquet, text, markdown, html, beir, datasets, warc or mediawiki; empty looks.
        id_column: column or JSON key with the id; empty looks for id or _id, and names rows by file and number without one.
        title_column: column or JSON key with the title; empty looks for title.
        text_column: column or JSON key with the text; empty looks for text or contents.
        strict: stop at the first malformed or unknown document instead of counting it.
        json: print corpus info as one JSON object in the last line.
    """
    from realm.corpus.living import update_documents
    from realm.corpus.sources import SourceOptions

    options = SourceOptions.of(format, id_column, title_column, text_column)
    with Progress() as progress:
        update_documents(corpus, sources, strict=strict, progress=_counting(progress), source_options=options)
    corpus_info(corpus, json=json)


def corpus_remove(corpus: Corpus, documents: Documents = (), /, *, ids: Path | None = None, json: bool = False) -> None:
    """Remove documents from a corpus: no search returns them from then on. Their text leaves the disk with realm corpus compact --purge.

    Args:
        corpus: the corpus directory; a run keeps its own in RUN/corpus.
        documents: ids of documents.
        ids: a file of more ids, one a line.
        json: print corpus info as one JSON object in the last line.
    """
    from realm.corpus.living import remove_documents
    from realm.paths import open_text

    listed: list[str] = []
    if ids is not None:
        with open_text(ids) as lines:
            listed = [line for line in lines if not line.isspace()]
    remove_documents(corpus, [*documents, *listed])
    corpus_info(corpus, json=json)


def corpus_compact(corpus: Corpus, /, *, purge: bool = False, json: bool = False) -> None:
    """Drop the rows of removed documents and merge small segments.

    Args:
        corpus: the corpus directory; a run keeps its own in RUN/corpus.
        purge: also delete older files at once, so that no removed text is left on disk.
        json: print corpus info as one JSON object in the last line.
    """
    from realm.corpus.compaction import compact_corpus

    compact_corpus(corpus, purge=purge)
    corpus_info(corpus, json=json)


def corpus_show(
    corpus: Corpus, document: Annotated[str, tyro.conf.arg(metavar="ID")], /, *, source: bool = False, json: bool = False
) -> None:
    """The sentences of one document, block by block, with the salient spans marked.

    Args:
        corpus: the corpus directory.
        document: the document's id.
        source: also show the file and the record that it was read from.
        json: print one JSON object as the last line.
    """
    from realm.corpus.showing import document_blocks, source_record

    blocks = document_blocks(corpus, document)
    record = {"source": source_record(blocks)} if source else {}
    if not json:
        show.blocks(blocks)
        for value in record.values():
            show.source(value)
    show.last_line({"id": document, "blocks": blocks, **record}, json)
