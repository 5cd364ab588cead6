"""Clients that ask and never read, on real sockets, with an application that answers more than the system keeps for them."""

import asyncio
import logging
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import uvicorn

from realm.serve.connections import BoundedProtocol
from realm.serve.guard import Guard, Rules
from realm.serve.meter import Meter
from realm.serve.server import _listen

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LARGE = 16 * 2**20


async def answering(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % LARGE)]})
    for _ in range(LARGE // 65536):
        await send({"type": "http.response.body", "body": b"a" * 65536, "more_body": True})
    await send({"type": "http.response.body"})


async def computing(scope, receive, send):
    await asyncio.sleep(1000)


@contextmanager
def listening(app, drain=60, **bounds):
    """A server of this application behind the guard: itself, its port, and what ends it and says how long that took."""
    protocol = type("Bounded", (BoundedProtocol,), {**bounds, "_unread": {}})
    guarded = Guard(app, Rules(), Meter())
    with _listen("127.0.0.1", 0) as where:
        options = {"http": protocol, "ws": "none", "lifespan": "off", "log_config": None, "timeout_graceful_shutdown": drain}
        server = uvicorn.Server(uvicorn.Config(guarded, **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [where]})
        thread.start()

        def end():
            began = time.monotonic()
            server.should_exit = True
            thread.join(120)
            assert not thread.is_alive()
            return time.monotonic() - began

        try:
            yield server, where.getsockname()[1], end
        finally:
            end()


def unread(stack, port):
    client = stack.enter_context(socket.socket())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(REQUEST)
    return client


def wait(until, seconds=60):
    end = time.monotonic() + seconds
    while not until() and time.monotonic() < end:
        time.sleep(0.05)
    return until()


def test_who_does_not_read_is_let_go():
    with ExitStack() as stack, listening(answering, unread_seconds=1.0) as (server, port, _):
        clients = [unread(stack, port) for _ in range(5)]
        assert wait(lambda: len(server.server_state.connections) == 5)
        assert wait(lambda: not server.server_state.connections and not server.server_state.tasks)
        found = 0
        with suppress(ConnectionError):
            while part := clients[0].recv(2**20):
                found += len(part)
        assert found < LARGE


def test_who_reads_gets_everything():
    with ExitStack() as stack, listening(answering, unread_seconds=60.0) as (_, port, _):
        client, found = unread(stack, port), 0
        time.sleep(1.5)
        while found < LARGE:
            part = client.recv(2**20)
            assert part
            found += len(part)


def test_only_so_many_do_not_read_at_once():
    with ExitStack() as stack, listening(answering, unread_seconds=1000.0, most_unread=2, leaving_seconds=0.5) as (server, port, _):
        for _ in range(6):
            unread(stack, port)
            assert wait(lambda: len(server.server_state.connections) >= 1)
        assert wait(lambda: len(server.server_state.connections) == 2)
        time.sleep(1.5)
        assert len(server.server_state.connections) == 2


def test_the_end_does_not_wait_for_them(caplog):
    with ExitStack() as stack, listening(answering, drain=60, leaving_seconds=1.0) as (server, port, end):
        for _ in range(20):
            unread(stack, port)
        assert wait(lambda: len(server.server_state.connections) == 20)
        assert end() < 20
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


def test_what_is_computed_too_long_is_refused_at_the_end(caplog):
    with ExitStack() as stack, listening(computing, drain=1) as (server, port, end):
        client = unread(stack, port)
        assert wait(lambda: len(server.server_state.tasks) == 1)
        assert end() < 20
        assert b" 503 " in client.recv(4096)
    assert not [record for record in caplog.records if record.exc_info]
