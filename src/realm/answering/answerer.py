"""Answers with their evidence: the object that evaluation scores, ``ask`` prints and a server sends."""

import math
import re
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence as SequenceOf
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from realm.answering.questions.answer_kinds import Asked, asked_for
from realm.answering.questions.forms import shown
from realm.answering.reading import read_spans
from realm.answering.records import Answer, Evidence
from realm.documents.store.blocks import Block
from realm.models.runtime.posterior import competing_log_posterior, highest, log_sum_exp, softmax
from realm.models.types import Reading, Spans, TokenIds
from realm.search.blocks import BlockInputs
from realm.search.candidates import Candidates, Source
from realm.text.folding import folded, unbroken
from realm.text.matching.answers import Scoring, is_whole, scoring_of

BATCH_SIZE = 16  # questions answered together
SPANS_KEPT = 64
"""Best spans of a question that are turned into strings; the rest of the mass is too thin to change an answer."""
SPANS_PER_BLOCK = 8  # best spans of a block among which a whole form is looked for
KIND_MISMATCH_WEIGHT = 0.03
"""Weight of a string of another kind than asked for, such as a name after "When".

Chosen on 300 questions of SQuAD's articles that no reader had learnt from.
"""
SIGNS = re.compile(r"(?:^|(?<=[\s\"'“‘(\[{<`]))(--?|[#$@%+~]|\.|(?:~|\.{1,2})?/)$")
MIN_PROBABILITY = 1e-6  # probabilities of answers are clipped to this and 1 minus this


@dataclass(frozen=True)
class Confidence:
    """Calibrated probability that an answer is right: sigmoid(slope * logit(p) + bias), after Platt (1999), of :func:`pooled` p or, fitted
    before that was there, of the string's alone.

    A pointer's p is small if documents state a fact in many ways, though the answer may be right; a temperature, which keeps one half,
    cannot express this.

    >>> round(Confidence(slope=0.5, bias=1.0).of(0.2), 3)
    0.576
    """

    slope: float
    bias: float
    pooled: bool = False

    @classmethod
    def stated(cls, facts: Mapping[str, Any]) -> "Confidence | None":
        """Confidence with the facts' "slope", "bias" and "pooled"; None if nothing was fitted."""
        return None if facts.get("slope") is None else cls(float(facts["slope"]), float(facts["bias"]), bool(facts.get("pooled")))

    def of(self, p: float) -> float:
        """Confidence of an answer with probability p, of the kind that it was fitted to."""
        return sigmoid(self.slope * logit(p) + self.bias)


@dataclass(frozen=True)
class TextSpan:
    """Code points of a text."""

    text: str
    start: int
    end: int

    @property
    def words(self) -> str:
        """The words of the span, on one line."""
        return unbroken(self.text, self.start, self.end)

    def weight(self, asked: Asked | None) -> float:
        """1 for a kind that is asked for, or if any is; ``KIND_MISMATCH_WEIGHT`` for others."""
        return 1.0 if asked is None or asked.answered_by(self.text.replace("\n", " "), self.start, self.end) else KIND_MISMATCH_WEIGHT


@dataclass(frozen=True)
class Best:
    """The best string: the candidate with its best span (-1: none), that span with its probability, the string's, and the pooled one."""

    candidate: int
    p_span: float
    span: TextSpan
    p: float
    pooled: float


def likeliest(choice: Mapping[str, TextSpan], mass: Mapping[str, float], asked: Asked | None) -> str:
    """The string with the most mass weighted by its kind, which is determined for as few strings as possible."""
    best, most = "", -1.0
    for key in sorted(choice, key=lambda key: -mass[key]):
        if mass[key] <= most:
            break
        weighed = mass[key] * choice[key].weight(asked)
        if weighed > most:
            best, most = key, weighed
    return best


def logit(p: float) -> float:
    """log(p / (1 - p)), p clipped by ``MIN_PROBABILITY``."""
    p = min(max(p, MIN_PROBABILITY), 1.0 - MIN_PROBABILITY)
    return math.log(p / (1.0 - p))


