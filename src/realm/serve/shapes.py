"""Requests of the OpenAPI document, which are checked against these, their limits, and refusals.

Responses are ``realm.answering.records``."""

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from realm.answering.records import Problem, Record, ServiceProblem
from realm.answering.writing import EndpointError
from realm.errors import ConfigError, CorpusError, DataError, PoolError, RealmError, RunError, SnapshotError


class Refusal(Exception):
    """A request that is not answered: with a status of HTTP, a word that stays the same from version to version, a sentence, and headers,
    such as the seconds after which it may be tried again."""

    def __init__(self, status: int, code: str, message: str, **headers: str | int):
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = {name.replace("_", "-"): str(value) for name, value in headers.items()}

    def response(self) -> Response:
        return Json(Problem(ServiceProblem(self.code, self.message)), self.status, self.headers)


class Json(JSONResponse):
    """A record as JSON in UTF-8. A number that is not finite becomes null: other readers refuse it."""

    def render(self, content: Record) -> bytes:
        value = content.to_dict()
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError:
            text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def queue_full(what: str) -> Refusal:
    return Refusal(503, "busy", f"too many {what} are waiting; try again later", retry_after=1)


def refusal_of(error: RealmError) -> Refusal:
    """The refusal for an error: 4xx where the client can cure it, 503 for the state of files, which may be over soon."""
    message = error.problem if not error.cure else f"{error.problem}. {' '.join(error.cure.split())}"
    if isinstance(error, ConfigError | DataError):
        where = f"document {error.line}: " if error.line else ""
        return Refusal(422, "invalid", where + message)
    if isinstance(error, EndpointError):
        return Refusal(502, "endpoint", error.problem)
    if isinstance(error, RunError):
        return Refusal(409, "not_trained", error.problem)
    if isinstance(error, CorpusError | SnapshotError | PoolError):
        return Refusal(503, "unavailable", error.problem, retry_after=5)
    return Refusal(500, "internal", "the server could not do this; see its log")


@dataclass(frozen=True)
class Limits:
    """Bounds of one server; every one of them ends a request in a 4xx or 503 answer, never in memory or time without bound.

    Attributes:
        body_bytes: of a request.
        header_bytes: of a request line and its headers.
        header_seconds: from the first byte of a request, or the opening of its connection, to the end of its headers.
        body_seconds: from there to the end of its body.
        text_chars: of one question, text or masked sentence.
        texts: questions or texts in one request.
        documents: in one request.
        id_chars, title_chars: of a document.
        k: blocks for one question.
        timeout_ms, longest_timeout_ms: how long a request may take if it does not say, and at most.
        waiting: questions that may wait for the model; more get 503.
        changes: changes of documents that may wait for each other; more get 503.
        connections: open at once; more get 503.
        unread_seconds: for which a client may leave unread what it was sent.
        unread: connections that may do so at once; of more, the oldest are closed.
        drain_seconds: that requests have to end in when the server is told to, and the server with them.
        leaving_seconds: as ``unread_seconds``, once the server was told to end."""

    body_bytes: int = 8 * 2**20
    header_bytes: int = 16 * 2**10
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    text_chars: int = 4000
    texts: int = 64
    documents: int = 1000
    id_chars: int = 512
    title_chars: int = 1000
    k: int = 100
    timeout_ms: int = 10_000
    longest_timeout_ms: int = 60_000
    waiting: int = 256
    changes: int = 16
    connections: int = 512
    unread_seconds: float = 30.0
    unread: int = 64
    drain_seconds: int = 30
    leaving_seconds: float = 5.0


LIMITS = Limits()
"""The limits in the OpenAPI document."""

VISIBLE = "[^\\s\x00-\x20\x7f-\xa0\xad\u115f\u1160\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufeff\uffa0\ufff9-\ufffb]"
Text = Annotated[str, Field(min_length=1, max_length=LIMITS.text_chars, pattern=VISIBLE)]
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

    Null: the run's own threshold. Blocks of ``exclude_documents`` are not read. ``write``: the server's language model adds ``prose``
    in what is left of the time, or a ``note`` that it did not."""

    questions: Texts
    k: K = 5
    abstain_below: Annotated[float, Field(ge=0, le=1)] | None = None
    exclude_documents: LeftOut = []
    write: bool = False
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
