"""One connection: how long a client may take to send a request, and to read what it is answered.

uvicorn bounds neither: a few hundred clients that send a byte now and then, or ask and never read, would hold every connection."""

from asyncio import TimerHandle, Transport
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from realm.serve.shapes import LIMITS

UNREAD_CHECK_SECONDS = 0.5
"""Between two looks at what is still to be sent."""


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with three more bounds (``LIMITS``): the time from the first byte of a request to the end of its headers; the
    time for which a client may leave unread what it was sent; and how many clients may do that at once, of which the oldest is let go."""

    seconds = LIMITS.header_seconds
    unread_seconds: float = LIMITS.unread_seconds
    leaving_seconds: float = LIMITS.leaving_seconds
    most_unread = LIMITS.unread
    _unread: ClassVar[dict["BoundedProtocol", float]] = {}
    """Connections with something unread, the oldest first, and since when."""
    _limit: TimerHandle | None = None
    _look: TimerHandle | None = None
    _leaving = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does this only for sockets that were made with TCP's number. Without it the second part of every answer, its body, waits
        # until the client's system acknowledges the first: 40 ms.
        transport.get_extra_info("socket").setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self._start()
        self._look = self.loop.call_later(UNREAD_CHECK_SECONDS, self._look_at_unread)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            self._start()  # headers that have begun and not ended; the clock is not set back by more bytes
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        if self._look is not None:
            self._look.cancel()
        self._unread.pop(self, None)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._stop()
        super().on_response_complete()

    def shutdown(self) -> None:
        """Shut down: answer what was asked, and do not wait for clients that do not read."""
        self._leaving = True
        super().shutdown()

    def _start(self) -> None:
        if self._limit is None:
            self._limit = self.loop.call_later(self.seconds, self._end)

    def _stop(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _end(self) -> None:
        self._limit = None
        if not self.transport.is_closing():
            self.transport.close()

    def _look_at_unread(self) -> None:
        """Let go of a client that does not read. A connection that is being closed counts too: it lasts until all is sent."""
        self._look = self.loop.call_later(UNREAD_CHECK_SECONDS, self._look_at_unread)
        if not self.transport.get_write_buffer_size():
            self._unread.pop(self, None)
            return
        since = self._unread.setdefault(self, self.loop.time())
        patience = self.leaving_seconds if self._leaving else self.unread_seconds
        if self.loop.time() - since >= patience:
            self._drop()
        elif len(self._unread) > self.most_unread:
            next(iter(self._unread))._drop()

    def _drop(self) -> None:
        self._unread.pop(self, None)
        self.transport.abort()
