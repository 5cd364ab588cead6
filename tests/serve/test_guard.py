"""Requests that nobody honest sends, refused with 4xx in bounded time and memory; and those of load balancers, proxies and browsers."""

import asyncio
import gzip
import json

import pytest

from realm.errors import ConfigError
from realm.serve.guard import Guard, Rules, check, plain_path
from realm.serve.server import is_loopback, read_token, rules_of
from realm.serve.shapes import LIMITS, Limits, Refusal

from .test_server import raw
from .tools import document, served

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


READ = ("/", "/page/app.js", "/healthz", "/readyz", "/openapi.json", "/v1/run", "/v1/documents", "/v1/documents/Arvad/0")


@pytest.mark.parametrize("path", READ)
def test_head_is_get_without_its_body(client, path):
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code == 200 and not head.content and got.content
    assert {k: v for k, v in head.headers.items() if k != "content-length"} == {
        k: v for k, v in got.headers.items() if k != "content-length"
    }


@pytest.mark.parametrize(("path", "methods"), [
    ("/", "GET, HEAD, OPTIONS"), ("/healthz", "GET, HEAD, OPTIONS"), ("/healthz/", "GET, HEAD, OPTIONS"), ("/v1/answer", "POST, OPTIONS"),
    ("/v1/answer/", "POST, OPTIONS"), ("/v1/documents", "GET, POST, PUT, HEAD, OPTIONS"), ("/v1/run", "GET, HEAD, OPTIONS"),
    ("/v1/documents/Arvad/0", "DELETE, GET, HEAD, OPTIONS"), ("/v1/documents/remove", "DELETE, GET, POST, HEAD, OPTIONS"),
])  # fmt: skip
def test_options_are_the_methods_of_a_path(client, path, methods):
    found, refused = client.options(path), client.patch(path, json={})
    assert found.status_code == 204 and found.headers["allow"] == methods and not found.content
    assert refused.status_code == 405 and refused.headers["allow"] == methods and refused.json()["error"]["code"] == "method"


BODY, KIND = b'{"questions": ["Who?"], "k": 1}', "application/json"


