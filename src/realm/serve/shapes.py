"""Requests and responses of the OpenAPI document. Requests are checked against these; responses are described by them.

The records of the model (``Answer``, ``Hit``, ``Prediction``) are used as they are.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from realm.answerer import Answer
from realm.explain import Prediction
from realm.opening import Hit
from realm.serve.limits import LIMITS

Text = Annotated[str, Field(min_length=1, max_length=LIMITS.text_chars, pattern=r"\S")]
Texts = Annotated[list[Text], Field(min_length=1, max_length=LIMITS.texts)]
DocumentId = Annotated[str, Field(min_length=1, max_length=LIMITS.id_chars, pattern=r"\S")]
LeftOut = Annotated[list[DocumentId], Field(max_length=LIMITS.texts, description="ids of documents that are not retrieved")]
K = Annotated[int, Field(ge=1, le=LIMITS.k)]
Timeout = Annotated[int, Field(ge=1, le=LIMITS.longest_timeout_ms, description="milliseconds after which you get status 504")]


class Asked(BaseModel):
    """Base of all requests: unknown fields are errors, and values are not converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class AnswerRequest(Asked):
    """Questions, each answered from its k most relevant blocks; answers with a confidence below ``abstain_below`` are marked ``abstained``.

    Null: the run's own threshold. Blocks of ``exclude_documents`` are not read.
    """

    questions: Texts
    k: K = 5
    abstain_below: Annotated[float, Field(ge=0, le=1)] | None = None
    exclude_documents: LeftOut = []
    timeout_ms: Timeout = LIMITS.timeout_ms


class SearchRequest(Asked):
    """Texts whose k nearest blocks you want."""

    texts: Texts
    k: K = 5
    timeout_ms: Timeout = LIMITS.timeout_ms


class ExplainRequest(Asked):
    """A sentence in which each [MASK] stands for a whole span. k counts the null document."""

    text: Text
    targets: Annotated[list[Text], Field(max_length=LIMITS.texts)] = []
    k: K = 8
    exclude_documents: LeftOut = []
    timeout_ms: Timeout = LIMITS.timeout_ms


class EmbeddingsRequest(Asked):
    """Texts to embed on one side. Only documents have titles: one for each text, or none at all."""

    side: Literal["question", "document"]
    texts: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=8 * LIMITS.text_chars, pattern=r"\S")]],
        Field(min_length=1, max_length=LIMITS.texts),
    ]
    titles: Annotated[list[Annotated[str, Field(max_length=LIMITS.title_chars)]], Field(max_length=LIMITS.texts)] = []
    timeout_ms: Timeout = LIMITS.timeout_ms

    @model_validator(mode="after")
    def _one_title_each(self) -> "EmbeddingsRequest":
        if self.titles and (self.side == "question" or len(self.titles) != len(self.texts)):
            raise ValueError("titles belong to documents, one for each text")
        return self


class Document(Asked):
    """A document: plain text, never parsed as HTML."""

    id: DocumentId
    title: Annotated[str, Field(max_length=LIMITS.title_chars)] = ""
    text: Annotated[str, Field(min_length=1, max_length=LIMITS.body_bytes, pattern=r"\S")]


class DocumentsRequest(Asked):
    """Documents to add or to replace; all of them or none."""

    documents: Annotated[list[Document], Field(min_length=1, max_length=LIMITS.documents)]


class RemoveRequest(Asked):
    """Ids of documents to remove; all of them or none."""

    ids: Annotated[list[DocumentId], Field(min_length=1, max_length=LIMITS.documents)]


class Versions(BaseModel):
    """The versions of parameters, index and corpus that computed a response."""

    params: int
    index: int
    corpus: int


class AnswerResponse(BaseModel):
    """Answers in the order of the questions."""

    answers: list[Answer]
    versions: Versions


class SearchResponse(BaseModel):
    """Blocks of each text, best first."""

    results: list[list[Hit]]
    versions: Versions


class CandidateShape(BaseModel):
    """As ``realm.document_utility.DocumentEffect``."""

    block_id: int
    title: str
    text: str
    null: bool
    p_z: float
    p_y_given_z: float
    r: float | None
    utility: float | None


class EntityShape(BaseModel):
    """As ``realm.document_utility.EntityShare``."""

    title: str
    name: str
    block_ids: list[int]
    p_z: float
    r: float | None
    utility: float | None


class ExplainResponse(BaseModel):
    """As ``realm explain --json``, with the versions."""

    text: str
    targets: list[str]
    p_y: float
    p_y_null: float
    excluded: list[int]
    predictions: list[Prediction]
    candidates: list[CandidateShape]
    entities: list[EntityShape]
    versions: Versions


class EmbeddingsResponse(BaseModel):
    """Vectors in the order of the texts; truncated: the text is longer than the model reads."""

    side: Literal["question", "document"]
    dim: int
    embeddings: list[list[float]]
    truncated: list[bool]
    versions: Versions


class StoredDocument(BaseModel):
    """How many blocks a document has now. 0: other documents already hold all of its blocks, so nothing was stored."""

    id: str
    blocks: int


class DocumentsResponse(BaseModel):
    """Documents that are now searchable."""

    documents: list[StoredDocument]
    versions: Versions


class RemoveResponse(BaseModel):
    """Documents that are no longer in any answer."""

    removed: list[str]
    versions: Versions


class BlockShape(BaseModel):
    """A block of a document; ``start`` is the offset of ``text`` in it, as ``doc_start`` of an evidence; ``media`` the picture it is of."""

    block_id: int
    text: str
    start: int
    media: str


class DocumentResponse(BaseModel):
    """A document, block by block."""

    id: str
    title: str
    blocks: list[BlockShape]
    versions: Versions


class ListedDocument(BaseModel):
    """A document in a list."""

    id: str
    title: str


class ListResponse(BaseModel):
    """A page of the documents in the order in which they came; ``next`` is the ``start`` of the next page."""

    documents: list[ListedDocument]
    total: int
    next: int | None
    versions: Versions


class StageShape(BaseModel):
    """A stage of training: its facts, [step, value] points of every column, and the charts to draw."""

    name: str
    title: str
    about: str
    seconds: float | None
    facts: dict[str, Any]
    curves: dict[str, list[tuple[float, float]]]
    charts: list[dict[str, Any]] = Field(description="as realm.report.pictures.Picture: caption, lines, unit, zero, machinery")


class ExampleShape(BaseModel):
    """A question from the run's evaluation; ``answer`` is "" if it abstained, ``correct`` is null if it was not judged."""

    question: str
    answer: str
    correct: bool | None


class RunResponse(BaseModel):
    """The run that is served."""

    run: str
    realm: str
    reader: bool = Field(description="whether the run has a reader; without one, only search works")
    without_questions: bool = Field(description="whether the reader was trained on documents alone, without questions")
    abstain_below: float = Field(description="measured confidence threshold below which the run abstains; 0 if none was measured")
    versions: Versions
    corpus: dict[str, int] = Field(description="documents, blocks, unsearchable")
    index: dict[str, Any] = Field(description="generation, step, blocks, dim")
    limits: dict[str, float]
    examples: list[ExampleShape]
    stages: list[StageShape]
    results: list[dict[str, Any]]


class Health(BaseModel):
    """Alive, or ready."""

    status: str


class ErrorShape(BaseModel):
    """An error: a code for programs, and a message for people."""

    code: str
    message: str


class Problem(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorShape
