"""Facts about a corpus: its files, whether its salient spans can teach a retriever anything; and one document of it, as shown."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np

from realm.documents.pages.pictures import is_caption
from realm.documents.records import GONE, NO_DOCUMENTS, PARTLY_USED
from realm.documents.sources.reading import files_below, source_name
from realm.documents.store.blocks import BlockStore
from realm.documents.store.manifest import REJECTED_FILE, CorpusManifest, SpanStatistics, read_manifest
from realm.documents.store.views import Segment
from realm.errors import CorpusError, DataError
from realm.storage.files import json_value

LISTED = 1000
"""Rejected records among which whole files are named one by one."""
# Below these a retriever finds nothing to learn from: too few masks, or masks that no other block can explain.
FEWEST_SPANS_PER_BLOCK = 0.5
LARGEST_SINGLE_BLOCK_SHARE = 0.9


def span_repetition(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[int, int]:
    """Repetition of spans across blocks: the number of distinct texts, and of occurrences whose text is in one block only. ``parts`` are
    (hashes uint64 [t], blocks int64 [t]) of span occurrences."""
    hashes = np.concatenate([part[0] for part in parts])
    blocks = np.concatenate([part[1] for part in parts])
    if not len(hashes):
        return 0, 0
    order = np.lexsort((blocks, hashes))
    hashes, blocks = hashes[order], blocks[order]
    starts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    counts = np.diff(np.append(starts, len(hashes)))
    # Sorted by block within a text: first and last block are equal if there is only one.
    return len(starts), int(counts[blocks[starts] == blocks[starts + counts - 1]].sum())


def changed_statistics(store: BlockStore, live: np.ndarray, new: Sequence[Segment], old: SpanStatistics) -> SpanStatistics:
    """Span statistics ``old``, of ``store``, after a change that leaves the rows in ``live`` (bool [n]) and brings the segments in ``new``.
    Only spans whose text occurs in what came or went are gathered, so memory follows the change."""
    gone = np.flatnonzero(store.live & ~live)
    starts = accumulate((segment.rows for segment in new), initial=len(store))
    came = [segment.flat("span_hashes", start) for segment, start in zip(new, starts, strict=False)]
    touched = np.unique(
        np.concatenate([np.empty(0, np.uint64), *(store.span_hashes(row) for row in gone.tolist()), *(hashes for hashes, _ in came)])
    )
    if not len(touched):
        return old
    hashes, rows = store.span_occurrences(touched)
    was, stays = store.live[rows], live[rows]
    before = span_repetition([(hashes[was], rows[was])])
    after = span_repetition([(hashes[stays], rows[stays]), *came])
    return replace(old, distinct=old.distinct + after[0] - before[0], single_block=old.single_block + after[1] - before[1])


def corpus_info(corpus: Path) -> dict[str, Any]:
    """The object that ``realm corpus info --json`` prints.

    ``spans_per_block`` is a mean; ``single_block_span_share`` (0..1) is the share of salient span occurrences whose text is in one block
    only, which retrieval cannot help to predict; ``teaches`` says whether pre-training can learn from these spans, ``advice`` the cure if
    not. Raises CorpusError: no corpus here, or a damaged one."""
    manifest = read_manifest(Path(corpus))
    share = manifest.span_statistics.single_block / max(manifest.spans, 1)
    advice = _advice(manifest, share)
    return {
        "documents": manifest.documents,
        "blocks": manifest.blocks,
        "spans": manifest.spans,
        "version": manifest.version,
        "segments": len(manifest.segments),
        "removed": manifest.removed,
        "rejected": manifest.rejected,
        "not_read": unread_files(corpus),
        "spans_per_block": manifest.spans / max(manifest.blocks, 1),
        "single_block_span_share": share,
        "tokens": manifest.tokens,
        "vocab_size": manifest.vocab_size,
        "block_length": manifest.block_length,
        "teaches": advice is None,
        "advice": advice,
    }


def _advice(manifest: CorpusManifest, single_block_share: float) -> str | None:
    if manifest.blocks < 2:
        return "One block leaves nothing to retrieve: add documents, or build with a smaller block length"
    if manifest.spans < FEWEST_SPANS_PER_BLOCK * manifest.blocks:
        return "Few salient spans were found: give a gazetteer with the names and terms that matter in these documents"
    if single_block_share > LARGEST_SINGLE_BLOCK_SHARE:
        return "Nearly every salient span is in one block only, so no other block helps to predict it: add documents on the same subjects"
    return None


def unread_files(corpus: Path) -> list[dict[str, str]]:
    """The files of which nothing was read, {"path", "reason"} each, among the first ``LISTED`` rejected records."""
    rows = (row for row in islice(rejected_records(corpus), LISTED) if not row["line"] and row["reason"] not in PARTLY_USED)
    return [{"path": row["path"], "reason": row["reason"]} for row in rows]


def files_account(corpus: Path, sources: Sequence[Path], unknown: str = NO_DOCUMENTS) -> dict[str, Any]:
    """Account of the files that the sources hold: {"files", "read", "not_read": [{"path", "reason"}]}, the first the sum of the others; and
    "left_out": [{"path", "line", "reason"}], records of those read, among the first ``LISTED``. ``unknown``: the reason for a file that the
    corpus does not know. Raises CorpusError: no corpus here, or a damaged one."""
    used = {os.path.normpath(path) for path in BlockStore.open_even_empty(corpus).sources()}
    rejected = list(rejected_records(corpus))
    reasons = {row["path"]: row["reason"] for row in rejected}
    files, not_read = 0, []
    for source in sources:
        for found in files_below(source) if source.is_dir() else [source]:
            path, reason = (found, "") if isinstance(found, Path) else (Path(found.path), found.reason)
            name = source_name(str(path))
            files += 1
            if os.path.normpath(name) not in used and not (not reason and is_caption(path)):
                not_read.append({"path": name, "reason": reason or reasons.get(name, unknown if path.exists() else GONE)})
    whole = {file["path"] for file in not_read}
    left_out = [row for row in rejected if row["path"] not in whole][:LISTED]
    return {"files": files, "read": files - len(not_read), "not_read": not_read, "left_out": left_out}


def rejected_records(corpus: Path) -> Iterator[dict[str, Any]]:
    """Records that were left out when the sources were read last: {"path", "line", "reason"} each."""
    try:
        with open(path := corpus / REJECTED_FILE, encoding="utf-8", errors="replace") as lines:
            yield from map(json_value, lines)
    except ValueError as error:
        raise CorpusError(f"damaged: {error}", path=path, cure="No command needs it: remove it, or leave it.") from error


def document_blocks(corpus: Path, doc_id: str) -> list[dict[str, Any]]:
    """The live blocks of a document in order, as ``corpus show --json`` has them; offsets of spans count from their sentence. Raises
    CorpusError: no corpus here, or a damaged one; DataError: no such document."""
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
        "lang": store.language(row),
        "media": block.media,
    }
