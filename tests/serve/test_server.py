"""The command itself, on a real socket: draining, slow senders, floods, a second server, and each endpoint."""

import asyncio
import contextlib
import ctypes
import gzip
import http.client
import json
import logging
import multiprocessing
import random
import shutil
import signal
import socket
import threading
import time
import urllib.error
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress

import numpy as np
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from processes import until
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from realm.cli import main
from realm.serve import serving
from realm.serve.guard import Guard, Rules
from realm.serve.server import BoundedProtocol, _listen, make_app, serve
from realm.serve.serving import Serving
from realm.serve.shapes import LIMITS

from .tools import call

HEAD = b"POST /v1/answer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNK = b"10000\r\n" + b"a" * 65536 + b"\r\n"
MOST = 64 * 2**20
"""Bytes that hostile requests may take, one after the other: the largest body with what JSON makes of it, several times."""


def raw(port, data, seconds=20.0):
    """What a server says to these bytes until it closes the connection, or says nothing for a while."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        found = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        with contextlib.suppress(ConnectionError, TimeoutError):
            while part := connection.recv(65536):
                found += part
        return found


def test_a_server_from_start_to_end(start, run_copy, capsys):
    """One process for many looks: starting it takes longer than all of them."""
    server = start(run_copy)
    _each_endpoint(server.url)
    assert server.rise(lambda: _floods(server.port)) < MOST
    assert main(["serve", str(run_copy), "--port", str(server.port)]) == 2
    assert "cannot listen" in capsys.readouterr().err
    assert main(["serve", str(run_copy), "--port", "0"]) == 2
    assert "another process" in capsys.readouterr().err
    sent, answers = [], []

    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        body = json.dumps({"questions": ["What is the currency of Arvad?"] * 64, "k": 12, "timeout_ms": 60_000})
        connection.request("POST", "/v1/answer", body, {"content-type": "application/json"})
        sent.append(body)
        answers.append(connection.getresponse().status)

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    while len(sent) < len(asking) or not answers:  # when the first is answered, the others have long come
        time.sleep(0.01)
    code, said = server.end(signal.SIGTERM)
    for thread in asking:
        thread.join()
    assert code == 0 and answers == [200, 200, 200], said
    assert "Traceback" not in said and "currency" not in said and "POST /v1/answer 200" in said


def _each_endpoint(url):
    """Of each kind one: what they answer is tested without a socket."""
    asked = {"questions": ["What is the currency of Arvad?"], "k": 3, "timeout_ms": 60_000}  # of a busy machine
    assert call(f"{url}/readyz")["status"] == "ready" and call(f"{url}/v1/answer", asked)["answers"][0]["evidence"][0]["title"]
    new = {"id": "a/b?c", "title": "", "text": "Novaria pays with crowns."}
    assert call(f"{url}/v1/documents", {"documents": [new]})["documents"] == [{"id": "a/b?c", "blocks": 1}]
    assert call(f"{url}/v1/documents?id=a%2Fb%3Fc")["blocks"][0]["text"] == "Novaria pays with crowns."
    assert call(f"{url}/v1/documents", {"documents": [{**new, "text": "No."}]}, "PUT")["documents"][0]["blocks"] == 1
    assert call(f"{url}/v1/documents/remove", {"ids": ["a/b?c"]})["removed"] == ["a/b?c"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        call(f"{url}/v1/documents?id=a%2Fb%3Fc")
    assert refused.value.status == 404 and json.load(refused.value)["error"]["code"] == "unknown"


def _sent(port, body, *headers):
    return raw(port, b"\r\n".join([HEAD[:-2], *headers, b"Content-Length: %d" % len(body), b"Connection: close"]) + b"\r\n\r\n" + body)


def _floods(port):
    """Requests that are not honest: a 4xx answer or a closed connection, at once."""
    assert b" 422 " in _sent(port, json.dumps({"questions": ["word " * 1_000_000]}).encode())
    for large in (
        HEAD + b"Content-Length: 20000000\r\n\r\n" + b"a" * 20_000_000,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + 300 * CHUNK,
    ):
        found = raw(port, large)
        assert b" 413 " in found or not found, "the rest is not read, so the answer may be lost on its way"
    assert b" 415 " in _sent(port, gzip.compress(b"a" * 50_000_000), b"Content-Encoding: gzip")
    assert b" 404 " in raw(port, b"GET /v1/documents/../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    head = HEAD
    assert b" 413 " in raw(port, head + b"Content-Length: 6442450944\r\n\r\n{")
    assert b" 400 " in raw(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"".join(b"X-%d: a\r\n" % i for i in range(9000)))
    assert b" 400 " in raw(port, b"GET /" + b"a" * 100_000)
    assert b" 431 " in raw(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: " + b"a" * 100_000 + b"\r\n\r\n")
    assert b" 400 " in raw(port, HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    assert b" 400 " in raw(port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 50 + b"\r\n\r\n")
    assert b" 400 " in raw(port, head + b"Content-Length: -5\r\n\r\n")
    assert b" 400 " in raw(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n")
    assert b" 403 " in raw(port, b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
    assert b" 200 " in raw(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")


@pytest.mark.slow
def test_slow_senders_are_let_go(start, run_copy):
    """Headers that never end, and a body that never ends, each a byte at a time."""
    server = start(run_copy)
    head = b"POST /v1/answer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
    for data, seconds in ((head, 15), (head + b"\r\n", 40)):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            began = time.monotonic()
            connection.sendall(data)
            with contextlib.suppress(OSError):
                while time.monotonic() - began < 2 * seconds:
                    connection.sendall(b"x" if data.endswith(b"\n\r\n") else b"X-a: b\r\n")
                    time.sleep(1)
            assert time.monotonic() - began < seconds
    assert call(f"{server.url}/readyz")["status"] == "ready"


PRELOADED = ["realm.serve.server", "transformers.models.bert.modeling_bert"]


@pytest.fixture
def begin():
    """Starts servers quickly, as children of a process that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    started = []

    def start(run):
        reader, writer = context.Pipe(duplex=False)
        options = {"host": "127.0.0.1", "port": 0, "token_file": None, "allow_hosts": (), "without_token": False, "say": writer.send}
        started.append(context.Process(target=serve, args=(run,), kwargs=options))
        started[-1].start()
        assert reader.poll(200)
        return started[-1], reader.recv().split(" at ")[1].split(";")[0]

    yield start
    for process in started:
        process.kill()
        process.join()


