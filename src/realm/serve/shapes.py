"""Requests of the OpenAPI document, which are checked against these. Responses are ``realm.records``."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from realm.serve.limits import LIMITS

Text = Annotated[str, Field(min_length=1, max_length=LIMITS.text_chars, pattern=r"\S")]
Texts = Annotated[list[Text], Field(min_length=1, max_length=LIMITS.texts)]
DocumentId = Annotated[str, Field(min_length=1, max_length=LIMITS.id_chars, pattern=r"\S")]
LeftOut = Annotated[list[DocumentId], Field(max_length=LIMITS.texts, description="ids of documents that are not retrieved")]
K = Annotated[int, Field(ge=1, le=LIMITS.k)]
Timeout = Annotated[int, Field(ge=1, le=LIMITS.longest_timeout_ms, description="milliseconds after which you get status 504")]


class Request(BaseModel):
    """Base of all requests: unknown fields are errors, and values are not converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class AnswerRequest(Request):
    """Questions, each answered from its k most relevant blocks; answers with a confidence below ``abstain_below`` are marked ``abstained``.

    Null: the run's own threshold. Blocks of ``exclude_documents`` are not read.
    """

    questions: Texts
    k: K = 5
    abstain_below: Annotated[float, Field(ge=0, le=1)] | None = None
    exclude_documents: LeftOut = []
    timeout_ms: Timeout = LIMITS.timeout_ms


class SearchRequest(Request):
    """Texts whose k nearest blocks you want."""

    texts: Texts
    k: K = 5
    timeout_ms: Timeout = LIMITS.timeout_ms


class ExplainRequest(Request):
    """A sentence in which each [MASK] stands for a whole span. k counts the null document."""

    text: Text
    targets: Annotated[list[Text], Field(max_length=LIMITS.texts)] = []
    k: K = 8
    exclude_documents: LeftOut = []
    timeout_ms: Timeout = LIMITS.timeout_ms


class EmbeddingsRequest(Request):
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


class Document(Request):
    """A document: plain text, never parsed as HTML."""

    id: DocumentId
    title: Annotated[str, Field(max_length=LIMITS.title_chars)] = ""
    text: Annotated[str, Field(min_length=1, max_length=LIMITS.body_bytes, pattern=r"\S")]


class DocumentsRequest(Request):
    """Documents to add or to replace; all of them or none."""

    documents: Annotated[list[Document], Field(min_length=1, max_length=LIMITS.documents)]


class RemoveRequest(Request):
    """Ids of documents to remove; all of them or none."""

    ids: Annotated[list[DocumentId], Field(min_length=1, max_length=LIMITS.documents)]
