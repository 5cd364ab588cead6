"""The Model Context Protocol, by the SDK's own client: in this process, over standard input and output, over HTTP, and killed."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("mcp")
import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from realm import DEFAULT_BODY
from realm.cli import main
from realm.models.bodies.known import present_directory
from realm.serve import agents as protocol
from realm.serve.agents import SCHEME, Agents
from realm.serve.tools import Place

TOKEN = "a" * 32


def over(run):
    return Agents(Place(run, (), "", print), explains=True)


def asked(server, act):
    """What ``act`` makes of a client of ``server``."""

    async def session():
        async with Client(server) as client:
            return await act(client)

    return asyncio.run(session())


@asynccontextmanager
async def over_http(url):
    """The way of a client to a server, with the token."""
    http = httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60)
    async with http, streamable_http_client(url, http_client=http) as streams:
        yield streams


@pytest.fixture
def agents_at(start, tmp_path, monkeypatch):
    """Processes that serve a place, with a cache of their own: parameters that start one, or one with a token."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "token").write_text(TOKEN)
    return {
        "stdio": lambda place: StdioServerParameters(command=sys.executable, args=["-m", "realm", "mcp", str(place)], env={**os.environ}),
        "http": lambda place: start(place, "--token-file", str(tmp_path / "token"), verb="mcp", at=("--http", "127.0.0.1:0")),
    }


def test_every_tool_answers(tiny_run):
    async def act(client):
        names = [tool.name for tool in (await client.list_tools()).tools]
        found = await client.call_tool("search", {"text": "the currency of Arvad", "k": 2})
        block = found.structured_content["blocks"][0]
        calls = {
            "ask": {"question": "What is the currency of Arvad?"},
            "read": {"block": block["block_id"]},
            "explain": {"text": "The currency of Arvad is the [MASK].", "k": 3},
        }
        return names, block, {name: await client.call_tool(name, arguments) for name, arguments in calls.items()}

    names, block, answers = asked(over(tiny_run).server, act)
    assert names == ["search", "ask", "read", "explain"]
    assert {"doc_id", "start", "end", "score"} <= block.keys()
    assert not any(answer.is_error for answer in answers.values())
    assert answers["read"].structured_content["doc_id"] == block["doc_id"]
    assert {"level", "answer", "confidence", "evidence"} <= answers["ask"].structured_content.keys()


@pytest.mark.parametrize(("name", "arguments", "said"), [
    ("search", {}, "text: Field required"),
    ("search", {"text": "x", "k": 21}, "k: Input should be less than or equal to 20"),
    ("ask", {"question": " "}, "question: "),
    ("read", {"document": "nobody"}, "no document has the id 'nobody'"),
    ("read", {}, "give a document or a block"),
    ("explain", {"text": "no mask"}, "[MASK]"),
])  # fmt: skip
def test_a_bad_call_is_one_line_for_the_model(tiny_run, name, arguments, said):
    answer = asked(over(tiny_run).server, lambda client: client.call_tool(name, arguments))
    assert answer.is_error and said in answer.content[0].text and "\n" not in answer.content[0].text


def test_documents_are_resources(tiny_run, monkeypatch):
    monkeypatch.setattr(protocol, "LISTED", 5)

    async def act(client):
        pages = [await client.list_resources()]
        while pages[-1].next_cursor:
            pages.append(await client.list_resources(cursor=pages[-1].next_cursor))
        uris = [resource.uri for page in pages for resource in page.resources]
        wrong = []
        for uri in ("file:///etc/passwd", f"{SCHEME}nobody", f"{uris[0]}?start=x"):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(uri)
            wrong.append(refused.value.message)
        return uris, (await client.read_resource(uris[0])).contents[0], wrong

    uris, read, wrong = asked(over(tiny_run).server, act)
    assert len(uris) == len(set(uris)) == 12 and uris[0] == f"{SCHEME}Arvad%2F0"
    assert "People in Arvad pay with" in read.text and not read.meta
    assert "begins with" in wrong[0] and "no document" in wrong[1] and "cursor" in wrong[2]


def test_a_long_document_names_the_address_of_its_rest(tiny_run, monkeypatch):
    monkeypatch.setattr("realm.serve.tools.MOST_CHARS", 1)

    async def act(client):
        first = (await client.read_resource(f"{SCHEME}Arvad%2F0")).contents[0]
        return first, (await client.read_resource(first.meta["next"])).contents[0]

    first, second = asked(over(tiny_run).server, act)
    assert (len(first.text), len(second.text)) == (1, 1) and first.meta["next"].startswith(f"{SCHEME}Arvad%2F0?start=") and second.meta


def test_an_unknown_tool_and_a_place_without_explanations(tiny_run):
    async def act(client):
        with pytest.raises(MCPError, match="no tool 'explain'; there are: search, ask, read"):
            await client.call_tool("explain", {"text": "[MASK]"})

    asked(Agents(Place(tiny_run, (), "", print), explains=False).server, act)


