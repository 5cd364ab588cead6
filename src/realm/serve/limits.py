"""How much one request may ask for. What is above is refused before anything is computed."""

from dataclasses import dataclass


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
        leaving_seconds: as ``unread_seconds``, once the server was told to end.
    """

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
"""What requests are described with in the OpenAPI document."""
