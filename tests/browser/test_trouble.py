"""When things go wrong: a server that is gone, busy, locked, untrained; a link to nothing; a web page of somebody else."""

import json
import shutil
import threading
import time
from dataclasses import replace

import pytest

from realm.serve.shapes import LIMITS

from .tools import Site, until

pytestmark = pytest.mark.browser
QUESTION = "What is the currency of Arvad?"


def test_a_server_that_is_gone_and_comes_back(browser, start, run_copy):
    first = start(run_copy)
    browser.open(first.url)
    first.stop()
    browser.one("#question").send_keys(QUESTION)
    browser.press("Ask", "#ask-form")
    browser.sees("#alarm", "The server does not answer")
    browser.sees("#ask-result", "The server does not answer")
    start(run_copy, port=first.port)
    browser.one(".said")
    browser.quiet()
    assert browser.text("#alarm") == ""
    assert all("ERR_CONNECTION" in line or "ERR_EMPTY" in line for line in browser.complaints())


def test_a_busy_server_is_waited_for(browser, start, run_copy):
    server = start(run_copy, limits=replace(LIMITS, waiting=1))
    browser.open(server.url)
    go_on = threading.Event()
    holding = threading.Thread(target=server.serving.batcher.between, args=(go_on.wait,))
    holding.start()
    first = threading.Thread(target=server.call, args=("POST", "/v1/answer", {"questions": ["Who?"], "timeout_ms": 60_000}))
    first.start()
    until(lambda: server.serving.batcher.depth == 1)
    browser.one("#question").send_keys(QUESTION)
    browser.press("Ask", "#ask-form")
    browser.sees("#ask-result", "The server is busy; trying again in 1 s")
    go_on.set()
    browser.one(".said")
    for thread in (holding, first):
        thread.join()
    assert all("503" in line for line in browser.complaints())


def test_a_server_that_stays_busy(browser, start, run_copy):
    server = start(run_copy, limits=replace(LIMITS, waiting=0))
    browser.open(f"{server.url}/#ask?q=Who%3F")
    browser.sees("#ask-result", "The server is busy")
    browser.sees("#ask-result", "Try again")
    assert "wait 1 s" in browser.text("#ask-result")
    complaints = browser.complaints()
    assert len(complaints) == 4 and all("503" in line for line in complaints)


def test_a_token_is_asked_for(browser, start, run_copy):
    server = start(run_copy, token="a-long-enough-token")
    browser.open(f"{server.url}/#ask?q=Who%3F")
    browser.sees("#token-form", "This server asks for a token")
    field = browser.one("#token")
    field.send_keys("a-wrong-token")
    browser.press("Continue", "#token-form")
    browser.sees("#alarm", "does not know this token")
    field.send_keys("a-long-enough-token")
    browser.press("Continue", "#token-form")
    browser.one(".said")
    assert browser.text("#alarm") == "" and not browser.one("#token-form").is_displayed()
    browser.driver.refresh()
    browser.one(".said")  # the tab remembers it
    assert "a-long" not in browser.run("return document.documentElement.outerHTML + document.cookie + JSON.stringify({...localStorage})")
    assert all("401" in line for line in browser.complaints())


def test_a_run_without_a_reader_searches(browser, start, run_copy):
    shutil.rmtree(run_copy / "stages" / "finetune")
    browser.open(start(run_copy).url)
    browser.one("#question").send_keys(QUESTION)
    browser.press("Ask", "#ask-form")
    browser.sees("#ask-result", "This run has no reader yet")
    assert len(browser.all(".evidence > li")) == 5


def test_links_to_nothing(browser, shared):
    browser.open(f"{shared.url}/#documents?id=nobody")
    browser.sees("#documents-main", "There is no such document")
    browser.open(f"{shared.url}/#documents?start=5000")
    browser.sees("#documents-main", "There is no such page")
    browser.open(f"{shared.url}/#nonsense?%")
    browser.sees("main", "Ask the documents")
    browser.open(f"{shared.url}/#explain?x=%5BMASK%5D&k=999")
    browser.sees("#explain-result", "The request is not valid")
    assert all("404" in line or "422" in line for line in browser.complaints())


FOREIGN = """<!doctype html><title>foreign</title><iframe name="frame"></iframe><script>
const server = SERVER, done = {};
const body = JSON.stringify({documents: [{id: "foreign", title: "", text: "foreign words"}]});
const tries = {
  read: () => fetch(server + "/v1/run").then(r => r.text()),
  opaque: () => fetch(server + "/v1/run", {mode: "no-cors"}).then(r => r.text()),
  post: () => fetch(server + "/v1/documents", {method: "POST", headers: {"content-type": "application/json"}, body}).then(r => r.text()),
  plain: () => fetch(server + "/v1/documents", {method: "POST", mode: "no-cors", body}).then(r => r.text()),
  remove: () => fetch(server + "/v1/documents/Arvad%2F0", {method: "DELETE"}).then(r => r.text()),
  page: () => fetch(server + "/").then(r => r.text()),
};
const form = document.createElement("form");
Object.assign(form, {method: "post", enctype: "text/plain", action: server + "/v1/documents", target: "frame"});
const field = document.createElement("input");
[field.name, field.value] = [body.slice(0, -2) + ', "title": "', '"}]}'];
form.append(field); document.body.append(form); form.submit();
for (const path of ["/v1/run", "/v1/documents", "/page/app.js"]) {
  const script = document.createElement("script"); script.src = server + path;
  script.onload = () => done["script " + path] = "ran"; document.body.append(script);
}
const inside = document.createElement("iframe"); inside.src = server + "/"; document.body.append(inside);
Promise.all(Object.entries(tries).map(async ([name, act]) => { done[name] = await act().catch(() => "refused"); }))
  .then(() => setTimeout(() => window.done = done, 1500));
</script>"""


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "evil.example"])
def test_a_foreign_page_reads_and_changes_nothing(browser, server, name):
    """On another port of the same name, under another name of this machine, and from a site of its own."""
    before = server.call("GET", "/v1/documents")
    site = Site(FOREIGN.replace("SERVER", json.dumps(server.url)))
    try:
        browser.open(f"http://{name}:{site.port}/")
        until(lambda: browser.run("return window.done"))
        done = browser.run("return window.done")
        assert set(done) == {"read", "opaque", "post", "plain", "remove", "page"}, done  # no script of the server ran
        assert all(found in ("refused", "") for found in done.values()), done
        assert browser.run("try { return frames[1].document.body.innerText } catch { return '' }") == ""
    finally:
        site.stop()
    assert server.call("GET", "/v1/documents") == before
    browser.complaints()  # the browser tells of everything it has blocked


def test_a_name_that_points_here_is_not_ours(browser, shared):
    browser.open(f"http://evil.example:{shared.port}/")
    assert "does not answer under this name" in browser.text("body")
    assert browser.run("return fetch('/v1/run').then(r => r.status)") == 403
    time.sleep(0.2)
    assert browser.complaints()