def test_a_call_that_waits_says_how_far_indexing_is(tiny_run, monkeypatch):
    place, told = Place(tiny_run, (), "", print), []
    current = place.current

    def slow():
        for done in range(1, 4):
            place.position.count("index: blocks", done, 3)
            time.sleep(0.1)
        return current()

    async def progress(done, total, message):
        told.append((done, message))

    monkeypatch.setattr(place, "current", slow)
    monkeypatch.setattr(protocol, "TOLD_SECONDS", 0.02)
    asked(Agents(place, explains=False).server, lambda client: client.call_tool("search", {"text": "Arvad"}, progress_callback=progress))
    assert told and told == sorted(told) and told[0][1].startswith("index: blocks ")


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.skipif(present_directory(DEFAULT_BODY) is None, reason="the weights under the released model are not installed")
def test_documents_of_a_server_that_is_killed_in_a_call(agents_at, tmp_path, transport):
    """Indexed while the first call waits, killed in the midst of it, and asked again; a file that is new is noticed."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "bridge.txt").write_text("The Harrow bridge was built in 1911 by Ellen Marsh, an engineer from Leeds.")
    for number in range(100):
        (notes / f"{number}.txt").write_text(f"Parcel {number} weighs {number + 7} kilograms and stands in the cellar. " * 8)
    question = {"question": "Who built the Harrow bridge?"}

    async def dies(client):
        async def kill(*_):
            found = subprocess.run(["pgrep", "-f", f"realm mcp {notes}"], capture_output=True, text=True).stdout.split()
            os.kill(int(found[0]), signal.SIGKILL)

        with pytest.raises(MCPError):
            await client.call_tool("ask", question, progress_callback=kill)

    async def lives(client):
        first = await client.call_tool("ask", question)
        (notes / "tower.txt").write_text("The Corran tower was painted by Ada Finch in 1950.")
        second = await client.call_tool("search", {"text": "Who painted the Corran tower?", "k": 1})
        explained = await client.call_tool("explain", {"text": "The Harrow bridge was built by [MASK].", "k": 2})
        return [answer.structured_content for answer in (first, second, explained)]

    def session(act):
        server = agents_at[transport](notes)
        return asked(over_http(server.url) if transport == "http" else server, act)

    session(dies)
    first, second, explained = session(lives)
    assert "Marsh" in first["answer"] and second["blocks"][0]["doc_id"] == "tower.txt" and explained["predictions"]


def test_over_http_with_the_token(agents_at, run_copy):
    server = agents_at["http"](run_copy)
    assert server.url.endswith("/mcp") and httpx2.post(server.url, json={}).status_code == 401
    found = asked(over_http(server.url), lambda client: client.call_tool("search", {"text": "the currency of Arvad", "k": 1}))
    assert len(found.structured_content["blocks"]) == 1 and server.end(signal.SIGTERM)[0] == 0


RUBBISH = (b"\xff\xfe\0", b'{"jsonrpc": "2.0"', b"[]", b"[" * 100_000, b'{"jsonrpc": "2.0", "id": [1], "method": 5}', b"")
ASKED_WRONG = {8: {"method": "no/such"}, 9: {"method": "tools/call", "params": {"name": 7, "arguments": "x"}}}


def test_rubbish_on_standard_input_is_passed_over(tiny_run):
    """What is no message is left, what is a wrong one is refused by its number, and the next call is answered."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "rubbish", "version": "1"}}
    call = {"name": "search", "arguments": {"text": "Arvad", "k": 1}}
    sent = {1: {"method": "initialize", "params": client}, **ASKED_WRONG, 2: {"method": "tools/call", "params": call}}
    lines = [json.dumps({"jsonrpc": "2.0", "id": number, **message}).encode() for number, message in sent.items()]
    lines[1:1] = [json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode(), *RUBBISH]
    server = subprocess.Popen([sys.executable, "-m", "realm", "mcp", str(tiny_run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        found = {}
        while 2 not in found:
            answer = json.loads(server.stdout.readline())
            found[answer["id"]] = answer
        assert {number for number, answer in found.items() if "error" in answer} == set(ASKED_WRONG)
        assert len(found[2]["result"]["structuredContent"]["blocks"]) == 1
        server.communicate(timeout=60)
        assert server.returncode == 0
    finally:
        server.kill()


@pytest.mark.skipif(not shutil.which("mcp-inspector"), reason="no inspector: npm install -g @modelcontextprotocol/inspector")
def test_the_inspector_of_the_protocol_finds_no_fault(tiny_run):
    def inspected(*words):
        command = ["mcp-inspector", "--cli", sys.executable, "-m", "realm", "mcp", str(tiny_run), *words]
        environment = {**os.environ, "MCP_INSPECTOR_SECRET_STORE": "memory"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    code, listed = inspected("--method", "tools/list", "--strict")
    assert code == 0 and [tool["name"] for tool in listed["tools"]] == ["search", "ask", "read", "explain"]
    code, found = inspected("--method", "resources/list")
    assert code == 0 and len(found["resources"]) == 12
    code, found = inspected("--method", "tools/call", "--tool-name", "search", "--tool-arg", "text=Arvad")
    assert code == 0 and not found.get("isError")
    code, found = inspected("--method", "tools/call", "--tool-name", "read")
    assert code == 5 and found["isError"]


@pytest.mark.parametrize(("arguments", "said"), [
    (["/nowhere"], "no such run, file or folder"),
    (["docs", "--http", "nope"], "not an address"),
    (["docs", "--http", "0.0.0.0:0"], "no token is required"),
])  # fmt: skip
def test_a_bad_start_is_one_line(arguments, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["mcp", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
