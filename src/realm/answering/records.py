"""Records of answers, searches and documents, shared by the Python API, the server and ``--json``.

As JSON a record has the names of its fields, lists for tuples, and null for numbers that are not finite. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


class Record:
    """Base of all records: a frozen dataclass that becomes JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON's own types."""
        return {name: plain(value) for name, value in vars(self).items()}


def plain(value: Any) -> Any:
    """Convert a record, or a list or dictionary of records, to JSON's own types."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return {name: plain(item) for name, item in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True)
class Versions(Record):
    """Versions of parameters, index and corpus behind a response."""

    params: int
    index: int
    corpus: int


@dataclass(frozen=True)
class Evidence(Record):
    """A block that was read, with its relevance and the best answer in it.

    ``start`` and ``end`` are code-point offsets in ``text`` of ``answer``, which is on one line; ``doc_start`` is that of ``text`` in its
    document. ``p_z`` is the softmax of relevance over the blocks read, ``p_span`` the probability of the block's best span among all spans.
    ``path`` has the titles (or ids) of the page found and of this one if a link led here; ``media`` is the block's picture
    (``corpus.pictures``), empty for text. ``also_in`` has the ids of other documents that hold a copy or a version of the text,
    ``heading`` the folders and headings above the answer, ``text_heading`` those that ``text`` begins under.

    >>> found = Evidence("d", 7, "Tower", "Built by Eiffel.", 0.9, 0.6, "Eiffel", 9, 15, doc_start=0)
    >>> found.text[found.start : found.end]
    'Eiffel'
    """

    doc_id: str
    block_id: int
    title: str
    text: str
    p_z: float
    p_span: float
    answer: str
    start: int
    end: int
    doc_start: int
    path: tuple[str, ...] = ()
    media: str = ""
    also_in: tuple[str, ...] = ()
    heading: str = ""
    text_heading: str = ""


@dataclass(frozen=True)
class Claim(Record):
    """A sentence of a language model, the evidence it cites, by number from 1, and whether that holds its words and numbers."""

    text: str
    cites: tuple[int, ...]
    supported: bool


@dataclass(frozen=True)
class Answer(Record):
    """An answer, spelled as in the documents, with the block that carries it first in ``evidence``, the others by ``p_span``.

    ``p`` is the probability of all spans with the same normalised string; "not here" has a part of it with a reader that points.
    ``pooled`` is that of the string, its place and any answer together (``answerer.pooled``), of which ``confidence`` is calibrated.
    ``confidence`` is the calibrated probability that the answer is right, or None. ``timings_ms`` are "embed", "search" (with tokenising)
    and "read", each the question's share of its batch. ``kind`` is the form that is asked for ("span", "sentence", "list", "yes_no"),
    ``shown`` the sentence or list that holds the answer, ``said`` "yes" or "no" if it says so. ``level`` is how much is claimed ("answer",
    "probably", "closest", "nothing"); in the last two it ``abstained``, and ``answer`` is the best guess. ``prose`` is a language model's,
    if one was named; ``note`` says why there is none.

    >>> answer = Answer("Who built it?", "Eiffel", 0.4, (), {"params": 1, "index": 1, "corpus": 1}, {})
    >>> answer.sureness
    0.4
    """

    question: str
    answer: str
    p: float
    evidence: tuple[Evidence, ...]
    versions: dict[str, int]
    timings_ms: dict[str, float]
    confidence: float | None = None
    abstained: bool = False
    kind: str = "span"
    shown: str = ""
    said: str = ""
    level: str = "answer"
    prose: tuple[Claim, ...] = ()
    note: str = ""
    pooled: float = 0.0

    @property
    def sureness(self) -> float:
        """The confidence, or p without calibration."""
        return self.p if self.confidence is None else self.confidence

    def along(self, paths: Mapping[int, tuple[str, ...]], copies: Mapping[int, tuple[str, ...]]) -> "Answer":
        """Return this answer with the path to each of its evidence and the documents that hold a copy of it, by block id."""
        found = (replace(one, path=paths.get(one.block_id, ()), also_in=copies.get(one.block_id, ())) for one in self.evidence)
        return replace(self, evidence=tuple(found))


@dataclass(frozen=True)
class Hit(Record):
    """A block found by search; ``score`` is the inner product of the embeddings, even if other scores order the blocks.

    ``media`` is the block's picture, empty for text; ``heading`` has the folders and headings that it begins under.

    >>> Hit("d", 7, "Tower", "Built in 1889.", 1.5).to_dict()["score"]
    1.5
    """

    doc_id: str
    block_id: int
    title: str
    text: str
    score: float
    media: str = ""
    heading: str = ""


@dataclass(frozen=True)
class Prediction(Record):
    """A filling of the masks, and its joint probability. Spans of several masks are joined by " | "."""

    text: str
    p: float


@dataclass(frozen=True)
class DocumentEffect(Record):
    """Effect of one document on a masked sentence; as JSON, null stands for numbers that are not finite.

    ``r`` is the gradient of log p(y|x) by f(x,z) (REALM, section 3.3), ``utility`` log p(y|z,x) - log p(y|null,x) (equation 3), None if the
    null document was not read.

    >>> DocumentEffect(7, "Tower", "Built by Eiffel.", null=False, p_z=0.5, p_y_given_z=0.8, r=0.1, utility=2.0).to_dict()["utility"]
    2.0
    """

    block_id: int
    title: str
    text: str
    null: bool
    p_z: float
    p_y_given_z: float
    r: float | None
    utility: float | None


@dataclass(frozen=True)
class Explanation(Record):
    """One masked sentence explained: ``p_y`` is the sum over ``candidates``, the null document first, of p_z * p_y_given_z.

    ``targets`` are the explained spans, one for each [MASK]: the caller's, or the most probable ones. ``excluded`` blocks were not
    retrieved. ``predictions`` are the best strings for the same masked input, or for all lengths if no target was given.

    >>> found = Explanation("By [MASK].", ("Eiffel",), 0.4, 0.1, (), predictions=(Prediction("Eiffel", 0.4),), candidates=())
    >>> found.to_dict()["predictions"]
    [{'text': 'Eiffel', 'p': 0.4}]
    """

    text: str
    targets: tuple[str, ...]
    p_y: float
    p_y_null: float
    excluded: tuple[int, ...]
    predictions: tuple[Prediction, ...]
    candidates: tuple[DocumentEffect, ...]


@dataclass(frozen=True)
class AnswerResponse(Record):
    """Answers in the order of the questions."""

    answers: list[Answer]
    versions: Versions


@dataclass(frozen=True)
class SearchResponse(Record):
    """Blocks of each text, best first."""

    results: list[list[Hit]]
    versions: Versions


@dataclass(frozen=True, kw_only=True)
class ExplainResponse(Explanation):
    """As ``realm explain --json``, with the versions."""

    versions: Versions


@dataclass(frozen=True)
class StoredDocument(Record):
    """Number of blocks of a document. 0: other documents already have all of its blocks, so nothing was stored."""

    id: str
    blocks: int


@dataclass(frozen=True)
class DocumentsResponse(Record):
    """Documents that are now searchable."""

    documents: list[StoredDocument]
    versions: Versions


@dataclass(frozen=True)
class RemoveResponse(Record):
    """Documents that are no longer in any answer."""

    removed: list[str]
    versions: Versions


@dataclass(frozen=True)
class DocumentBlock(Record):
    """A block of a document; ``start`` is the offset of ``text`` in it, ``media`` its picture."""

    block_id: int
    text: str
    start: int
    media: str


@dataclass(frozen=True)
class DocumentResponse(Record):
    """A document, block by block."""

    id: str
    title: str
    blocks: list[DocumentBlock]
    versions: Versions


@dataclass(frozen=True)
class ListedDocument(Record):
    """A document in a list."""

    id: str
    title: str


@dataclass(frozen=True)
class ListResponse(Record):
    """A page of the documents in order of arrival; ``next`` is the ``start`` of the next page, ``not_read`` names files and why."""

    documents: list[ListedDocument]
    total: int
    next: int | None
    not_read: list[dict[str, str]]
    versions: Versions


@dataclass(frozen=True)
class RunExample(Record):
    """A question from the run's evaluation; ``answer`` is "" if it abstained, ``correct`` is null if it was not judged."""

    question: str
    answer: str
    correct: bool | None


@dataclass(frozen=True)
class RunResponse(Record):
    """The run that is served."""

    run: str
    realm: str
    reader: bool  # False: only search works
    without_questions: bool  # the reader was trained on documents alone
    abstain_below: float  # measured confidence threshold; 0: not measured
    versions: Versions
    corpus: dict[str, int]  # documents, blocks, unsearchable
    index: dict[str, Any]  # generation, step, blocks, dim
    limits: dict[str, float]
    writes: str  # the language model that writes prose; "": none
    examples: list[RunExample]
    results: list[dict[str, Any]]


@dataclass(frozen=True)
class Health(Record):
    """Alive, or ready."""

    status: str


@dataclass(frozen=True)
class ServiceProblem(Record):
    """An error: a code for programs, and a message for people."""

    code: str
    message: str


@dataclass(frozen=True)
class Problem(Record):
    """The body of every answer that is not a success."""

    error: ServiceProblem
