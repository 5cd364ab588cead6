"""Tools that an agent can call over a run or over documents: answers that a model's context has room for, with the cursor of the rest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from realm.answering.levels import CLOSEST, NOTHING
from realm.answering.opening import OpenRun, open_run
from realm.answering.records import DocumentBlock, Evidence, Explanation, Record
from realm.documents.store.blocks import Block
from realm.errors import CorpusError, DataError, RunError, SnapshotError
from realm.progress import Progress
from realm.runs.cached import follow_documents, open_cached
from realm.serve.serving import networks_seen
from realm.serve.shapes import LIMITS, Request, Text
from realm.storage.layout import RunPaths
from realm.text.lines import canonical_line

MOST_CHARS = 24_000
"""Characters of text in one answer: about 6,000 tokens."""
INSIDE = 2**32
"""A cursor counts blocks below it, and from it on the answers that the first of them has filled."""
NOT_HERE = "not here"
Few = Annotated[int, Field(ge=1, le=20)]
Cursor = Annotated[int, Field(ge=0, le=2**53, description="`next` of the answer before; 0 begins")]


class Position(Progress):
    """Counts of what is being indexed, for those who wait for it, beside what is written on standard error."""

    def __init__(self) -> None:
        super().__init__(says=False)
        self._counts: dict[str, int] = {}
        self.line = ""

    @property
    def done(self) -> int:
        """Things done of every kind together; it only rises."""
        return sum(self._counts.values())

    def count(self, stage: str, done: int, total: int | None = None, *, after: float = 0.0) -> None:
        self._counts[stage] = max(done, self._counts.get(stage, 0))
        self.line = f"{stage} {done:,}" if total is None else f"{stage} {done:,} of {total:,}"
        super().count(stage, done, total, after=after)


class Place:
    """A run, or documents in the cache, as they are now. For one thread."""

    def __init__(self, run: Path | None, documents: Sequence[Path], body: str, note: Callable[[str], None]):
        self._run, self._documents, self._body, self._note = run, documents, body, note
        self._opened: OpenRun | None = None
        self._networks: tuple[Any, ...] = ()
        self.position = Position()

    def current(self) -> OpenRun:
        """Open what is asked, or bring it up to date with what has changed on disk. Raises RealmError: it cannot be opened now."""
        with self.position:
            try:
                self._opened = self._newest()
            except (CorpusError, SnapshotError, RunError):  # what was open is gone, or another process is at work on it
                self._opened = None
                self._opened = self._newest()
        return self._opened

    def _newest(self) -> OpenRun:
        opened = self._opened
        if self._run is not None:
            seen = networks_seen(RunPaths(self._run))
            if opened is None or seen != self._networks or opened.inputs.store.changed():
                opened, self._networks = open_run(self._run), seen
        elif opened is None:
            opened = open_cached(self._documents, self._body, self.position, self._note)
        elif follow_documents(opened.paths.root) or opened.inputs.store.changed():
            opened, _ = opened.with_added(lambda done, of: self.position.count("index: blocks", done, of))
        return opened


class SearchCall(Request):
    """A question, or any text, and how many blocks a page has."""

    text: Text
    k: Few = 5
    cursor: Cursor = 0


class AskCall(Request):
    """A question, and how many blocks are read for it."""

    question: Text
    k: Few = 5


class ReadCall(Request):
    """The id of a document, read from the cursor on; or the id of a block, read with those around it."""

    document: Annotated[str, Field(max_length=LIMITS.id_chars)] = ""
    block: Annotated[int, Field(ge=0, le=2**53)] | None = None
    around: Annotated[int, Field(ge=0, le=10, description="blocks before it and after it")] = 2
    cursor: Cursor = 0

    @model_validator(mode="after")
    def _one_place(self) -> "ReadCall":
        if bool(self.document.strip()) == (self.block is not None):
            raise ValueError("give a document or a block")
        return self


class ExplainCall(Request):
    """A sentence in which each [MASK] stands for a whole span, and the hidden spans if they are known. k counts the null document."""

    text: Text
    targets: Annotated[list[Text], Field(max_length=8, default_factory=list)]
    k: Few = 8


@dataclass(frozen=True)
class FoundBlock(Record):
    """A block of a document; ``start`` and ``end`` count the document's characters, ``score`` is the inner product of the embeddings."""

    doc_id: str
    block_id: int
    title: str
    start: int
    end: int
    text: str
    score: float
    heading: str


@dataclass(frozen=True)
class Found(Record):
    """Blocks, best first; ``next`` is the cursor of the page after this one."""

    blocks: list[FoundBlock]
    next: int | None


