"""Load balancers, proxies and browsers: HEAD, OPTIONS, slashes behind a path, whole addresses, ports of the scheme, addresses as hosts."""

import pytest

from realm.serve.guard import Rules, check, plain_path
from realm.serve.shapes import Refusal

from .test_server import raw
from .tools import document, served

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
