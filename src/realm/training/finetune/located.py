"""Places of answers in the corpus, located once for all stages and ranks; blocks of which it is known whether they answer.

"When was the bridge built?" names no bridge: such a question is judged within the documents that it was asked about, and those of the same
title. A reader that learns "not here" for all other bridges abstains on the right one, too."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import regex
from torch import Tensor

from realm.documents.store.blocks import BlockStore
from realm.evaluation import places
from realm.evaluation.measures import gold_rows
from realm.evaluation.places import Spans
from realm.models.reader import SpanScores
from realm.models.types import Question
from realm.storage.arrays import keep_array, kept_array
from realm.text.matching.patterns import PatternSearch, compiled_pattern
from realm.text.words import words
from realm.training.context import StageContext
from realm.training.loop.distributed import on_first

NAMED, NAMED_CHARS = 5, 80
"""Skipped patterns that are named, and characters of each."""


@dataclass(frozen=True)
class Located:
    """Questions that have an answer to look for.

    ``spans`` are places that count by ``finetune.evidence``, ``elsewhere`` the others, neither right nor wrong; ``named``: whether named
    documents decide it; ``skipped`` patterns by reason, "invalid" and "slow"."""

    questions: list[Question]
    spans: list[Spans]
    elsewhere: list[Spans]
    named: list[bool]
    skipped: dict[str, tuple[str, ...]]


def locate_answers(context: StageContext, everyone: list[Question]) -> Located:
    """Locate each question's answers: strings by normalised words, patterns wherever they match.

    Kept in ``RUN/answers`` under a hash of corpus and answers; damaged files are rebuilt. The first rank locates, the others read."""
    invalid = _distinct(everyone, lambda pattern: compiled_pattern(pattern) is None)
    questions = [q for q in everyone if q.answer_type == "string" or not set(q.answers) <= set(invalid)]
    store = context.store
    answers = [[q.answer_type, *q.answers] for q in questions]
    known = [store.manifest.corpus_id, store.version, store.manifest.tokenizer_sha256, answers]
    key = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    path = context.paths.answers / f"{key}.npy"

    def locate() -> None:
        if kept_array(path) is None:
            search = PatternSearch()
            found = places.locate_answers(store, questions, search, partial(context.count, "answers: blocks searched"))
            numbers = np.repeat(np.arange(len(found), dtype=np.int32), [len(spans.table) for spans in found])
            slow = _distinct(questions, search.gave_up)
            _name(context, "do not compile", invalid)
            _name(context, "took too long and were given up", slow)
            table = np.column_stack([numbers, np.concatenate([np.empty((0, 3), np.int32), *(spans.table for spans in found)])])
            keep_array(path, table, slow=slow)

    on_first(locate)
    kept = kept_array(path)
    assert kept is not None, path
    table, slow = kept[0], tuple(kept[1]["slow"])
    edges = np.searchsorted(table[:, 0], np.arange(len(questions) + 1)).tolist()
    spans = [Spans(table[start:end, 1:]) for start, end in pairwise(edges)]
    counting = [counting_places(context, question, found) for question, found in zip(questions, spans, strict=True)]
    right, other, named = [r for r, _, _ in counting], [o for _, o, _ in counting], [n for _, _, n in counting]
    return Located(questions, right, other, named, {"invalid": invalid, "slow": slow})


def counting_places(context: StageContext, question: Question, found: Spans) -> tuple[Spans, Spans, bool]:
    """Places that count by ``finetune.evidence``, the others, and whether named documents decide it.

    All count if the question names no document of the corpus, or none in which an answer can be marked."""
    nowhere = Spans(found.table[:0])
    if context.recipe.finetune.evidence == "anywhere" or not question.positive_ids:
        return found, nowhere, False
    named = np.isin(found.table[:, 0], gold_rows(context.store, question))
    markable = found.table[:, 1] >= 0
    if not (named & markable).any():
        return found, nowhere, False
    return Spans(found.table[named]), Spans(found.table[~named]), True


def _distinct(questions: list[Question], holds: Callable[[str], bool]) -> tuple[str, ...]:
    """The patterns among the answers of which something holds."""
    return tuple(sorted(pattern for pattern in {a for q in questions if q.answer_type == "regex" for a in q.answers} if holds(pattern)))


def _name(context: StageContext, problem: str, patterns: tuple[str, ...]) -> None:
    if patterns:
        shown = "   ".join(pattern[:NAMED_CHARS] for pattern in patterns[:NAMED])
        context.say(f"answers: {len(patterns)} patterns {problem}, and are skipped: {shown}{'   ...' if len(patterns) > NAMED else ''}")


_NAME = regex.compile(r"(?<=\s)[^\s\p{L}\p{N}]*[\p{Lu}\p{N}]")
"""A word that begins with a capital letter or a digit, but for the first."""


class Subjects:
    """Subjects of questions; one without documents of its own, or of documents without a title, is judged in every block."""

    def __init__(self, store: BlockStore, questions: Sequence[Question]):
        self._store = store
        self._within = [_titles(store, question) for question in questions]

    def known(self, items: Sequence[int], rows: np.ndarray) -> np.ndarray:
        """Bool [b, k]: the blocks of rows [b, k] that answer a question or do not, as it is asked. NO_ROW is neither."""
        return np.array([[self._tells(item, row) for row in found] for item, found in zip(items, rows.tolist(), strict=True)])

    def _tells(self, item: int, row: int) -> bool:
        within = self._within[item]
        return row >= 0 and (within is None or self._store.block(row).title in within)


def _titles(store: BlockStore, question: Question) -> frozenset[str] | None:
    """Titles of the documents that a question is judged in; None: in all."""
    rows = [rows[0] for name in question.positive_ids if len(rows := store.rows_of_document(name))]
    titles = frozenset(store.block(int(row)).title for row in rows)
    return titles if titles and all(titles) and not names_subject(question.text, titles) else None


def names_subject(question: str, titles: frozenset[str]) -> bool:
    """Tell whether a question names its subject: a name, a number, or more than half of the words of its document's title."""
    asked = set(words(question))
    return bool(_NAME.search(question)) or any(2 * len(asked & named) > len(named) for title in titles if (named := set(words(title))))


def presence_scores(spans: SpanScores, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of a reader that points: of a block's spans together and of "not here", [b, k] each; 0 where there are no spans."""
    here = spans.logits.flatten(2).masked_fill(~spans.valid.flatten(2), float("-inf")).logsumexp(-1) - relevance
    return here.masked_fill(~blocks_read(spans), 0.0), spans.not_here


def blocks_read(spans: SpanScores) -> Tensor:
    """The blocks that have spans, [b, k]."""
    return spans.valid.flatten(2).any(-1)