def sigmoid(z: float) -> float:
    """The probability with log-odds z."""
    return 1.0 / (1.0 + math.exp(-z))


def pooled(p: float, p_place: float, p_any: float) -> float:
    """Pool the odds of an answer's string, of its place, and of any answer: the probability with their geometric mean.

    "The first Tuesday" and "first Tuesday of each month" take from each other's p and share their place; where "not here" has most, neither
    is sure. Fitted to 2,006 answers over manuals and articles the three weigh nearly alike.

    >>> round(pooled(0.2, 0.5, 0.8), 3)
    0.5
    """
    return sigmoid((logit(p) + logit(p_place) + logit(p_any)) / 3)


def cited(block: Block, p_z: float, p_span: float, start: int, end: int) -> Evidence:
    """Evidence from a block, with the answer at code points [start, end)."""
    answer, headings = unbroken(block.text, start, end), (block.heading(start), block.heading())
    about = block.doc_id, block.block_id, block.title, block.text, p_z, p_span, answer, start, end, block.char_start
    return Evidence(*about, (), block.media, (), *headings)


class ReadBlocks:
    """Blocks read for one question, each opened once, with the characters of their wordpieces.

    A question's best spans lie in few sentences; only these are tokenised again for their offsets."""

    def __init__(self, inputs: BlockInputs):
        self._store = inputs.store
        self._blocks: dict[int, Block] = {}
        self._sentences: dict[int, tuple[list[list[int]], list[list[int]], list[int]]] = {}
        self._offsets: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def block(self, row: int) -> Block:
        """The block at a row."""
        if row not in self._blocks:
            self._blocks[row] = self._store.block(row)
        return self._blocks[row]

    def span(self, row: int, start: int, end: int) -> TextSpan:
        """Characters of a block's body wordpieces [start, end), with signs that open a name: ``--force``, ``#mutt``."""
        text, first, last = self.block(row).text, self._character(row, start)[0], self._character(row, end - 1)[1]
        return TextSpan(text, found.start(1) if (found := SIGNS.search(text, max(0, first - 4), first)) else first, last)

    def _character(self, row: int, wordpiece: int) -> tuple[int, int]:
        if row not in self._sentences:
            table = self._store.sentences(row)
            self._sentences[row] = (table.tokens.tolist(), table.chars.tolist(), table.tokens[:, 1].tolist())
        tokens, chars, ends = self._sentences[row]
        at = bisect_right(ends, wordpiece)
        begin, finish = chars[at]
        if (row, at) not in self._offsets:
            self._offsets[row, at] = self._store.tokenizer.encode_offsets(self.block(row).text[begin:finish])[1]
        offsets = self._offsets[row, at]
        first, last = offsets[min(wordpiece - tokens[at][0], len(offsets) - 1)]
        return begin + first, begin + last


def likeliest_spans(rows: np.ndarray, log_p: np.ndarray, count: int, read: ReadBlocks) -> Iterator[tuple[float, int, TextSpan]]:
    """Yield log-probability, candidate and place of the ``count`` likeliest spans of blocks at rows [k], of log_p [k, t, w]."""
    places = highest(log_p, count)
    where = np.stack(np.unravel_index(places, log_p.shape), 1).tolist()
    for value, (j, start, width) in zip(log_p.ravel()[places].tolist(), where, strict=True):
        if value == float("-inf"):
            return
        yield value, j, read.span(int(rows[j]), start, start + width + 1)


