"""HTTP/1.1 that does not wait for ever: a connection whose next request does not come to the end of its headers in time is closed.

uvicorn bounds the size of headers and the idle time between requests, not the time that headers take, so that a few hundred clients that
send a byte now and then would hold every connection.
"""

from asyncio import TimerHandle, Transport
from socket import IPPROTO_TCP, TCP_NODELAY

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from realm.serve.limits import LIMITS


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with a limit on the time from the first byte of a request to the end of its headers."""

    seconds = LIMITS.header_seconds
    _limit: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does this only for sockets that were made with TCP's number. Without it the second part of every answer, its body, waits
        # until the client's system acknowledges the first: 40 ms.
        transport.get_extra_info("socket").setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self._start()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            self._start()  # headers that have begun and not ended; the clock is not set back by more bytes
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._stop()
        super().on_response_complete()

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
