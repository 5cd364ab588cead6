"""Refusals of requests: a status, a word for programs and a sentence for people. Never a document's text or a path."""

import json
import math
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse

from realm.answering.records import Problem, Record, ServiceProblem
from realm.errors import ConfigError, CorpusError, DataError, PoolError, RealmError, RunError, SnapshotError


class Refusal(Exception):
    """A request that is not answered: with a status of HTTP, a word that stays the same from version to version, a sentence, and seconds
    after which it may be tried again."""

    def __init__(self, status: int, code: str, message: str, retry_after: int | None = None):
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after

    def response(self) -> Response:
        headers = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return Json(Problem(ServiceProblem(self.code, self.message)), self.status, headers)


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
    if isinstance(error, RunError):
        return Refusal(409, "not_trained", error.problem)
    if isinstance(error, CorpusError | SnapshotError | PoolError):
        return Refusal(503, "unavailable", error.problem, retry_after=5)
    return Refusal(500, "internal", "the server could not do this; see its log")
