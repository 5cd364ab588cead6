"""The files of the page as the server gives them: types, tags, policy, no token, nothing that is not there, nothing from elsewhere."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from realm.serve import routes
from realm.serve.guard import CSP, HEADERS, PAGE_PREFIX, Rules

from .tools import served

FOLDER = Path(routes.__file__).parent / "page"
FILES = sorted(FOLDER.iterdir())
ADDRESSES = [PAGE_PREFIX + path.name for path in FILES if path.name != routes.START_PAGE]


class Links(HTMLParser):
    """What a page of HTML loads, and what of it a strict policy would stop."""

    def __init__(self):
        super().__init__()
        self.loaded = []
        self.inline = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag in ("script", "img", "link"):
            self.loaded.append(given.get("src") or given.get("href") or "")
        if tag == "style" or "style" in given or any(name.startswith("on") for name in given):
            self.inline.append(tag)


def test_every_file_has_its_type_and_is_whole(client):
    assert {path.suffix for path in FILES} <= set(routes.MEDIA_TYPES)
    for path in FILES:
        found = client.get("/" if path.name == routes.START_PAGE else PAGE_PREFIX + path.name)
        assert found.status_code == 200 and found.content == path.read_bytes()
        assert found.headers["content-type"] == routes.MEDIA_TYPES[path.suffix] and found.headers["x-content-type-options"] == "nosniff"
        assert client.head(found.request.url.path).headers["content-length"] == str(path.stat().st_size)


def test_the_policy_has_no_exception(client):
    foreign = client.get("/healthz", headers={"host": "evil.example"})
    for found in (foreign, *map(client.get, ("/", *ADDRESSES, "/v1/run", "/page/nothing.js"))):
        headers = found.headers
        assert headers.get_list("content-security-policy") == [CSP]
        assert {name.decode() for name, _ in HEADERS} <= set(headers)
        assert len(headers.get_list("cache-control")) == 1
    parts = dict(part.strip().split(" ", 1) for part in CSP.split(";"))
    assert parts["default-src"] == "'none'" and parts["frame-ancestors"] == "'none'" and parts["require-trusted-types-for"] == "'script'"
    assert {parts[f"{kind}-src"] for kind in ("script", "style", "connect")} == {"'self'"} and parts["img-src"] == "'self' blob:"
    assert "unsafe" not in CSP and "http" not in CSP and "data:" not in CSP


def test_a_browser_that_has_a_file_is_told_so(client):
    first = client.get("/page/app.js")
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache" and re.fullmatch(r'"[0-9a-f]{32}"', tag)
    for known in (tag, f'W/{tag}, "other"'):
        again = client.get("/page/app.js", headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert again.headers["content-security-policy"] == CSP
    assert client.get("/page/app.js", headers={"if-none-match": '"other"'}).status_code == 200
    assert client.get("/v1/run").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/page", "/page/", "/page/index.html", "/page/nothing.js", "/page/../guard.py", "/page/%2e%2e/guard.py", "/page/..%2fguard.py"]
)
def test_nothing_else_is_there(client, path):
    found = client.get(path)
    assert found.status_code == 404 and found.json()["error"]["code"] == "not_found"
    assert client.post("/", json={}).status_code == 405


def test_the_page_needs_no_token_and_everything_else_does(tiny_run, tmp_path):
    with served(shutil.copytree(tiny_run, tmp_path / "run"), Rules(token="a-long-enough-token")) as client:
        assert all(client.get(address).status_code == 200 for address in ("/", *ADDRESSES))
        for address in ("/v1/run", "/openapi.json", "/v1/documents", "/page/../v1/run", "/pages"):
            assert client.get(address).status_code == 401, address
        assert client.get("/", headers={"host": "evil.example"}).status_code == 403
        assert client.get("/page/app.js", headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200  # somebody follows a link


def test_the_page_loads_its_own_files_and_no_others(client):
    links = Links()
    links.feed(client.get("/").text)
    assert links.loaded and not links.inline and all(client.get(f"/{link}").status_code == 200 for link in links.loaded)
    texts = {path.name: path.read_text("utf-8") for path in FILES}
    for name, text in texts.items():
        imported = re.findall(r'^(?:import|export) .*?from "(.*?)";$', text, re.M | re.S)
        assert all(link.startswith("./") and link[2:] in texts for link in imported), name
        addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.-]+\.\w+[^\s\"')]*", text)) - {"http://www.w3.org/2000/svg"}
        assert not addresses and "@import" not in text and "url(" not in text, name


def test_no_text_becomes_html():
    """The browser would stop it, too; nothing of the kind is even written."""
    ways = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function|createContextualFragment|srcdoc|javascript:"
    )
    assert not [path.name for path in FILES if re.search(ways, path.read_text("utf-8"))]


def test_files_keep_the_house_rules():
    assert not [path.name for path in FILES if len(path.read_text("utf-8").splitlines()) >= 300]
