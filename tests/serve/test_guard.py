"""Requests that nobody honest sends: every one is refused with 4xx, in bounded time and memory, and the server goes on."""

import asyncio
import gzip
import json

import pytest

from realm.errors import ConfigError
from realm.serve.guard import Guard, Rules
from realm.serve.server import is_loopback, read_token, rules_of
from realm.serve.shapes import LIMITS, Limits

from .tools import served

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("body", [
    {}, {"questions": []}, {"questions": ["  "]}, {"questions": ["word " * 1_000_000]},
    {"questions": ["Who?"] * (LIMITS.texts + 1)}, {"questions": ["Who?"], "k": 10**9}, {"questions": ["Who?"], "k": 0},
    {"questions": ["Who?"], "k": True}, {"questions": ["Who?"], "k": "3"},
    {"questions": ["Who?"], "timeout_ms": 0}, {"questions": ["Who?"], "abstain_below": 1.5},
    {"questions": ["Who?"], "abstain_below": "0.5"}, {"questions": ["Who?"], "surprise": 1}, {"questions": [None]},
    {"questions": "Who?"},
], ids=lambda body: str(body)[:40])  # fmt: skip
def test_bad_values(client, body):
    found = client.post("/v1/answer", json=body)
    assert found.status_code == 422 and set(found.json()["error"]) == {"code", "message"} and len(found.text) < 2000


def test_odd_questions_are_answered_and_bad_sentences_refused(client):
    odd = ["\x00a", "\u202e\u200b\U0001f600", "<script>alert(1)</script>", "a" * LIMITS.text_chars, "[MASK] [CLS] [SEP]"]
    assert client.post("/v1/answer", json={"questions": odd, "k": 2}).status_code == 200
    for body in (
        {"text": "no mask"}, {"text": "[MASK]", "targets": ["a", "b"]},
        {"text": "[MASK] x", "exclude_documents": ["nobody"]}, {"text": "[MASK] " * 60},
        {"text": "[MASK]", "targets": ["\x00"]},
    ):  # fmt: skip
        found = client.post("/v1/explain", json=body)
        assert found.status_code == 422, (body, found.text)


def test_bodies(client):
    large = json.dumps({"questions": ["Who?"], "pad": "x" * LIMITS.body_bytes}).encode()
    assert client.post("/v1/answer", content=large, headers=JSON).status_code == 413
    assert client.post("/v1/answer", content=iter([large]), headers=JSON).status_code == 413  # nobody said how long it is
    bomb = gzip.compress(b'{"questions": ["' + b"a" * 50_000_000 + b'"]}')
    assert client.post("/v1/answer", content=bomb, headers={**JSON, "content-encoding": "gzip"}).status_code == 415


def test_a_body_that_does_not_come():
    """A byte at a time, without end: the time counts from the first."""
    said = []

    async def answers(scope, receive, send):
        raise AssertionError("the body was not whole")

    async def trickles():
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def hears(message):
        said.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": "/v1/answer", "headers": headers}
    asyncio.run(asyncio.wait_for(Guard(answers, Rules(), Limits(body_seconds=0.1))(scope, trickles, hears), 60))
    assert said[0]["status"] == 408 and b"did not come within" in said[1]["body"]


