"""The application: routes over one run, behind the guard. And listening: addresses, tokens, signals, slow clients.

``serve`` returns when it was told to stop and every request was answered."""

import logging
import signal
import socket
import threading
from asyncio import TimerHandle, Transport
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any, ClassVar

import h11
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from uvicorn.protocols.http.h11_impl import H11Protocol

from realm import __version__
from realm.answering.writing import Endpoint, endpoint_of
from realm.errors import ConfigError, RealmError
from realm.serve.documents import Documents
from realm.serve.guard import Guard, Rules, address_of
from realm.serve.routes import document_routes, page_routes, question_routes, state_routes
from realm.serve.serving import Serving
from realm.serve.shapes import LIMITS, Refusal, refusal_of

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


NAME_CHARS = 60
CLOSING_SECONDS = 3
"""Of the time to drain, kept for what must be closed when the last answer is given."""
CODES = {400: "body", 404: "not_found", 405: "method"}


def make_app(serving: Serving, rules: Rules, endpoint: Endpoint | None = None) -> FastAPI:
    """The ASGI application over a run; ``endpoint`` writes prose. It closes ``serving`` when it is shut down."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        serving.close()

    # No documentation pages: they would fetch scripts from elsewhere. The document itself is at /openapi.json.
    app = FastAPI(title="REALM", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan)
    app.include_router(question_routes(serving, endpoint))  # first: routes are tried in order
    app.include_router(document_routes(Documents(serving)))
    app.include_router(state_routes(serving, endpoint.model if endpoint else ""))
    for kind in (Refusal, RealmError):
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.include_router(page_routes())
    takes = partial(_takes, app)
    app.add_middleware(Guard, rules=rules, limits=serving.limits, takes=takes)  # type: ignore[arg-type]
    return app


async def _refused(request: Request, error: Any) -> Response:
    return (refusal_of(error) if isinstance(error, RealmError) else error).response()


async def _invalid(request: Request, error: Any) -> Response:
    """Name the fields of a request that are wrong, or where it stops being JSON. Values are not repeated: they may be large or private."""
    if error.errors()[0]["type"] == "json_invalid":
        return Refusal(400, "body", f"the body is not JSON, from character {error.errors()[0]['loc'][-1]} on").response()
    found = [f"{'.'.join(str(part)[:NAME_CHARS] for part in problem['loc'])}: {problem['msg']}" for problem in error.errors()[:5]]
    return Refusal(422, "invalid", "; ".join(found)).response()


async def _http(request: Request, error: Any) -> Response:
    """Errors of the framework itself: no such route, no such method, no JSON. OPTIONS is told the methods that there are."""
    if error.status_code == 405:
        found = [method for method in ("DELETE", "GET", "POST", "PUT") if _takes(request.app, {**request.scope, "method": method})]
        error.headers = {"allow": ", ".join([*found, *["HEAD"] * ("GET" in found), "OPTIONS"])}
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=error.headers)
    response = Refusal(error.status_code, CODES.get(error.status_code, "invalid"), str(error.detail)).response()
    response.headers.update(error.headers or {})
    return response


def _takes(app: FastAPI, scope: MutableMapping[str, Any]) -> bool:
    return any(route.matches(scope)[0] is Match.FULL for route in app.routes)


MIN_TOKEN_CHARS = 16
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
ALL_ADDRESSES = ("0.0.0.0", "::")


def serve(
    run: Path,
    *,
    host: str,
    port: int,
    token_file: Path | None,
    allow_hosts: tuple[str, ...],
    without_token: bool,
    say: Callable[[str], None],
    documents: Callable[[Path], object] | None = None,
    write: str = "",
    reader: str = "",
) -> None:
    """Serve a run until SIGTERM or SIGINT. Port 0: any that is free. ``token_file`` holds the token that requests must carry;
    ``allow_hosts`` are names under which the server may be asked, besides ``host`` and those of the loopback address.
    ``without_token``: listen on an address that others reach although there is no token. ``say`` is told where it listens;
    ``documents``, ``reader``: as for ``Serving``; ``write``: address of what writes prose; empty: the recipe's. Raises ConfigError: an
    address that others reach without a token or a name, a bad token file, or a port that is taken; RealmError: the run cannot be opened."""
    rules = rules_of(host, token_file, allow_hosts, without_token)

    def app() -> FastAPI:
        serving = Serving(run, documents=documents, reader=reader)
        return make_app(serving, rules, endpoint_of(write or serving.current.recipe.writes))

    answer_at(host, port, app, str(run), say)


def answer_at(host: str, port: int, app: Callable[[], Any], what: str, say: Callable[[str], None], path: str = "") -> None:
    """Answer requests at an address until SIGTERM or SIGINT; ``app`` makes the application once the address is ours, since that may take
    long. Raises ConfigError: the port is taken."""
    with _listen(host, port) as listening:
        config = uvicorn.Config(
            app(),
            http=BoundedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=LIMITS.connections,
            timeout_graceful_shutdown=LIMITS.drain_seconds - CLOSING_SECONDS,
            h11_max_incomplete_event_size=LIMITS.header_bytes,
        )
        shown = f"[{host}]" if ":" in host else host
        server = uvicorn.Server(config)
        with _logging(), _signals_end(server):
            say(f"serving {what} at http://{shown}:{listening.getsockname()[1]}{path}; end with Ctrl-C")
            server.run(sockets=[listening])


def rules_of(host: str, token_file: Path | None, allow_hosts: tuple[str, ...], without_token: bool) -> Rules:
    """The rules of a server at this address. Raises ConfigError: see ``serve``."""
    named = frozenset(name.strip().lower() for name in allow_hosts)
    if not is_loopback(host):
        if token_file is None and not without_token:
            cure = "Give a token with --token-file FILE, or use --without-token if everyone who reaches this address may read and change it"
            raise ConfigError(f"others can reach {host}, and no token is required", cure=cure)
        if host in ALL_ADDRESSES and not named:
            cure = "Name what clients call this machine: --allow-host NAME (without a port; may be repeated)"
            raise ConfigError(f"{host} means every address of this machine, so the host names of clients are unknown", cure=cure)
    own = frozenset() if host in ALL_ADDRESSES else frozenset({f"[{host}]" if ":" in host else host.lower()})
    return Rules(LOOPBACK | own | named, None if token_file is None else read_token(token_file))


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    found = address_of(host)
    return host.lower() == "localhost" if found is None else found.is_loopback


def read_token(path: Path) -> str:
    """The token in a file. Raises ConfigError: no file, or a token that is too short or has characters that a header cannot carry."""
    cure = f"Make one: (umask 077; openssl rand -hex 32 > {path})"
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("the token cannot be read", path=path, cure=cure) from error
    if len(token) < MIN_TOKEN_CHARS or not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"not a token of at least {MIN_TOKEN_CHARS} letters and digits", path=path, cure=cure)
    return token


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        cure = "Choose another with --port, or stop the process that uses it"
        raise ConfigError(f"cannot listen on {host}, port {port}: {getattr(error, 'strerror', None) or error}", cure=cure) from error


@contextmanager
def _logging() -> Iterator[None]:
    """One line a request on standard error: method, route, status, time. The route, not the path: ids may say something."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = [logging.getLogger(name) for name in ("realm.serve", "uvicorn.error")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if logger.name == "realm.serve" else logging.WARNING)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


@contextmanager
def _signals_end(server: uvicorn.Server) -> Iterator[None]:
    """SIGTERM and SIGINT drain the server, before it listens to them itself and after, when it raises them once more."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
