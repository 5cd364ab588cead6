"""The verbs that come in groups: corpus, index, data."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from realm.cli import show, taggers
from realm.progress import Progress

Corpus = Annotated[Path, tyro.conf.arg(metavar="CORPUS")]
Sources = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="SOURCE")]
Run = Annotated[Path, tyro.conf.arg(metavar="RUN")]
Text = Annotated[str, tyro.conf.arg(metavar="TEXT")]


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
    strict: bool = False,
    json: bool = False,
) -> None:
    """Make a corpus from files and folders of documents.

    Args:
        sources: files or folders.
        out: the corpus directory; must not exist.
        tokenizer: a tokenizer directory or hub name; empty trains a WordPiece vocabulary on the documents.
        vocab_size: entries of a vocabulary trained here.
        lowercase: whether a vocabulary trained here ignores case.
        block_length: wordpieces of a block, title and special tokens counted.
        tagger: what finds the salient spans: default, or parts joined by + of truecase, dates, collocations, gazetteer:FILE, spacy:MODEL,
            hf:MODEL, perceptron:DIR (docs/salient-spans.md).
        gazetteer: a file of phrases, one a line, that are salient besides what the tagger finds.
        strict: stop at the first malformed document instead of counting it.
        json: print corpus info as one JSON object in the last line.
    """
    from realm.corpus.build import build_corpus

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
            progress=lambda what, done: progress.count(f"corpus: {what}", done),
        )
    corpus_info(out, json=json)


def corpus_add(corpus: Corpus, sources: Sources, /, *, strict: bool = False, json: bool = False) -> None:
    """Add documents to a corpus. Until realm index build RUN has embedded them, ask says that they are not searchable.

    Args:
        corpus: the corpus directory; a run keeps its own in RUN/corpus.
        sources: files or folders.
        strict: stop at the first malformed document instead of counting it.
        json: print corpus info as one JSON object in the last line.
    """
    from realm.corpus.living import add_documents

    with Progress() as progress:
        add_documents(corpus, sources, strict=strict, progress=lambda what, done: progress.count(f"corpus: {what}", done))
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


def corpus_show(corpus: Corpus, document: Annotated[str, tyro.conf.arg(metavar="ID")], /, *, json: bool = False) -> None:
    """The blocks of one document, with the salient spans of each.

    Args:
        corpus: the corpus directory.
        document: the document's id.
        json: print one JSON object as the last line.
    """
    from realm.corpus.blocks import BlockStore
    from realm.errors import DataError

    store = BlockStore.open(corpus)
    rows = [int(row) for row in store.rows_of_document(document) if store.live[row]]
    if not rows:
        raise DataError(f"no document '{document}'", path=corpus, cure="Give the id of a document, not a title.")
    blocks = []
    for row in rows:
        block = store.block(row)
        spans = [block.text[start:end] for start, end in store.spans(row).chars.tolist()]
        blocks.append({"block_id": block.block_id, "title": block.title, "text": block.text, "spans": spans})
    if not json:
        show.blocks(blocks)
    show.last_line({"id": document, "blocks": blocks}, json)


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
    "corpus": "Make and inspect corpora: build, add, info, show.",
    "data": "Check question files: check.",
    "index": "The index of a run: build, info, search.",
    "tagger": "Salient-span taggers: eval, train.",
}
GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    "corpus": {"build": corpus_build, "add": corpus_add, "info": corpus_info, "show": corpus_show},
    "data": {"check": data_check},
    "index": {"build": index_build, "info": index_info, "search": index_search},
    "tagger": {"eval": taggers.tagger_eval, "train": taggers.tagger_train},
}