def test_headers(client):
    for size, status in ((LIMITS.header_bytes // 2, 200), (2 * LIMITS.header_bytes, 431), (100_000, 431)):
        assert client.get("/healthz", headers={"x-a": "a" * size}).status_code == status
        assert client.get("/healthz", headers={f"x-{number}": "a" * 88 for number in range(size // 100)}).status_code == status
        assert client.get("/healthz?" + "a" * min(size, 50_000)).status_code == (414 if status == 431 else status)
    found = client.get("/healthz", headers={"x-a": "a" * 100_000})
    assert found.json()["error"]["code"] == "headers" and found.headers["connection"] == "close"
    both = {**JSON, "content-length": "2", "transfer-encoding": "chunked"}
    found = client.post("/v1/answer", content=iter([b"{}"]), headers=both)
    assert found.status_code == 400 and "not both" in found.text and found.headers["connection"] == "close"


def test_foreign_pages_and_names(client):
    """What a browser sends for another site's page, and for a name that an attacker lets point here."""
    body = {"questions": ["Who?"], "k": 1}
    for headers in (
        {"host": "evil.example"}, {"host": "127.0.0.1.evil.example"}, {"host": ""},
        {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://127.0.0.1@evil.example"}, {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):  # fmt: skip
        found = client.post("/v1/answer", json=body, headers=headers)
        assert found.status_code == 403, headers
        assert "access-control-allow-origin" not in found.headers
        assert client.get("/v1/documents", headers=headers).status_code == 403
    assert client.options("/v1/answer", headers={"origin": "https://evil.example"}).status_code == 403
    assert client.post("/v1/answer", json=body, headers={"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}).is_success
    assert client.get("/healthz", headers={"host": "LOCALHOST:8000"}).is_success


def test_security_headers_are_everywhere(client):
    for found in (client.get("/healthz"), client.get("/nothing"), client.get("/healthz", headers={"host": "evil.example"})):
        assert "default-src 'none'" in found.headers["content-security-policy"] and "unsafe" not in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff" and found.headers["x-frame-options"] == "DENY"
        assert found.headers["cross-origin-resource-policy"] == "same-origin" and found.headers["cache-control"] == "no-store"
        assert found.headers["content-type"] == "application/json"


def test_paths(client):
    for path in ("/v1/documents/..%2f..%2fetc%2fpasswd", "/v1/documents/%00", "/../../etc/passwd", "/v1/../config.toml", "/docs"):
        assert client.get(path).status_code == 404, path
    for query in ("start=-1", "limit=0", "limit=100000", "start=1e9", "start=" + "9" * 30):
        assert client.get(f"/v1/documents?{query}").status_code == 422
    assert client.get(f"/v1/documents?start={2**53}").json()["documents"] == []


def test_text_stays_text_and_out_of_the_log(run_copy, caplog):
    hostile = "<script>alert('Zwieback')</script> is the currency of Zwieback."
    caplog.set_level(0)
    with served(run_copy) as client:
        row = {"id": "<img src=x>", "title": "<b>Zwieback</b>", "text": hostile}
        assert client.post("/v1/documents", json={"documents": [row]}).is_success
        found = client.get("/v1/documents/<img src=x>")
        assert found.json()["blocks"][0]["text"] == hostile and found.headers["content-type"] == "application/json"
        client.post("/v1/answer", json={"questions": ["What is Zwieback?"], "k": 2})
        client.post("/v1/answer", json={"questions": ["What is Zwieback?"], "k": 2, "Zwieback": 1})
        client.serving.current = None
        assert client.post("/v1/answer", json={"questions": ["What is Zwieback?"], "k": 2}).status_code == 500
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(("realm", "uvicorn"))]
    assert any("/v1/answer 200" in line for line in ours) and any("AttributeError" in line for line in ours)
    assert not [line for line in ours if "Zwieback" in line or "img" in line]


def test_token(run_copy):
    token = "0123456789abcdef"
    with served(run_copy, Rules(token=token)) as client:
        assert client.get("/v1/run").status_code == 401
        for wrong in (token[:-1], token + "0", "", "\xfc"):
            assert client.get("/v1/run", headers={"authorization": f"Bearer {wrong}".encode("latin-1")}).status_code == 401
        assert client.get("/v1/run", headers={"authorization": token}).status_code == 401
        assert client.get("/v1/run", headers={"authorization": f"Bearer {token}"}).status_code == 200
        assert client.get("/healthz").status_code == 200 and client.get("/openapi.json").status_code == 401


def test_addresses(tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.5", "example.org")))
    assert rules_of("127.0.0.1", None, (), False).token is None
    for host, file, names, cure in (
        ("192.168.1.5", None, (), "--token-file"), ("0.0.0.0", None, ("realm.lan",), "--without-token"),
        ("0.0.0.0", token, (), "--allow-host"), ("192.168.1.5", tmp_path / "none", (), "openssl"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=cure):
            rules_of(host, file, names, False)
    rules = rules_of("0.0.0.0", token, ("Realm.LAN",), False)
    assert rules.token == "0123456789abcdef" and "realm.lan" in rules.hosts and "0.0.0.0" not in rules.hosts
    assert "192.168.1.5" in rules_of("192.168.1.5", None, (), True).hosts and rules.token not in repr(rules)
    for text in ("", "short", "two words of it all", "nül" * 10):
        token.write_text(text, "utf-8")
        with pytest.raises(ConfigError, match="16"):
            read_token(token)
