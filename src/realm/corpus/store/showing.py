"""What ``realm corpus show`` shows of one document: its blocks, and the record it was made of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from realm.corpus.sources import SourceOptions
from realm.corpus.sources.provenance import read_again
from realm.corpus.store.blocks import BlockStore
from realm.corpus.store.manifest import read_manifest
from realm.errors import DataError, RealmError
from realm.text.canonical import canonical_text


def document_blocks(corpus: Path, doc_id: str) -> list[dict[str, Any]]:
    """The live blocks of a document in order, as ``corpus show --json`` has them; offsets of spans count from their sentence.

    Raises:
        CorpusError: no corpus here, or a damaged one.
        DataError: no such document.
    """
    store = BlockStore.open(corpus)
    rows = store.live_rows_of_document(doc_id).tolist()
    if not rows:
        raise DataError(f"no document '{doc_id}'", path=corpus, cure="Give the id of a document, not a title.")
    return [_shown(store, row) for row in rows]


def _shown(store: BlockStore, row: int) -> dict[str, Any]:
    block, spans = store.block(row), store.spans(row)
    sentences = []
    for number, (start, end) in enumerate(store.sentences(row).chars.tolist()):
        inside = spans.chars[spans.sentence == number] - start
        sentences.append({"text": block.text[start:end], "spans": inside.tolist()})
    return {
        "block_id": block.block_id,
        "title": block.title,
        "text": block.text,
        "spans": [block.text[start:end] for start, end in spans.chars.tolist()],
        "sentences": sentences,
        "char_start": block.char_start,
        "source": block.source,
        "line": block.line,
    }


def source_record(corpus: Path, blocks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The record that a document's blocks were made of, read again: path, line, record (None if it cannot be had) and a note.

    The source is read with the options that it was read with at first. The note is one line that says why there is no record, or that
    it has changed since; None if all is as it was.

    Args:
        corpus: the corpus directory.
        blocks: what ``document_blocks`` gave.
    """
    path, line = blocks[0]["source"], blocks[0]["line"]
    options = SourceOptions(**read_manifest(corpus).said_of_source(blocks[0]["block_id"]))
    shown: dict[str, Any] = {"path": path, "line": line, "record": None, "note": None}
    try:
        found = read_again(path, line, options)
    except RealmError as error:
        return shown | {"note": str(error)}
    if found is None:
        return shown | {"note": "the source has no such record any more"}
    text = canonical_text(found.text)
    same = all(text[block["char_start"] :].startswith(block["text"]) for block in blocks)
    note = None if same else "the source has changed since the document was read"
    return shown | {"record": {"id": found.doc_id, "title": found.title, "text": found.text}, "note": note}
