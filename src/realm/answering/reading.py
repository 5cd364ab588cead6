"""Candidates read with their question, each block alone (ORQA, section 4.1): inputs of the pair, and posteriors of its spans.

``pointing.py`` has the same with gradients. A reader that points gives p(y|z,x) as a span of the document, or "not here"."""

from collections.abc import Sequence as SequenceOf

import numpy as np

from realm.documents.store.blocks import SentenceTable
from realm.models.featurize import marked
from realm.models.runtime.posterior import span_log_posterior
from realm.models.spec import ReaderSpec
from realm.models.types import Reading, Sequence, Spans
from realm.search.blocks import BlockInputs

OPENING, QUESTION_MARKS = 4, ("?", "？", "؟")  # wordpieces among which a question's first is looked for: it may be numbered
Body = tuple[SentenceTable, str, np.ndarray]  # sentences, text and wordpieces of a block
Pairs = tuple[np.ndarray, np.ndarray]  # questions and candidates of n pairs, int64 [n] each


def joint_inputs(
    spec: ReaderSpec,
    inputs: BlockInputs,
    questions: SequenceOf[SequenceOf[int]],
    rows: np.ndarray,
    renamings: SequenceOf[np.ndarray | None] | None = None,
) -> tuple[Pairs, list[Sequence], list[int]]:
    """Joint inputs of the candidates that are read, and where their bodies start.

    Args:
        questions: wordpieces of b questions or masked sentences; a reader that points gets a [MASK] behind a question.
        rows: [b, k] rows of the store, below 0 for missing candidates and the null document, which are not read.
        renamings: for each question the substitutes of all wordpieces, for it and its candidates alike; None: none."""
    example, candidate = np.nonzero(rows >= 0)
    if spec.pointer:
        questions = [inputs.featurizer.with_mask(question) for question in questions]
    names = renamings or [None] * len(questions)
    pairs = list(zip(example.tolist(), candidate.tolist(), strict=True))
    if spec.titles:
        placed = [inputs.titled(questions[i], int(rows[i, j])) for i, j in pairs]
    else:
        placed = [(inputs.joint(questions[i], int(rows[i, j])), inputs.featurizer.body_start(questions[i])) for i, j in pairs]
    sequences = [rename(sequence, names[i]) for (sequence, _), (i, _) in zip(placed, pairs, strict=True)]
    starts = [start for _, start in placed]
    if spec.marks:
        sequences = [marked(sequence, start) for sequence, start in zip(sequences, starts, strict=True)]
    return (example, candidate), sequences, starts


def read_spans(reader: Reading, inputs: BlockInputs, questions: SequenceOf[SequenceOf[int]], rows: np.ndarray) -> Spans:
    """Read every candidate with its question; arguments as for :func:`joint_inputs`.

    Returns spans [b, k, t, w], -inf where there is none, and not_here [b, k]: of a reader that points, log p(s|z,x) and log p(none|z,x); of
    others, scores."""
    pairs, sequences, starts = joint_inputs(reader.spec, inputs, questions, rows)
    if not sequences:
        nothing = np.zeros((*rows.shape, 1, reader.spec.max_span), np.float32)
        return Spans(np.full_like(nothing, -np.inf), nothing[:, :, 0, 0], nothing.astype(bool))
    found = reader.read(sequences, starts)
    shape = (*rows.shape, *found.scores.shape[1:])
    spans, valid, not_here = np.full(shape, -np.inf, np.float32), np.zeros(shape, bool), np.zeros(rows.shape, np.float32)
    bodies, sizes = bodies_of(inputs, rows[pairs]), found.scores.shape[1:]
    within = found.valid & within_lines(bodies, *sizes) & ~asked_alike(bodies, [questions[i] for i in pairs[0].tolist()], *sizes)
    spans[pairs], valid[pairs], not_here[pairs] = np.where(within, found.scores, -np.inf), within, found.not_here
    if reader.spec.pointer:
        flat, not_here = span_log_posterior(spans.reshape(*rows.shape, -1), not_here, valid.reshape(*rows.shape, -1))
        spans = flat.reshape(shape)
    return Spans(spans, not_here, valid)


def bodies_of(inputs: BlockInputs, rows: np.ndarray) -> list[Body]:
    return [(inputs.store.sentences(row), inputs.store.block(row).text, inputs.store.token_ids(row)) for row in rows.tolist()]


def within_lines(bodies: SequenceOf[Body], places: int, widths: int) -> np.ndarray:
    """Spans [n, t, w] of blocks that lie on one side of every line end that ends something: no answer crosses it."""
    lines = np.zeros((len(bodies), places + widths), np.int32)
    for at, (table, text, _) in enumerate(bodies):
        chars, tokens = table.chars.tolist(), table.tokens.tolist()
        for (_, behind), (before, _), (_, token) in zip(chars[:-1], chars[1:], tokens[:-1], strict=True):
            lines[at, min(token, places + widths - 1)] += "\n" in text[behind:before]
    lines = lines.cumsum(axis=1)
    return np.stack([lines[:, width : width + places] for width in range(widths)], axis=-1) == lines[:, :places, None]


def asked_alike(bodies: SequenceOf[Body], questions: SequenceOf[SequenceOf[int]], places: int, widths: int) -> np.ndarray:
    """Spans [n, t, w] that touch a question of the block that opens as the one that is asked: what stands below it may answer that."""
    alike = np.zeros((len(bodies), 1 + places + widths), np.int32)
    for at, ((table, text, ids), question) in enumerate(zip(bodies, questions, strict=True)):
        for (_, end), (first, last) in zip(table.chars.tolist(), table.tokens.tolist(), strict=True):
            if text.endswith(QUESTION_MARKS, 0, end) and set(question[:1]) & set(ids[first : min(first + OPENING, last)].tolist()):
                alike[at, 1 + first : 1 + last] = 1
    alike = alike.cumsum(axis=1)
    return np.stack([alike[:, width + 1 : width + 1 + places] for width in range(widths)], axis=-1) > alike[:, :places, None]


def rename(sequence: Sequence, renamed: np.ndarray | None) -> Sequence:
    """The sequence with substituted wordpieces; None changes nothing."""
    return sequence if renamed is None else Sequence(renamed[sequence.ids].tolist(), sequence.segments)