class Answerer:
    """Reads the best blocks of each question and picks the span with the most probability.

    Args:
        source: of candidates.
        reader: that points; ``answering/generative.py`` has the answerer for one that writes.
        versions: params, index and corpus versions, put into every answer.
        confidence: of its answers; None if none was fitted."""

    def __init__(
        self, inputs: BlockInputs, source: Source, reader: Reading | Any, *, versions: dict[str, int], confidence: Confidence | None = None
    ):
        self.inputs = inputs
        self.confidence = confidence
        self.source = source
        self.reader = reader
        self.versions = versions

    def answer(self, questions: SequenceOf[str], *, k: int = 5) -> list[Answer]:
        """Answers in the order of the questions, each from its best k blocks."""
        return [a for at in range(0, len(questions), BATCH_SIZE) for a in self._batch(list(questions[at : at + BATCH_SIZE]), k)]

    def _log_p(self, tokens: list[TokenIds], found: Candidates) -> np.ndarray:
        """Log-probability of every span of every candidate, [b, k, t, w], -inf where there is none.

        With a reader that points p(s|x) = sum over z of p(z|x) p(s|z,x), and the rest is "not here" of all blocks together; if it was
        taught by questions, blocks compete (``posterior.competing_log_posterior``). Others share everything among the spans."""
        spec, spans = self.reader.spec, self._spans(tokens, found)
        relevance = np.where(found.valid, found.scores, -np.inf)
        flat = spans.scores.reshape(*found.rows.shape, -1)
        if spec.pointer and spec.taught:
            log_p = competing_log_posterior(flat, spans.not_here, found.scores, found.valid)
        else:
            joint = flat + relevance[..., None]
            everything = log_sum_exp(relevance if spec.pointer else joint.reshape(len(joint), -1))
            log_p = joint - np.where(np.isfinite(everything), everything, 0)[:, None, None]
        return log_p.reshape(spans.scores.shape)

    def _spans(self, tokens: list[TokenIds], found: Candidates) -> Spans:
        """``read_spans``, [b, k, ...]; linked candidates are each read with a question of their own."""
        if found.via is None:
            return read_spans(self.reader, self.inputs, tokens, found.rows)
        asked, shape = [one for of_question in found.asked for one in of_question], found.rows.shape
        spans = read_spans(self.reader, self.inputs, asked, found.rows.reshape(-1, 1))
        return Spans(*(part.reshape(*shape, *part.shape[2:]) for part in (spans.scores, spans.not_here, spans.valid)))

    def _batch(self, questions: list[str], k: int) -> list[Answer]:
        started = time.perf_counter()
        tokens = self.inputs.store.tokenizer.encode(questions)
        found = self.source.find(questions, tokens, k)
        searched = time.perf_counter()
        p_z = softmax(np.where(found.valid, found.scores, -np.inf))
        answers = self._read(questions, tokens, found, p_z)
        each = 1000 / len(questions)
        seconds = {"embed": found.embed_seconds, "search": searched - started - found.embed_seconds, "read": time.perf_counter() - searched}
        timings = {name: round(value * each, 3) for name, value in seconds.items()}
        timed = [replace(answer, timings_ms=timings) for answer in answers]
        return [answer.along(self._paths(found, i), self._copies(found, i)) for i, answer in enumerate(timed)]

    def _paths(self, found: Candidates, i: int) -> dict[int, tuple[str, ...]]:
        """``Evidence.path`` of the blocks that links led to, by block id."""
        if found.via is None:
            return {}
        pairs = zip(found.via[i].tolist(), found.rows[i].tolist(), strict=True)
        ids = self.inputs.store.block_ids
        return {int(ids[row]): (self._name(via), self._name(row)) for via, row in pairs if row >= 0 and via >= 0}

    def _copies(self, found: Candidates, i: int) -> dict[int, tuple[str, ...]]:
        """``Evidence.also_in`` by block id."""
        store, also = self.inputs.store, dict[int, tuple[str, ...]]()
        for row, others in found.copies[i].items() if found.copies else ():
            names = dict.fromkeys(map(store.doc_id, others))
            names.pop(store.doc_id(row), None)
            also[int(store.block_ids[row])] = tuple(names)
        return also

    def _name(self, row: int) -> str:
        block = self.inputs.store.block(row)
        return block.title or block.doc_id

    def _read(self, questions: list[str], tokens: list[TokenIds], found: Candidates, p_z: np.ndarray) -> list[Answer]:
        """Answers from candidates with p_z [b, k]; their timings are filled in later."""
        log_p = self._log_p(tokens, found)
        return [self._assemble(q, found.rows[i], p_z[i], log_p[i]) for i, q in enumerate(questions)]

    def _assemble(self, question: str, rows: np.ndarray, p_z: np.ndarray, log_p: np.ndarray) -> Answer:
        read = ReadBlocks(self.inputs)
        asked = asked_for(question)
        best = self._best_string(rows, log_p, read, scoring_of(question), asked)
        evidence = {j: self._evidence(int(row), float(p_z[j]), log_p[j], read, asked) for j, row in enumerate(rows) if row >= 0}
        if best.candidate in evidence:
            j, span = best.candidate, best.span
            evidence[j] = cited(read.block(int(rows[j])), float(p_z[j]), best.p_span, span.start, span.end)
        order = sorted(evidence, key=lambda j: (j != best.candidate, -evidence[j].p_span))
        found = Answer(question, best.span.words, best.p, tuple(evidence[j] for j in order), self.versions, {}, pooled=best.pooled)
        sure = None if self.confidence is None else self.confidence.of(best.pooled if self.confidence.pooled else best.p)
        form = shown(question, best.span.text, best.span.start, best.span.end)
        return replace(found, confidence=sure, kind=form.kind, shown=best.span.text[form.start : form.end], said=form.said)

    def _best_string(self, rows: np.ndarray, log_p: np.ndarray, read: ReadBlocks, scoring: Scoring, asked: Asked | None) -> "Best":
        """The string with the most mass over the best spans, in the spelling of its best span, and that mass.

        Spans are one string if ``scoring`` equates them; kinds not asked for are weighted by ``KIND_MISMATCH_WEIGHT``. A string with an
        unclosed bracket, or across sentences, is an answer only if there is no other."""
        mass: dict[str, float] = {}
        spelling: dict[str, TextSpan] = {}
        whole: dict[str, TextSpan] = {}
        found: list[tuple[str, int, TextSpan, float]] = []
        for value, j, place in likeliest_spans(rows, log_p, SPANS_KEPT, read):
            key = scoring.form(folded(place.words)) or place.words
            spelling.setdefault(key, place)
            found.append((key, j, place, float(np.exp(value))))
            if is_whole(place.words):
                whole.setdefault(key, place)
            mass[key] = mass.get(key, 0.0) + found[-1][-1]
        if not found:
            return Best(-1, 0.0, TextSpan("", 0, 0), 0.0, 0.0)
        best = likeliest(whole or spelling, mass, asked)
        span = (whole or spelling)[best]
        candidate = next(j for _, j, place, _ in found if place == span)
        p_span = max(p for key, j, _, p in found if key == best and j == candidate)  # "stop [NAME" may have what "stop [NAME]" shows
        around = [p for key, j, at, p in found if key == best or (j == candidate and at.start < span.end and span.start < at.end)]
        return Best(candidate, p_span, span, min(1.0, mass[best]), pooled(mass[best], sum(around), float(np.exp(log_p).sum())))

    def _evidence(self, row: int, p_z: float, log_p: np.ndarray, read: ReadBlocks, asked: Asked | None) -> Evidence:
        """Evidence from a block with its best whole span, of log_p [t, w] weighted by its kind; nothing is marked where there is none."""
        found = [(float("-inf"), float("-inf"), 0, 0)]
        for value, _, place in likeliest_spans(np.array([row]), log_p[None], SPANS_PER_BLOCK, read):
            whole, weight = is_whole(place.words), place.weight(asked)
            found.append((value + math.log(weight) if whole else float("-inf"), value, place.start, place.end))
            if whole and weight == 1.0:
                break
        _, value, first, last = max(found, key=lambda one: one[:2])
        return cited(read.block(row), p_z, float(np.exp(value)), first, last)
