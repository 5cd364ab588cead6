"""A client of ``realm serve``, on the standard library alone: nothing of the models is imported.

>>> client = Client("http://127.0.0.1:8000")                                # doctest: +SKIP
>>> client.answer(["What is the currency of Arvad?"])[0]["answer"]          # doctest: +SKIP
'Tirel'
"""

import http.client
import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self, TypedDict, cast
from urllib.parse import quote, urlsplit

from realm.decoding import json_value
from realm.errors import RealmError


class Versions(TypedDict):
    """The versions of parameters, index and corpus that computed an answer."""

    params: int
    index: int
    corpus: int


class Evidence(TypedDict):
    """One block that was read; ``start`` and ``end`` are offsets of ``answer`` in ``text``, and ``text`` starts at ``doc_start``.

    ``path``, where a link led to it: the titles of the page that the question found, and of this one. ``media``: the picture that
    it is of, empty of a text.
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
    path: list[str]
    media: str


class Answer(TypedDict):
    """An answer in the documents' own spelling, with its evidence in order of relevance.

    ``confidence``: that it is right, None where the run was not calibrated; ``abstained``: it (or ``p``) is below what was asked for.
    """

    question: str
    answer: str
    p: float
    evidence: list[Evidence]
    versions: Versions
    timings_ms: dict[str, float]
    confidence: float | None
    abstained: bool


class Hit(TypedDict):
    """One block that a search found."""

    doc_id: str
    block_id: int
    title: str
    text: str
    score: float
    media: str


class Document(TypedDict):
    """A document to add or to replace."""

    id: str
    title: str
    text: str


class Stored(TypedDict):
    """How many blocks a document has now; 0: other documents already hold all of them."""

    id: str
    blocks: int


class Block(TypedDict):
    """A block of a document; ``media`` is the picture it is of, empty of a text."""

    block_id: int
    text: str
    start: int
    media: str


class ShownDocument(TypedDict):
    """A document, block by block."""

    id: str
    title: str
    blocks: list[Block]
    versions: Versions


class Listed(TypedDict):
    """A document in a list."""

    id: str
    title: str


class ExplainedDocument(TypedDict):
    """One document read with a masked sentence."""

    block_id: int
    title: str
    text: str
    null: bool
    p_z: float
    p_y_given_z: float
    r: float | None
    utility: float | None


class Prediction(TypedDict):
    """What the model would fill in."""

    text: str
    p: float


class Entity(TypedDict):
    """A document that a sentence names, and how much the candidates that speak of it helped; ``r`` and ``utility`` are shares of what is
    above 0."""

    title: str
    name: str
    block_ids: list[int]
    p_z: float
    r: float | None
    utility: float | None


class Explanation(TypedDict):
    """A masked sentence explained; candidate 0 is the null document."""

    text: str
    targets: list[str]
    p_y: float
    p_y_null: float
    excluded: list[int]
    predictions: list[Prediction]
    candidates: list[ExplainedDocument]
    entities: list[Entity]
    versions: Versions


class ServiceError(RealmError):
    """The server cannot be reached, or refuses the request.

    Attributes:
        status: of HTTP; 0 where there was no answer.
        code: the server's word for it.
        retry_after: seconds after which it may be tried again, or None.
    """

    def __init__(self, problem: str, *, status: int = 0, code: str = "unreachable", retry_after: int | None = None):
        super().__init__(problem)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class Client:
    """One connection to a server. Not for several threads at once: each makes its own.

    Args:
        url: such as http://127.0.0.1:8000.
        token: the server's token, if it asks for one.
        timeout: seconds to wait for the server.

    Raises:
        ServiceError: by every method, if the server cannot be reached or refuses. After a change of documents without an answer
            (status 0) it is not known whether the change was made.
    """

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
        timeout_ms: int = 10_000,
    ) -> list[Answer]:
        """Answer questions, in their order, without the documents of ``exclude_documents``; answers with a confidence below
        ``abstain_below`` (None: the run's own threshold) are marked ``abstained``."""
        how = {"k": k, "abstain_below": abstain_below, "exclude_documents": list(exclude_documents), "timeout_ms": timeout_ms}
        return cast(list[Answer], self._ask("/v1/answer", {"questions": list(questions), **how})["answers"])

    def search(self, texts: Sequence[str], *, k: int = 5, timeout_ms: int = 10_000) -> list[list[Hit]]:
        """The k nearest blocks of each text."""
        return cast(list[list[Hit]], self._ask("/v1/search", {"texts": list(texts), "k": k, "timeout_ms": timeout_ms})["results"])

    def explain(
        self, text: str, targets: Sequence[str] = (), *, k: int = 8, exclude_documents: Sequence[str] = (), timeout_ms: int = 10_000
    ) -> Explanation:
        """Show which documents help to fill each [MASK] of a sentence."""
        body = {"text": text, "targets": list(targets), "k": k, "exclude_documents": list(exclude_documents), "timeout_ms": timeout_ms}
        return cast(Explanation, self._ask("/v1/explain", body))

    def embed(self, texts: Sequence[str], side: Literal["question", "document"], *, titles: Sequence[str] = ()) -> list[list[float]]:
        """Embed texts as questions or as documents."""
        body = {"side": side, "texts": list(texts), "titles": list(titles)}
        return cast(list[list[float]], self._ask("/v1/embeddings", body)["embeddings"])

    def add(self, documents: Sequence[Document]) -> list[Stored]:
        """Add documents, all or none; they are searchable when this returns."""
        return cast(list[Stored], self._change("POST", "/v1/documents", {"documents": list(documents)})["documents"])

    def replace(self, documents: Sequence[Document]) -> list[Stored]:
        """Replace the documents with these ids, all or none."""
        return cast(list[Stored], self._change("PUT", "/v1/documents", {"documents": list(documents)})["documents"])

    def remove(self, ids: Sequence[str]) -> list[str]:
        """Remove documents, all or none; when this returns, no answer uses them."""
        return cast(list[str], self._change("POST", "/v1/documents/remove", {"ids": list(ids)})["removed"])

    def document(self, doc_id: str) -> ShownDocument:
        """One document, block by block."""
        return cast(ShownDocument, self._ask(f"/v1/documents?id={quote(doc_id, safe='')}"))

    def documents(self, page: int = 1000) -> Iterator[Listed]:
        """All documents; ``page`` are fetched at a time."""
        start: int | None = 0
        while start is not None:
            found = self._ask(f"/v1/documents?start={start}&limit={page}")
            yield from found["documents"]
            start = found["next"]

    def run(self) -> dict[str, Any]:
        """Versions, sizes, limits and the curves of training."""
        return self._ask("/v1/run")

    def ready(self) -> bool:
        """Whether the server takes questions."""
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
