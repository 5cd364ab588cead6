"""A client of ``realm serve``, on the standard library alone: no model is imported. Methods return ``realm.answering.records``."""

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self
from urllib.parse import quote, urlsplit

from realm.answering import records
from realm.errors import RealmError
from realm.storage.decoding import json_value


class ServiceError(RealmError):
    """The server cannot be reached, or refuses the request.

    Attributes:
        status: of HTTP; 0 where there was no answer.
        code: the server's word for it.
        retry_after: seconds after which it may be tried again, or None."""

    def __init__(self, problem: str, *, status: int = 0, code: str = "unreachable", retry_after: int | None = None):
        super().__init__(problem)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class Client:
    """One connection to a server. Not for several threads at once: each makes its own.

    Examples:
        >>> client = Client("http://127.0.0.1:9", timeout=1)  # no server is there
        >>> client.ready()
        False
        >>> client = Client("http://127.0.0.1:8000")  # doctest: +SKIP
        >>> client.answer(["What is the currency of Arvad?"])[0].answer  # doctest: +SKIP
        'Tirel'

    Args:
        url: such as http://127.0.0.1:8000.
        token: the server's token, if it asks for one.
        timeout: seconds to wait for the server.

    Raises:
        ServiceError: by every method, if the server cannot be reached or refuses. After a change of documents without an answer
            (status 0) it is not known whether the change was made."""

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 60.0):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServiceError(f"{url!r} is not the address of a server")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=timeout)
        self._path = parts.path.rstrip("/")
        self._headers = {"accept": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._connection.close()

    def answer(
        self,
        questions: Sequence[str],
        *,
        k: int = 5,
        abstain_below: float | None = None,
        exclude_documents: Sequence[str] = (),
        write: bool = False,
        timeout_ms: int = 10_000,
    ) -> list[records.Answer]:
        """Answer questions, in their order, without the documents of ``exclude_documents``; answers with a confidence below
        ``abstain_below`` (None: the run's own threshold) are marked ``abstained``. ``write``: with ``prose`` of the server's model."""
        how: dict[str, Any] = {"k": k, "abstain_below": abstain_below, "write": write, "timeout_ms": timeout_ms}
        how["exclude_documents"] = list(exclude_documents)
        return records.AnswerResponse.from_dict(self._ask("/v1/answer", {"questions": list(questions), **how})).answers

    def search(self, texts: Sequence[str], *, k: int = 5, timeout_ms: int = 10_000) -> list[list[records.Hit]]:
        """The k nearest blocks of each text."""
        return records.SearchResponse.from_dict(self._ask("/v1/search", {"texts": list(texts), "k": k, "timeout_ms": timeout_ms})).results

    def explain(
        self, text: str, targets: Sequence[str] = (), *, k: int = 8, exclude_documents: Sequence[str] = (), timeout_ms: int = 10_000
    ) -> records.ExplainResponse:
        """Show which documents help to fill each [MASK] of a sentence."""
        body = {"text": text, "targets": list(targets), "k": k, "exclude_documents": list(exclude_documents), "timeout_ms": timeout_ms}
        return records.ExplainResponse.from_dict(self._ask("/v1/explain", body))

    def embed(self, texts: Sequence[str], side: Literal["question", "document"], *, titles: Sequence[str] = ()) -> list[list[float]]:
        """Embed texts as questions or as documents."""
        body = {"side": side, "texts": list(texts), "titles": list(titles)}
        return records.EmbeddingsResponse.from_dict(self._ask("/v1/embeddings", body)).embeddings

    def add(self, documents: Sequence[Mapping[str, str]]) -> list[records.StoredDocument]:
        """Add documents ({"id", "title", "text"}), all or none; they are searchable when this returns."""
        return records.DocumentsResponse.from_dict(self._change("POST", "/v1/documents", {"documents": list(documents)})).documents

    def replace(self, documents: Sequence[Mapping[str, str]]) -> list[records.StoredDocument]:
        """Replace the documents with these ids, all or none."""
        return records.DocumentsResponse.from_dict(self._change("PUT", "/v1/documents", {"documents": list(documents)})).documents

    def remove(self, ids: Sequence[str]) -> list[str]:
        """Remove documents, all or none; when this returns, no answer uses them."""
        return records.RemoveResponse.from_dict(self._change("POST", "/v1/documents/remove", {"ids": list(ids)})).removed

    def document(self, doc_id: str) -> records.DocumentResponse:
        """One document, block by block."""
        return records.DocumentResponse.from_dict(self._ask(f"/v1/documents?id={quote(doc_id, safe='')}"))

    def documents(self, page: int = 1000) -> Iterator[records.ListedDocument]:
        """All documents; ``page`` are fetched at a time."""
        start: int | None = 0
        while start is not None:
            found = records.ListResponse.from_dict(self._ask(f"/v1/documents?start={start}&limit={page}"))
            yield from found.documents
            start = found.next

    def run(self) -> records.RunResponse:
        """Versions, sizes, limits and the curves of training."""
        return records.RunResponse.from_dict(self._ask("/v1/run"))

    def ready(self) -> bool:
        """Return whether the server takes questions."""
        try:
            self._ask("/readyz")
        except ServiceError:
            return False
        return True

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """A request that changes nothing: tried again, once, if the server closed the idle connection."""
        reused = self._connection.sock is not None
        try:
            return self._send("GET" if body is None else "POST", path, body)
        except ServiceError as error:
            if error.status or not reused:
                raise
        return self._send("GET" if body is None else "POST", path, body)

    def _change(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """A change is sent once, on a new connection: on an idle one it could not be told from one that was lost on the way."""
        self.close()
        return self._send(method, path, body)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if data is None else {**self._headers, "content-type": "application/json"}
        try:
            self._connection.request(method, self._path + path, data, headers)
            response = self._connection.getresponse()
            status, text = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            host = f"{self._connection.host}:{self._connection.port}"
            raise ServiceError(f"no answer from {host}: {str(error) or type(error).__name__}") from error
        try:
            found: dict[str, Any] = json_value(text)
        except ValueError:
            found = {}
        if status != 200:
            said = found.get("error", {})
            after = response.headers.get("retry-after", "")
            message = said.get("message", f"the server answered with status {status}")
            raise ServiceError(message, status=status, code=said.get("code", "other"), retry_after=int(after) if after.isdigit() else None)
        return found
