"""Prose of a language model: citations are checked, what is not there stays so, and an endpoint that misbehaves costs one line."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from realm.answering.records import Answer, Evidence
from realm.answering.writing import Endpoint, EndpointError, checked, written, written_in_time
from realm.errors import ConfigError

PASSAGES = ["The boiler was replaced by Hartmann Heating on 14 March 2024.", "It cost 4,200 euros, taxes included."]
TEXTS = [
    ("Hartmann Heating replaced the boiler [1].", [((1,), True)]),
    ("Hartmann Heating replaced the boiler. [1]", [((1,), True)]),
    ("It cost 4,200 euros [2]. Hartmann replaced it [1].", [((2,), True), ((1,), True)]),
    ("It cost 4200 euros [1, 2].", [((1, 2), True)]),
    ("It cost 5,200 euros [2].", [((2,), False)]),
    ("It cost 4,200 euros [1].", [((1,), False)]),
    ("It cost 4,200 euros.", [((), False)]),
    ("It cost 4,200 euros [7].", [((7,), False)]),
    ("The roof leaks badly in winter storms [1].", [((1,), False)]),
    ("The boiler was replaced [1][2]! Was it dear?", [((1, 2), True), ((), False)]),
    ("", []),
    ("[1]", []),
]


@pytest.mark.parametrize(("text", "found"), TEXTS)
def test_citations_are_checked(text, found):
    assert [(claim.cites, claim.supported) for claim in checked(text, PASSAGES)] == found


@pytest.mark.parametrize("address", ["", "localhost", "http://localhost/v1", "ftp://a/v1#m", "#m", "http://#m", "file:///etc/passwd#m"])
def test_an_address_names_a_model(address):
    with pytest.raises(ConfigError, match="not the address"):
        Endpoint.parse(address)


def answer(level="answer"):
    evidence = tuple(Evidence("d", number, "Note", text, 0.5, 0.5, "", 0, 0, 0) for number, text in enumerate(PASSAGES))
    return Answer("Who replaced the boiler?", "Hartmann Heating", 0.9, evidence, {}, {}, level=level)


def said(text):
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


@pytest.fixture
def serving():
    """An endpoint that answers with given bytes and status, after some seconds; it keeps what it was sent."""
    servers = []

    def start(body, status=200, seconds=0.0):
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                server.seen.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
                time.sleep(seconds)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.seen, server.daemon_threads, server.handle_error = [], True, lambda *_: None  # a client that gave up is no news
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server, Endpoint.parse(f"http://127.0.0.1:{server.server_port}/v1/#small")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_blocks_go_in_with_numbers_and_the_answer_stays(serving):
    server, endpoint = serving(said("Hartmann Heating replaced it on 14 March 2024 [1]."))
    found = written(answer(), endpoint)
    assert [(claim.text, claim.cites, claim.supported) for claim in found.prose] == [
        ("Hartmann Heating replaced it on 14 March 2024.", (1,), True)
    ]
    assert found.answer == "Hartmann Heating" and found.to_dict()["prose"][0]["cites"] == [1]
    path, sent = server.seen[0]
    assert (path, sent["model"], sent["temperature"]) == ("/v1/chat/completions", "small", 0)
    assert all(f"[{number}] Note \n{text}" in sent["messages"][1]["content"] for number, text in enumerate(PASSAGES, 1))


def test_what_is_not_here_stays_so(serving):
    server, endpoint = serving(said("NOT HERE"))
    assert written(answer(), endpoint) == answer()
    assert written(answer("nothing"), endpoint) == answer("nothing") and len(server.seen) == 1


@pytest.mark.parametrize(("body", "status", "why"), [
    (b"{}", 200, "does not answer by OpenAI's protocol"),
    (b"data: garbage\n\n" * 1000, 200, "does not answer by OpenAI's protocol"),
    (b"\xff\xfe\0", 200, "does not answer by OpenAI's protocol"),
    (b'{"choices": []}', 200, "does not answer by OpenAI's protocol"),
    (b'{"choices": [{"message": null}]}', 200, "does not answer by OpenAI's protocol"),
    (b"[" * 2**21, 200, "does not answer by OpenAI's protocol"),
    (b"[" * 100_000, 200, "does not answer by OpenAI's protocol"),
    (b"no such model", 404, "refuses: 404"),
    (b"busy", 503, "refuses: 503"),
])  # fmt: skip
def test_an_endpoint_that_misbehaves_is_one_line(serving, body, status, why):
    _, endpoint = serving(body, status)
    with pytest.raises(EndpointError, match=why) as error:
        written(answer(), endpoint)
    assert "\n" not in str(error.value) and "#small" in str(error.value)
    with pytest.raises(EndpointError, match=why):
        asyncio.run(written_in_time([answer()] * 2, endpoint, 5))


def test_an_endpoint_that_hangs_or_is_down_is_one_line(serving):
    _, endpoint = serving(said("late"), seconds=3)
    with pytest.raises(EndpointError, match="says nothing"):
        endpoint.complete("", "", seconds=0.2)
    with pytest.raises(EndpointError, match="cannot be reached"):
        Endpoint.parse("http://127.0.0.1:9/v1#small").complete("", "")


@pytest.mark.parametrize(("hangs", "limit", "ready"), [(0.0, 5, True), (0.3, 1.8, True), (5, 0.3, False)])
def test_one_time_limit_for_several_answers(serving, hangs, limit, ready):
    """Eight of them at 0.3 s would take 2.4 s one after the other."""
    _, endpoint = serving(said("It cost 4,200 euros [2]."), seconds=hangs)
    started = time.monotonic()
    found = asyncio.run(written_in_time([answer()] * 7 + [answer("nothing")], endpoint, limit))
    assert time.monotonic() - started < limit + 1 and all(one.answer == "Hartmann Heating" for one in found)
    assert [bool(one.prose) for one in found] == [ready] * 7 + [False]
    assert [bool(one.note) for one in found] == [not ready] * 7 + [False]


@pytest.fixture(scope="module")
def transformers_serve(tmp_path_factory):
    """transformers' own server of the protocol with a random model of some thousand weights: its address."""
    for needed in ("torch", "openai", "accelerate", "multipart"):
        pytest.importorskip(needed, reason="needs transformers[serving]")
    from language_models import write_language_model

    directory, log = write_language_model(tmp_path_factory.mktemp("served") / "lm"), tmp_path_factory.mktemp("log") / "log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", "--device", "cpu", "--port", str(port), str(directory)]
    server = subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 200
        while b"startup complete" not in log.read_bytes() and server.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        assert server.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}/v1", directory
    finally:
        server.kill()
        server.wait()


def test_a_real_server_of_the_protocol(transformers_serve):
    """What a random model says stands beside the answer, unsupported; a model that it does not have is refused in one line."""
    url, directory = transformers_serve
    found = written(answer(), Endpoint.parse(f"{url}#{directory}"))
    assert found.answer == "Hartmann Heating" and found.prose and not any(claim.supported for claim in found.prose)
    with pytest.raises(EndpointError, match="refuses: 4"):
        written(answer(), Endpoint.parse(f"{url}#{directory}-not"))
