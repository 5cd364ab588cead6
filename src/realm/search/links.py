"""Answers that are one link away: from the blocks found for a question to the blocks they link to.

A path is a block z1 found for the question x and a neighbour z2. Its score is s(x, z1) + s(x + z1, z2), where x + z1 is the question
followed by the title of z1 and its sentence with most words of the question. The reader reads z2 with x + z1, too, which names its subject.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from realm.documents.neighbours import Neighbours
from realm.search.blocks import NO_ROW, BlockInputs
from realm.search.publishing.snapshot import Snapshot
from realm.text.words import words

LINK_SOURCES = 20  # best blocks of a question whose links are followed
MAX_REACHED = 100  # blocks reached from one question, on the best paths

Embed = Callable[[Sequence[Sequence[int]]], np.ndarray]  # wordpieces of b texts -> their embeddings [b, d] as questions


@dataclass(frozen=True)
class Reached:
    """Blocks that links lead to from the first blocks of one question, best path first."""

    rows: np.ndarray  # int64 [n], no two alike
    via: np.ndarray  # int64 [n], row of z1 on the best path to each
    scores: np.ndarray  # float32 [n], s(x, z1) + s(x + z1, z2)


class LinkedPages:
    """Links over one generation of an index, whose snapshot has the embeddings; blocks ``exclude`` int64 [m] are not reached."""

    def __init__(self, inputs: BlockInputs, snapshot: Snapshot, exclude: np.ndarray | None = None):
        self.inputs, self.snapshot = inputs, snapshot
        self._exclude = np.empty(0, np.int64) if exclude is None else exclude
        self._neighbours = Neighbours(inputs.store)

    def follow(
        self, texts: Sequence[str], questions: Sequence[Sequence[int]], rows: np.ndarray, scores: np.ndarray, embed: Embed
    ) -> list[Reached]:
        """Blocks reached from each of b questions, given as texts and as wordpieces; ``embed`` is called once.

        ``rows`` int64 [b, f] are the blocks z1 of each, NO_ROW if missing, with ``scores`` float [b, f], s(x, z1)."""
        starts = [(i, int(row), float(score)) for i in range(len(texts)) for row, score in zip(rows[i], scores[i], strict=True) if row >= 0]
        ends = [self.ends(row) for _, row, _ in starts]
        led = [at for at, (found, _) in enumerate(ends) if len(found)]  # a block that leads nowhere needs no embedding
        if not led:
            return [_best([]) for _ in texts]
        queries = embed([self.extended(texts[starts[at][0]], questions[starts[at][0]], starts[at][1]) for at in led])
        paths: list[list[tuple[np.ndarray, np.ndarray, int]]] = [[] for _ in texts]
        for at, query in zip(led, queries, strict=True):
            i, row, score = starts[at]
            found, places = ends[at]
            paths[i].append((found, score + np.asarray(self.snapshot.vectors[places], np.float32) @ query, row))
        return [_best(one) for one in paths]

    def ends(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the blocks that the block at ``row`` links to, and their places among the embeddings, both int64 [n]."""
        found = self._neighbours.of_row(row)
        ids, known = self.inputs.store.block_ids[found], self.snapshot.block_ids
        places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        here = (known[places] == ids) & ~np.isin(ids, self._exclude)
        return found[here], places[here]

    def extended(self, text: str, question: Sequence[int], row: int) -> list[int]:
        """Wordpieces of x + z1, not cut to a question's length; of x alone if ``row``, that of z1, is NO_ROW."""
        if row == NO_ROW:
            return list(question)
        store = self.inputs.store
        table, block, asked = store.sentences(row), store.block(row), set(words(text))
        shared = [len(asked.intersection(words(block.text[start:end]))) for start, end in table.chars.tolist()]
        if not shared:
            return [*question, *store.title_ids(row).tolist()]
        start, end = table.tokens[int(np.argmax(shared))].tolist()
        return [*question, *store.title_ids(row).tolist(), *store.token_ids(row)[start:end].tolist()]


def _best(paths: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> Reached:
    """The best path to each block, of these the best ``MAX_REACHED``, from ``paths``: of each z1 its ends, scores and row."""
    if not paths:
        return Reached(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    rows = np.concatenate([found for found, _, _ in paths])
    scores = np.concatenate([values for _, values, _ in paths]).astype(np.float32)
    via = np.repeat([row for _, _, row in paths], [len(found) for found, _, _ in paths])
    order = np.argsort(-scores, kind="stable")
    _, first = np.unique(rows[order], return_index=True)
    kept = order[np.sort(first)[:MAX_REACHED]]
    return Reached(rows[kept], via[kept], scores[kept])


def merged(rows: np.ndarray, scores: np.ndarray, reached: Reached, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The k candidates of one question, its own blocks and linked ones taking turns, each block once.

    Its own are ``rows`` int64 [f], best first, NO_ROW at the end, with ``scores`` float [f]; a linked block has the mean score of its path,
    comparable with s(x, z). Returns rows int64 [k], NO_ROW at the end; scores float32 [k], 0 there; the row of z1 int64 [k], NO_ROW for own
    blocks."""
    found = [(int(row), float(score), NO_ROW) for row, score in zip(rows, scores, strict=True) if row >= 0]
    linked = zip(reached.rows.tolist(), (reached.scores / 2).tolist(), reached.via.tolist(), strict=True)
    chosen: dict[int, tuple[float, int]] = {}
    own, others = iter(found), iter(linked)
    turns = [own, others]
    while turns and len(chosen) < k:
        turn = turns.pop(0)
        fresh = next((one for one in turn if one[0] not in chosen), None)
        if fresh is not None:
            chosen[fresh[0]] = fresh[1:]
            turns.append(turn)
    out = np.full(k, NO_ROW, np.int64), np.zeros(k, np.float32), np.full(k, NO_ROW, np.int64)
    for at, (row, (score, via)) in enumerate(chosen.items()):
        out[0][at], out[1][at], out[2][at] = row, score, via
    return out