@dataclass(frozen=True)
class Told(Record):
    """An answer, or "not here", with the evidence that was read. ``confidence`` is p where none was calibrated; ``shown`` is the sentence
    or the list that holds the answer, ``said`` yes or no; ``left_out`` counts evidence that there was no room for."""

    level: str
    answer: str
    confidence: float
    said: str
    shown: str
    evidence: list[Evidence]
    left_out: int


@dataclass(frozen=True)
class Page(Record):
    """Blocks of a document in its order; ``next`` is the cursor of the page after this one."""

    doc_id: str
    title: str
    blocks: list[DocumentBlock]
    next: int | None


def search(opened: OpenRun, call: SearchCall) -> Found:
    """Find blocks near a text: the document, offsets and score of each. Reads nothing and answers nothing."""
    depth, at = min(LIMITS.k, opened.searchable), call.cursor % INSIDE  # always as deep, so that one page follows another
    hits = opened.search(call.text, depth)[at : at + call.k] if depth else ()
    blocks, following = _shown([opened.inputs.store.block(_row(opened, hit.block_id)) for hit in hits], call.cursor, depth)
    found = [
        FoundBlock(b.doc_id, b.block_id, b.title, b.char_start, b.char_start + len(b.text), b.text, hit.score, b.heading())
        for b, hit in zip(blocks, hits, strict=False)
    ]
    return Found(found, following)


def ask(opened: OpenRun, call: AskCall) -> Told:
    """Answer a question from the documents, with evidence; the answer is "not here" where they do not answer it. ``level``: answer,
    probably, or without a claim: closest (the evidence comes near), nothing (no document is about that)."""
    found = opened.answers([call.question], call.k)[0]
    nothing = found.level in (CLOSEST, NOTHING)
    answer, said, shown = (NOT_HERE, "", "") if nothing else (found.answer, found.said, found.shown)
    room = _room([evidence.text for evidence in found.evidence])
    evidence = list(map(_cut, found.evidence[:room]))
    return Told(found.level, answer, found.sureness, said, shown, evidence, len(found.evidence) - room)


def read(opened: OpenRun, call: ReadCall) -> Page:
    """Read a document block by block, or the blocks around one that search or ask have named."""
    store = opened.inputs.store
    if call.block is None:
        rows = store.live_rows_of_document(canonical_line(call.document)).tolist()
        if not rows:
            raise DataError(f"no document has the id {call.document!r}", cure="Take one from search, or from the list of resources.")
    else:
        row = _row(opened, call.block)
        rows = store.live_rows_of_document(store.doc_id(row)).tolist()
        at = rows.index(row)
        rows = rows[max(0, at - call.around) : at + call.around + 1]
    blocks, following = _shown([store.block(row) for row in rows[call.cursor % INSIDE :]], call.cursor, len(rows))
    shown = [DocumentBlock(block.block_id, block.text, block.char_start, block.media) for block in blocks]
    first = store.block(rows[0])
    return Page(first.doc_id, first.title, shown, following)


def explain(opened: OpenRun, call: ExplainCall) -> Explanation:
    """Say which documents help to fill each [MASK] of a sentence: p(z|x), p(y|z,x), gradient and utility of each."""
    found = opened.explain(call.text, targets=call.targets, k=call.k)
    return replace(found, candidates=found.candidates[: _room([candidate.text for candidate in found.candidates])])


def _room(texts: Sequence[str]) -> int:
    """Number of the first texts that fit into an answer; one does in any case, and is cut."""
    total = np.cumsum([len(text) for text in texts])
    return max(int((total <= MOST_CHARS).sum()), min(1, len(texts)))


def _cut(evidence: Evidence) -> Evidence:
    """Evidence with as much of its text as there is room for, that of its span included."""
    left = max(0, evidence.end - MOST_CHARS)
    text, start, end = evidence.text[left : left + MOST_CHARS], evidence.start - left, evidence.end - left
    return replace(evidence, text=text, start=start, end=end, doc_start=evidence.doc_start + left)


def _shown(blocks: list[Block], cursor: int, of: int) -> tuple[list[Block], int | None]:
    """As many of the blocks at a cursor as fit into an answer, and the cursor of the rest, which may stand inside a block."""
    before, at = cursor // INSIDE * MOST_CHARS, cursor % INSIDE
    if blocks:
        first, *others = blocks
        blocks = [replace(first, text=first.text[before : before + MOST_CHARS], char_start=first.char_start + before), *others]
        if len(first.text) > before + MOST_CHARS:
            return blocks[:1], cursor + INSIDE
    room = _room([block.text for block in blocks])
    return blocks[:room], at + room if at + room < of else None


def _row(opened: OpenRun, block_id: int) -> int:
    wanted = np.array([block_id], np.int64)
    if not opened.inputs.store.is_live(wanted)[0]:
        raise DataError(f"no block has the id {block_id}", cure="Search again: its document was changed or removed.")
    return int(opened.inputs.store.rows_of(wanted)[0])
