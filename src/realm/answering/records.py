"""The records of answers, searches and documents: the Python API returns them, the server and ``--json`` write them, the client reads them.

A record as JSON has the names of its fields; tuples are lists there, and numbers that are not finite are null. Standard library only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints


class Record:
    """Base of all records: a frozen dataclass that becomes JSON and is read from it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON's own types."""
        return {name: plain(value) for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a record; fields that this version does not know are left out."""
        kinds = _kinds(cls)  # type: ignore[arg-type]  # a class is hashable
        return cls(**{name: _read(kinds[name], value) for name, value in values.items() if name in kinds})


def plain(value: Any) -> Any:
    """Return a record, or a list or dictionary of records, as JSON's own types."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return {name: plain(item) for name, item in value.items()} if isinstance(value, dict) else value


@cache
def _kinds(record: type[Record]) -> dict[str, Any]:
    return get_type_hints(record)


def _read(kind: Any, value: Any) -> Any:
    """``value`` as the type that an annotation says: a record, a tuple or list of them, or what JSON has anyway."""
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.from_dict(value)
    if (origin := get_origin(kind)) in (list, tuple):
        return origin(_read(get_args(kind)[0], item) for item in value)
    return value


@dataclass(frozen=True)
class Versions(Record):
    """The versions of parameters, index and corpus that computed a response."""

    params: int
    index: int
    corpus: int


@dataclass(frozen=True)
class Evidence(Record):
    """A block that was read, with its relevance and the best answer in it.

    ``start`` and ``end`` are code-point offsets of ``answer`` in ``text``; ``doc_start`` is the offset of ``text`` in its document.
    ``p_z`` is the softmax of relevance over the blocks read; ``p_span`` the probability of the block's best span among all spans.
    ``path``, if a link led to this block: the titles (or ids) of the page that search found and of this one.
    ``media``: the picture that the block is of (``corpus.pictures``), empty of a text.
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


@dataclass(frozen=True)
class Answer(Record):
    """An answer, spelled as in the documents.

    ``p`` is the probability of all spans with the same normalised string, p(y|x) = sum over z of p(z|x) p(y|z,x). A pointer gives part
    of the probability to "not here"; other readers divide it among spans only. ``evidence`` is ordered by relevance.
    ``confidence`` is the probability that the answer is right, calibrated on dev questions; None without calibration.
    ``timings_ms`` are "embed", "search" (tokenising included) and "read", each the question's share of its batch.
    ``abstained``: the confidence is below the threshold; ``answer`` is then the best guess.
    """

    question: str
    answer: str
    p: float
    evidence: tuple[Evidence, ...]
    versions: dict[str, int]
    timings_ms: dict[str, float]
    confidence: float | None = None
    abstained: bool = False

    @property
    def sureness(self) -> float:
        """The confidence, or p without calibration."""
        return self.p if self.confidence is None else self.confidence

    def abstaining(self, below: float) -> "Answer":
        """Return this answer, marked as abstained if its ``sureness`` is below a threshold."""
        return replace(self, abstained=self.sureness < below)

    def along(self, paths: Sequence[tuple[str, ...]]) -> "Answer":
        """Return this answer with the path to each of its evidence; without any where ``paths`` is empty."""
        led = [replace(evidence, path=path) for evidence, path in zip(self.evidence, paths, strict=False)]
        return replace(self, evidence=tuple(led)) if led else self


@dataclass(frozen=True)
class Hit(Record):
    """A block that search found; ``score`` is the inner product of the embeddings, also if other scores order the blocks.

    ``media``: the picture that the block is of, empty of a text.
    """

    doc_id: str
    block_id: int
    title: str
    text: str
    score: float
    media: str = ""


@dataclass(frozen=True)
class Prediction(Record):
    """A filling of the masks, and its joint probability. Spans of several masks stand in order, joined by " | "."""

    text: str
    p: float


@dataclass(frozen=True)
class DocumentEffect(Record):
    """One document read with the sentence: how relevant it is, how likely it makes the target, how training would move its score.

    ``r`` is the gradient of log p(y|x) by f(x,z) (REALM, section 3.3), ``utility`` log p(y|z,x) - log p(y|null,x) (equation 3), None
    where the null document was not read. As JSON both are null where they are not finite.
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
    """One masked sentence explained. ``p_y`` is the sum over ``candidates`` of p_z * p_y_given_z; candidate 0 is the null document.

    ``targets`` are the spans explained, one for each [MASK]: the caller's, or the most probable ones. ``excluded`` are the blocks that
    could not be retrieved. ``predictions`` are the best strings for the same masked input, or over all lengths when no target was given.
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
class EmbeddingsResponse(Record):
    """Vectors in the order of the texts; truncated: the text is longer than the model reads."""

    side: Literal["question", "document"]
    dim: int
    embeddings: list[list[float]]
    truncated: list[bool]
    versions: Versions


@dataclass(frozen=True)
class StoredDocument(Record):
    """How many blocks a document has now. 0: other documents already hold all of its blocks, so nothing was stored."""

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
    """A block of a document; ``start`` is the offset of ``text`` in it, as ``doc_start`` of an evidence; ``media`` the picture it is of."""

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
    """A page of the documents in the order in which they came; ``next`` is the ``start`` of the next page."""

    documents: list[ListedDocument]
    total: int
    next: int | None
    versions: Versions


@dataclass(frozen=True)
class RunStage(Record):
    """A stage of training: its facts, [step, value] points of every column, and the charts to draw.

    ``charts`` are as ``realm.report.pictures.Picture``: caption, lines, unit, zero, machinery.
    """

    name: str
    title: str
    about: str
    seconds: float | None
    facts: dict[str, Any]
    curves: dict[str, list[tuple[float, float]]]
    charts: list[dict[str, Any]]


@dataclass(frozen=True)
class RunExample(Record):
    """A question from the run's evaluation; ``answer`` is "" if it abstained, ``correct`` is null if it was not judged."""

    question: str
    answer: str
    correct: bool | None


@dataclass(frozen=True)
class RunResponse(Record):
    """The run that is served.

    Attributes:
        reader: whether the run has a reader; without one, only search works.
        without_questions: whether the reader was trained on documents alone, without questions.
        abstain_below: measured confidence threshold below which the run abstains; 0 if none was measured.
        corpus: documents, blocks, unsearchable.
        index: generation, step, blocks, dim.
    """

    run: str
    realm: str
    reader: bool
    without_questions: bool
    abstain_below: float
    versions: Versions
    corpus: dict[str, int]
    index: dict[str, Any]
    limits: dict[str, float]
    examples: list[RunExample]
    stages: list[RunStage]
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