@pytest.mark.parametrize(("line", "kind", "body", "status"), [
    *(("POST /v1/answer", kind, BODY, 200) for kind in (KIND, "Application/JSON; Charset=UTF-8")),
    *(("POST /v1/answer", kind, BODY, 415) for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; a=b", "")),
    *(("POST /v1/answer", KIND, body, 400) for body in (
        b"", b"{", b"[" * 100_000, BODY[:-1] + b",}", BODY + BODY, b"{'questions': 'Who?'}", b"questions=Who?", b'{"questions": ["\xe9"]}',
    )),
    *(("POST /v1/answer", KIND, BODY[:-2] + value + b"}", 422) for value in (b"NaN", b"-Infinity", b"1e999", b"1.5")),
    *(("POST /v1/answer", KIND, body, 422) for body in (b"[]", b"null", b'"Who?"', b"3", b"{}", b'{"\\ud800": 1}')),
    # Whatever such a request brings, what is wrong is where it goes.
    *((line, "", b"", 405) for line in ("POST /healthz", "POST /", "PUT /v1/answer", "PATCH /v1/documents", "PUT /v1/documents/Arvad/0")),
    *((line, "text/plain", b"a", 405) for line in ("POST /readyz", "DELETE /v1/run", "TRACE /", "PROPFIND /")),
    *((line, "text/plain", b"a", 404) for line in ("POST /nothing", "PUT /v1", "DELETE /nothing", "PATCH /nothing")),
    ("GET /v1/answer", "", b"", 405), ("HEAD /v1/answer", "", b"", 405), ("HEAD /nothing", "", b"", 404), ("GET /v1/run", KIND, b"{}", 400),
    *((f"GET {path}/", "", b"", 200) for path in ("/", "/readyz", "/v1/run", "/v1/documents")), ("POST /v1/answer/", KIND, BODY, 200),
    ("GET //healthz", "", b"", 200), ("GET /%68ealthz", "", b"", 200), ("DELETE /v1/documents/nobody", "", b"", 404),
])  # fmt: skip
def test_the_status_says_what_is_wrong(client, line, kind, body, status):
    method, path = line.split(" ")
    found = client.request(method, f"http://127.0.0.1{path}", content=body, headers={"content-type": kind} if kind else {})
    assert found.status_code == status, found.text
    assert (status == 405) == ("allow" in found.headers)
    assert method == "HEAD" or status == 200 or found.json()["error"]["message"]


def test_headers_that_a_refusal_needs(client, run_copy):
    refused = client.post("/v1/answer", content=BODY, headers={"content-type": KIND, "content-encoding": "br"})
    assert refused.status_code == 415 and refused.headers["accept-encoding"] == "identity"
    assert client.get("/", headers={"if-none-match": "*"}).status_code == 304
    with served(run_copy, rules=Rules(token="a-token-of-a-server")) as closed:
        assert closed.get("/v1/run").headers["www-authenticate"] == "Bearer" and closed.get("/v1/run").status_code == 401


def test_options_of_nothing_and_from_elsewhere(client):
    assert client.options("/nothing").status_code == 404
    found = client.options("/v1/answer", headers={"origin": "https://elsewhere.example", "access-control-request-method": "POST"})
    assert found.status_code == 403 and not any(name.startswith("access-control") for name in found.headers)


@pytest.mark.parametrize(("written", "plain"), [
    ("/", "/"), ("//", "/"), ("*", "/"), ("/healthz", "/healthz"), ("/healthz//", "/healthz"), ("/v1/run/", "/v1/run"),
    ("/v1/documents/", "/v1/documents"), ("/v1/documents/remove/", "/v1/documents/remove"), ("/v1/documents/a/b", "/v1/documents/a/b"),
    ("/v1/documents/folder/", "/v1/documents/folder/"), ("http://127.0.0.1:8000/healthz", "/healthz"), ("http://127.0.0.1", "/"),
    ("https://realm.example/v1/run/", "/v1/run"),
])  # fmt: skip
def test_paths_as_proxies_write_them(written, plain):
    assert plain_path(written) == plain


def test_an_id_that_ends_with_a_slash(run_copy):
    with served(run_copy) as client:
        assert client.post("/v1/documents/", json={"documents": [document("folder/", "Zwieback is sold in Zwieback.")]}).is_success
        assert client.get("/v1/documents/folder/").json()["id"] == "folder/" and client.get("/v1/documents/folder").status_code == 404
        assert client.delete("/v1/documents/folder/").is_success


SITE = "realm.example"


@pytest.mark.parametrize(("path", "passes", "headers"), [
    ("/healthz", True, {"host": "10.2.0.7:8000"}), ("/readyz", True, {"host": "[fd00::7]:8000"}),  # probes of Kubernetes
    ("/healthz", True, {}), ("/healthz", False, {"host": "evil.example"}),  # the first is HTTP/1.0
    ("/v1/run", False, {"host": "10.2.0.7:8000"}), ("/v1/run", False, {}),
    ("/v1/run", True, {"host": SITE, "origin": f"https://{SITE}"}),
    ("/v1/run", True, {"host": f"{SITE}:443", "origin": f"https://{SITE}"}),  # as nginx may write it
    ("/v1/run", True, {"host": f"{SITE}:80", "origin": f"http://{SITE}"}),
    ("/v1/run", True, {"host": SITE, "origin": f"https://{SITE}:443"}),
    ("/v1/run", False, {"host": f"{SITE}:80", "origin": f"https://{SITE}"}),
    ("/v1/run", False, {"host": SITE, "origin": "https://other.example"}), ("/v1/run", False, {"host": SITE, "origin": "null"}),
    ("/v1/run", False, {"host": SITE, "origin": "https://[bad"}),
    ("/v1/run", True, {"host": SITE, "x-forwarded-host": "other", "x-forwarded-proto": "https", "via": "1.1 proxy"}),
])  # fmt: skip
def test_hosts_and_origins_behind_a_proxy(path, passes, headers):
    scope = {"path": path, "method": "GET", "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    try:
        check(scope, Rules(hosts=frozenset({SITE})))
    except Refusal:
        passes = not passes
    assert passes


def test_on_a_socket(start, run_copy):
    """Sent by haproxy, curl and a forward proxy."""
    port, rest = start(run_copy).port, b"Host: 127.0.0.1\r\nConnection: close\r\n\r\n"
    for line, status in (
        (b"HEAD /healthz HTTP/1.1\r\n" + rest, b" 200 "), (b"OPTIONS * HTTP/1.1\r\n" + rest, b" 204 "),
        (b"HEAD /healthz HTTP/1.0\r\n\r\n", b" 200 "), (b"POST /v1/answer HTTP/1.1\r\nContent-Type: application/json\r\n" + rest, b" 411 "),
        (b"POST /nothing HTTP/1.1\r\nContent-Length: 99999999\r\n" + rest, b" 404 "),
        (b"GET http://127.0.0.1/healthz/ HTTP/1.1\r\n" + rest, b" 200 "),
    ):  # fmt: skip
        said = raw(port, line)
        assert status in said.partition(b"\r\n")[0] and (line.startswith((b"GET", b"POST")) or said.endswith(b"\r\n\r\n")), line
