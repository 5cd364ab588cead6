"""Checks of a request before anything else sees it.

A web page from elsewhere must not reach a server on the loopback address: Host, Origin and Sec-Fetch-Site keep out other names and pages,
and a content type that forms cannot send keeps out requests that browsers send without asking."""

import asyncio
import hmac
import ipaddress
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from realm.serve.shapes import LIMITS, Limits, Refusal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

PAGE_PREFIX = "/page/"
PATHS_WITHOUT_TOKEN = ("/healthz", "/readyz")
"""Answered without a token, as the page is: they say one word."""
WITH_BODY = ("POST", "PUT", "PATCH")
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""A script that would turn text into HTML is stopped by the browser. Pictures come as blobs: fetching them takes the token."""
HEADERS = [
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
NO_STORE = (b"cache-control", b"no-store")
"""For every response that does not say otherwise itself."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rules:
    """Hosts that requests may name (names and addresses, lower case, without a port), and the token that each must carry, or None."""

    hosts: frozenset[str] = frozenset({"127.0.0.1", "localhost", "[::1]"})
    token: str | None = field(default=None, repr=False)


class Guard:
    """ASGI middleware: checks, reads the body within its limits, adds the security headers and logs. What a request that no route
    ``takes`` brings is not read: the application says that there is no such path or method."""

    def __init__(self, app: App, rules: Rules, limits: Limits = LIMITS, takes: Callable[..., bool] = lambda scope: True):
        self._app = app
        self._takes = takes
        self._rules = rules
        self._limits = limits

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        status, method, taken = 0, scope["method"], True
        scope = {**scope, "path": plain_path(scope["path"]), "method": "GET" if method == "HEAD" else method}

        async def sending(message: Message) -> None:
            nonlocal status
            if method == "HEAD":  # what GET says, without its body
                message = {**message, "body": b""}
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message.get("headers", ())
                own = [*headers, *([] if taken else [(b"connection", b"close")])]
                message["headers"] = own + HEADERS + [NO_STORE] * all(name.lower() != NO_STORE[0] for name, _ in own)
            await send(message)

        try:
            check_headers(scope, self._limits.header_bytes)
            check(scope, self._rules)
            taken = self._takes(scope)
            body = await self._body(scope, receive) if taken else b""
            await self._app(scope, _replay(body, receive), sending)
        except Refusal as refusal:  # before anything answered; what is left of the request is not read
            response = refusal.response()
            response.headers["connection"] = "close"
            await response(scope, receive, sending)
        except asyncio.CancelledError:  # the server ends, and the time to drain is over
            if not status:
                response = Refusal(503, "stopping", "the server is being stopped", retry_after=5).response()
                with suppress(asyncio.CancelledError):
                    await response(scope, receive, sending)
        except Exception as error:
            # kind and place alone: the message may hold a document's text
            frames = "".join(traceback.format_tb(error.__traceback__))
            logger.error("a request failed: %s\n%s", type(error).__name__, frames)
            if not status:
                await Refusal(500, "internal", "internal error; see the server's log").response()(scope, receive, sending)
        route = getattr(scope.get("route"), "path", "other")
        logger.info("%s %s %d %.1f ms", method, route, status, 1000 * (time.perf_counter() - started))

    async def _body(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes:
        """The whole body. Raises Refusal: 415 it is no JSON; 413 it is, or says it is, too large; 411 it may end anywhere; 408 it does not
        come; 400 there should be none, or is none."""
        most = self._limits.body_bytes
        said = _header(scope, b"content-length")
        if said is not None and not (said.isascii() and said.isdigit()):
            raise Refusal(400, "headers", "the content-length is not a number")
        length, streamed = None if said is None else int(said[:20]), _header(scope, b"transfer-encoding") is not None
        if scope["method"] not in WITH_BODY:
            if length or streamed:
                raise Refusal(400, "body", f"a {scope['method']} request has no body here")
            return b""
        kind = (_header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json" or (_header(scope, b"content-encoding") or "identity").lower() != "identity":
            raise Refusal(415, "content_type", "send application/json, not compressed", accept_encoding="identity")
        if length is None and not streamed:
            raise Refusal(411, "body", "say how long the body is: Content-Length")
        too_large = Refusal(413, "too_large", f"a request has at most {most} bytes")
        if length is not None and length > most:
            raise too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(400, "gone", "the connection was closed before the body ended")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise too_large
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise Refusal(408, "slow", f"the body did not come within {self._limits.body_seconds:.0f} seconds") from None
        if not size:
            raise Refusal(400, "body", "the body is empty: send JSON")
        return b"".join(parts)


def plain_path(path: str) -> str:
    """Path of a route without what proxies and clients write beside it: the server's address, slashes at either end; "*" is the server.
    An id of a document may end with slashes of its own."""
    if path.startswith(("http://", "https://")):
        path = "/" + path.split("/", 3)[3] if path.count("/") > 2 else "/"
    path = "/" if path == "*" else "/" + path.lstrip("/")
    bare = path.rstrip("/") or "/"
    return path if bare.startswith("/v1/documents/") and bare != "/v1/documents/remove" else bare


def check_headers(scope: MutableMapping[str, Any], most: int) -> None:
    """See that a request is of the size that is read, and where it ends. Raises Refusal: 400, 414 or 431; the connection is closed."""
    target = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    if target + sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > most:
        raise Refusal(414 if target > most else 431, "headers", f"a request line and its headers have at most {most} bytes")
    if _header(scope, b"content-length") is not None and _header(scope, b"transfer-encoding") is not None:
        raise Refusal(400, "headers", "send a content-length or a transfer-encoding, not both")


def check(scope: MutableMapping[str, Any], rules: Rules) -> None:
    """Let a request pass, by its headers alone. Raises Refusal: 403 for its host or the page it comes from, 401 for its token."""
    host = _header(scope, b"host")
    probed = scope["path"] in PATHS_WITHOUT_TOKEN and (host is None or address_of(_without_port(host)) is not None)
    if not probed and (host is None or _without_port(host) not in rules.hosts):
        raise Refusal(403, "host", "this server does not answer under this name (realm serve --allow-host NAME)")
    origin = _header(scope, b"origin")
    if origin is not None and not _same_site(origin, host or ""):
        raise Refusal(403, "origin", "another site may not use this server")
    if scope["path"] != "/" and (_header(scope, b"sec-fetch-site") or "none") not in ("none", "same-origin"):
        raise Refusal(403, "origin", "another site may not use this server")
    path = scope["path"]
    without_token = scope["path"] in PATHS_WITHOUT_TOKEN or (path == "/" or path.startswith(PAGE_PREFIX))
    if rules.token is not None and not without_token and not _has_token(scope, rules.token):
        raise Refusal(401, "token", "send the server's token: Authorization: Bearer TOKEN", www_authenticate="Bearer")


def _same_site(origin: str, host: str) -> bool:
    """Return whether an origin of the web is this server: proxies write the port of the scheme, browsers leave it out."""
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return False
    usual = {"http": ":80", "https": ":443"}.get(parts.scheme)
    return usual is not None and parts.netloc.removesuffix(usual) == host.lower().removesuffix(usual)


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, by which probes ask; None of a name, which an attacker could let point here."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _header(scope: MutableMapping[str, Any], name: bytes) -> str | None:
    """The value of a header. Raises Refusal: 400 if there is more than one: who reads the first and who reads the last would not agree."""
    values = [value for key, value in scope["headers"] if key == name]
    if len(values) > 1:
        raise Refusal(400, "headers", f"more than one {name.decode()} header")
    return values[0].decode("latin-1") if values else None


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def _has_token(scope: MutableMapping[str, Any], token: str) -> bool:
    """Return whether a request brings the token, compared in constant time."""
    kind, _, sent = (_header(scope, b"authorization") or "").partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(sent.strip().encode("latin-1"), token.encode("utf-8"))


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives a body that was read already, then what else comes."""
    given = False

    async def receiving() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving
