"""What a corpus holds, and whether its salient spans can teach a retriever anything."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from realm.corpus.store.blocks import BlockStore
from realm.corpus.store.manifest import CorpusManifest, SpanStatistics, read_manifest
from realm.corpus.store.views import Segment

# Below these a retriever finds nothing to learn from: too few masks, or masks that no other block can explain.
FEWEST_SPANS_PER_BLOCK = 0.5
LARGEST_SINGLE_BLOCK_SHARE = 0.9


def span_repetition(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[int, int]:
    """How spans repeat across blocks.

    Args:
        parts: (hashes uint64 [t], blocks int64 [t]) of span occurrences.

    Returns:
        Number of distinct texts; number of occurrences whose text is in one block only.
    """
    hashes = np.concatenate([part[0] for part in parts])
    blocks = np.concatenate([part[1] for part in parts])
    if not len(hashes):
        return 0, 0
    order = np.lexsort((blocks, hashes))
    hashes, blocks = hashes[order], blocks[order]
    starts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    counts = np.diff(np.append(starts, len(hashes)))
    # Sorted by block within a text: first and last block are equal if there is only one.
    single = blocks[starts] == blocks[starts + counts - 1]
    return len(starts), int(counts[single].sum())


def changed_statistics(store: BlockStore, live: np.ndarray, new: Sequence[Segment], old: SpanStatistics) -> SpanStatistics:
    """Span statistics after a change. Only spans whose text occurs in what came or went are gathered, so memory follows the change.

    Args:
        store: the version before.
        live: bool [n], which of its rows stay live.
        new: segments that come.
        old: statistics to bring up to date; ``unaligned`` and ``cut`` are kept.
    """
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

    Counts are of the version in force; ``spans_per_block`` is a mean; ``single_block_span_share`` (0..1) is the share of salient span
    occurrences whose text is in one block only, which retrieval cannot help to predict; ``teaches`` says whether pre-training can
    learn from these spans, ``advice`` what to do if not (None otherwise).

    Raises:
        CorpusError: no corpus here, or a damaged one.
    """
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
        "duplicates": manifest.duplicates,
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