TWO_HUNDRED = [pytest.param(seed, 20, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]) for seed in range(1, 11)]
"""Ten runs, so that none grows to a thousand small files."""


@pytest.mark.parametrize(("seed", "kills"), [(0, 2), *TWO_HUNDRED])
def test_kill_9_under_writes(begin, run_copy, seed, kills):
    """Every acknowledged document is there after a restart, and no removed one comes back. Whatever was not acknowledged may be either."""
    chance, here, gone = random.Random(seed), {}, set()
    number = 0
    for _ in range(kills):
        process, url = begin(run_copy)
        listed = {row["id"] for row in call(f"{url}/v1/documents?start=0&limit=1000")["documents"]}
        assert set(here) <= listed and not gone & listed
        for name in chance.sample(sorted(here), min(3, len(here))):
            assert call(f"{url}/v1/documents?id={name}")["blocks"][0]["text"] == here[name]
            hits = call(f"{url}/v1/search", {"texts": [here[name]], "k": min(100, len(listed))})["results"][0]
            assert name in {hit["doc_id"] for hit in hits} or len(listed) > 100
            assert not gone & {hit["doc_id"] for hit in hits}
        number += 1
        began, (added, text) = time.monotonic(), _document(number)
        call(f"{url}/v1/documents", {"documents": [{"id": added, "title": "", "text": text}]})
        here[added] = text
        # A moment within the next few changes, however fast or slow the machine is.
        killer = threading.Timer(chance.uniform(0.0, 4 * (time.monotonic() - began)), process.kill)
        killer.start()
        number = _change_until_the_end(url, chance, here, gone, number)
        killer.join()
        process.join()


def _document(number):
    return f"new/{number}", f"Crown number {number} is the money of country {number}."


def _change_until_the_end(url, chance, here, gone, number):
    """Add and remove until the server is dead; keeps what was acknowledged. Returns the last number given to a document."""
    while True:
        number += 1
        added, text = _document(number)
        if not _done(f"{url}/v1/documents", {"documents": [{"id": added, "title": "", "text": text}]}):
            return number
        here[added] = text
        if len(here) <= 5:
            continue
        removed = chance.choice(sorted(here))
        del here[removed]  # from now on it may be there or not
        if not _done(f"{url}/v1/documents/remove", {"ids": [removed]}):
            return number
        gone.add(removed)


