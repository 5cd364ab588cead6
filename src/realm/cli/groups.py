"""The verbs that come in groups: corpus, index, data."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from realm.cli import show, taggers
from realm.progress import Progress

Corpus = Annotated[Path, tyro.conf.arg(metavar="CORPUS")]
Sources = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="SOURCE")]
Documents = Annotated[tuple[str, ...], tyro.conf.arg(metavar="ID")]
Run = Annotated[Path, tyro.conf.arg(metavar="RUN")]
Text = Annotated[str, tyro.conf.arg(metavar="TEXT")]
FORMAT_HELP = "read the sources as jsonl, csv, tsv, parquet, text, markdown, html, beir, datasets, warc or mediawiki; empty looks."
Format = Annotated[str, tyro.conf.arg(help=FORMAT_HELP)]
ID_HELP = "column or JSON key with the id; empty looks for id or _id, and names rows by file and number without one."
IdColumn = Annotated[str, tyro.conf.arg(help=ID_HELP)]
TitleColumn = Annotated[str, tyro.conf.arg(help="column or JSON key with the title; empty looks for title.")]
TextColumn = Annotated[str, tyro.conf.arg(help="column or JSON key with the text; empty looks for text or contents.")]


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
    format: Format = "",
    id_column: IdColumn = "",
    title_column: TitleColumn = "",
    text_column: TextColumn = "",
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
        tagger: what finds the salient spans: default, or parts joined by + of truecase, dates, collocations, gazetteer:FILE, spacy:MODEL,
            hf:MODEL, perceptron:DIR (docs/salient-spans.md).
        gazetteer: a file of phrases, one a line, that are salient besides what the tagger finds.
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
    format: Format = "",
    id_column: IdColumn = "",
    title_column: TitleColumn = "",
    text_column: TextColumn = "",
    strict: bool = False,
    json: bool = False,
) -> None:
    """Add documents to a corpus. Until realm index build RUN has embedded them, ask says that they are not searchable.

    Args:
        corpus: the corpus directory; a run keeps its own in RUN/corpus.
        sources: files or folders, or hf:owner/name for a dataset on the Hugging Face hub.
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
    format: Format = "",
    id_column: IdColumn = "",
    title_column: TitleColumn = "",
    text_column: TextColumn = "",
    strict: bool = False,
    json: bool = False,
) -> None:
    """Replace documents that are in a corpus by what the sources hold under the same ids. New ids are for realm corpus add.

    Args:
        corpus: the corpus directory; a run keeps its own in RUN/corpus.
        sources: files or folders.
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


def data_check(qa: Annotated[Path, tyro.conf.arg(metavar="QA")], /, *, corpus: Path | None = None, json: bool = False) -> None:
    """Check a question file: counts, answer lengths, and with a corpus how many answers stand in it.

    Args:
        qa: questions (JSONL).
        corpus: a corpus directory.
        json: print one JSON object as the last line.
    """
    from realm.data.check import check_question_file

    found = check_question_file(qa, corpus)
    if not json:
        show.facts(found)
    show.last_line(found, json)


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
    """What the index of a run holds.

    Args:
        run: a run directory.
        json: print one JSON object as the last line.
    """
    from realm.opening import open_run

    found = open_run(run).index_facts()
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
    "data": "Check question files: check.",
    "index": "The index of a run: build, info, search.",
    "tagger": "Salient-span taggers: eval, train.",
}
GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    "corpus": {
        "build": corpus_build,
        "add": corpus_add,
        "update": corpus_update,
        "remove": corpus_remove,
        "compact": corpus_compact,
        "info": corpus_info,
        "show": corpus_show,
    },
    "data": {"check": data_check},
    "index": {"build": index_build, "info": index_info, "search": index_search},
    "tagger": {"eval": taggers.tagger_eval, "train": taggers.tagger_train},
}