def _done(url, body):
    """Whether a change was acknowledged; a server that lives must not refuse it."""
    try:
        return call(url, body)
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException):
        return None


def test_free_memory_goes_back(monkeypatch):
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        pytest.skip("another C library than glibc")
    pieces = [np.ones(1000) for _ in range(1000)]
    del pieces
    said, trim = [], library.malloc_trim
    library.malloc_trim = lambda keep: said.append(trim(keep))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    serving.give_back()
    assert len(said) == 1 and said[0] in (0, 1), "whether memory was released, in the words of the C library"


@pytest.mark.parametrize("error", [OSError, TypeError, AttributeError])
def test_another_c_library(monkeypatch, error):
    asked = []

    def refuse(name):
        asked.append(name)
        raise error("no malloc_trim here")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    serving.give_back()
    assert asked == [None]


pytest.importorskip("schemathesis")


@pytest.fixture(scope="module")
def described(tiny_run, tmp_path_factory):
    serving = Serving(shutil.copytree(tiny_run, tmp_path_factory.mktemp("schema") / "run"))
    app = make_app(serving, Rules(hosts=frozenset({"testserver", "localhost", "127.0.0.1"})))
    app.router.lifespan_context = _goes_on
    yield schemathesis.openapi.from_asgi("/openapi.json", app)
    serving.close()


@asynccontextmanager
async def _goes_on(app):
    """schemathesis ends an application with each of its sessions; here it outlives them."""
    yield


@pytest.mark.parametrize("examples", [3, pytest.param(40, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_nothing_fails(described, mode, examples):
    """What the document allows, and what it does not allow, endpoint by endpoint."""
    asked = []
    for found in described.get_all_operations():
        operation = found.ok()
        if mode == GenerationMode.NEGATIVE and not (operation.body or operation.query):
            continue  # nothing in such a request can be wrong

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        def check(case):
            answer = case.call()
            asked.append(answer.status_code)
            late = answer.status_code == 504 and case.body.get("timeout_ms", LIMITS.timeout_ms) < LIMITS.timeout_ms  # its own wish
            assert answer.status_code < 500 or late, (case.path, answer.text)
            case.validate_response(answer, checks=[response_schema_conformance, status_code_conformance])

        check()
    taken = asked.count(200) + asked.count(504)  # a busy machine does not make a request wrong
    there = len(asked) - asked.count(404)  # what a drawn request names is seldom there
    assert len(asked) > 20 and (mode == GenerationMode.POSITIVE) == (taken > there / 3)


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
    guarded = Guard(app, Rules())
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


def test_an_answer_does_not_wait_for_an_acknowledgement():
    """The two parts of an answer, headers and body, are sent at once, on the very socket that ``serve`` listens on."""
    options = []

    def connection_made(self, transport):
        BoundedProtocol.connection_made(self, transport)
        options.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with listening(answering, connection_made=connection_made) as (_, port, _):
        assert raw(port, REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).endswith(b"aaaa")
    assert options and all(options)


def test_who_does_not_read_is_let_go():
    with ExitStack() as stack, listening(answering, unread_seconds=1.0) as (server, port, _):
        clients = [unread(stack, port) for _ in range(5)]
        until(lambda: len(server.server_state.connections) == 5)
        until(lambda: not server.server_state.connections and not server.server_state.tasks)
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
            until(lambda: len(server.server_state.connections) >= 1)
        until(lambda: len(server.server_state.connections) == 2)
        time.sleep(1.5)
        assert len(server.server_state.connections) == 2


def test_the_end_does_not_wait_for_them(caplog):
    with ExitStack() as stack, listening(answering, drain=60, leaving_seconds=1.0) as (server, port, end):
        for _ in range(20):
            unread(stack, port)
        until(lambda: len(server.server_state.connections) == 20)
        assert end() < 20
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


def test_what_is_computed_too_long_is_refused_at_the_end(caplog):
    with ExitStack() as stack, listening(computing, drain=1) as (server, port, end):
        client = unread(stack, port)
        until(lambda: len(server.server_state.tasks) == 1)
        assert end() < 20
        assert b" 503 " in client.recv(4096)
    assert not [record for record in caplog.records if record.exc_info]
