"""Everything shown in a browser, examined by axe-core ($REALM_AXE, or as `make test-browser` fetches it): light, dark, desk and phone."""

import json
import os
import sys
from pathlib import Path

import pytest

from realm import Realm
from realm.report import write_report
from realm.storage.layout import RunPaths
from realm.storage.manifests import write_note

from .test_page import QUESTION, VIEWS

pytestmark = pytest.mark.browser
LOOKS = {
    "light": {"scheme": "light"}, "dark": {"scheme": "dark"}, "phone": {"width": 390, "height": 844},
    "dark-phone": {"width": 390, "height": 844, "scheme": "dark"},
}  # fmt: skip
PLACED = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"

each_look = pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)


@pytest.fixture(scope="module")
def axe():
    path = Path(os.environ.get("REALM_AXE") or PLACED)
    if not path.is_file():
        pytest.skip(f"no {path}: make test-browser fetches it where npm is")
    return path.read_text("utf-8")


def violations(browser, axe):
    """What axe finds wrong with the page, with everything unfolded: rule, what it means, the first elements."""
    browser.quiet()
    browser.run("document.querySelectorAll('details').forEach(e => { e.open = true })")
    browser.run(axe)
    script = (
        "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(r => done(r.violations), e => done([String(e)]))"
    )
    found = browser.driver.execute_async_script(script)
    return [
        one if isinstance(one, str) else f"{one['id']}: {one['help']}: " + " | ".join(node["html"][:160] for node in one["nodes"][:4])
        for one in found
    ]


def test_the_examination_bites(browser, axe):
    browser.open(
        "data:text/html,<title>x</title><html lang=en><main><h1>x</h1><img src=x><p style='color:%23ccc;background:white'>grey</p></main>"
    )
    assert {line.partition(":")[0] for line in violations(browser, axe)} >= {"image-alt", "color-contrast"}
    browser.complaints()  # of the picture that is not there


@each_look
@pytest.mark.parametrize("place", ["", *VIEWS])
def test_the_page(browser, shared, axe, place, look):
    browser.open(shared.url + "/" + place, **look)
    assert violations(browser, axe) == []


@each_look
def test_an_answer_that_is_withheld_and_one_without_a_document(browser, shared, axe, look):
    browser.open(shared.url, **look)
    browser.ask(QUESTION)
    browser.run("const e = document.querySelector('#ask-below'); e.value = 95; e.dispatchEvent(new Event('input', {bubbles: true}))")
    browser.sees(".said", "I am not sure")
    assert violations(browser, axe) == []
    browser.run("sessionStorage.clear()")
    browser.press("Leave out and ask again", ".evidence > li")
    browser.sees(".pair", "WITHOUT 1 DOCUMENT")
    assert violations(browser, axe) == []


@each_look
def test_the_question_before_something_is_deleted(browser, shared, axe, look):
    browser.open(f"{shared.url}/#documents?id=Arvad%2F0", **look)
    browser.press("Delete")
    assert browser.run("return document.querySelector('dialog').open")
    assert violations(browser, axe) == []


def as_the_demo_does(paths):
    """Claims, answers and an explanation, where the demo's report finds them."""
    realm = Realm.open(paths.root)
    answer = realm.ask(QUESTION).to_dict() | {"correct": False, "accepted": ["Tirel"]}
    explained = realm.explain("The currency of Arvad is the [MASK].", ["Tirel"], k=4).to_dict()
    found = {"claims": ["Before training 3 of 60 are right."], "answers": [answer, answer | {"correct": True}], "explanation": explained}
    for name, value in found.items():
        write_note(paths.results / f"{name}.json", json.loads(json.dumps(value, default=vars)))


@each_look
@pytest.mark.parametrize("demo", [False, True], ids=["report", "demo"])
def test_the_report(browser, run_copy, axe, demo, look):
    paths = RunPaths(run_copy)
    if demo:
        as_the_demo_does(paths)
    browser.open(write_report(paths).as_uri(), **look)
    if demo:
        assert "Before training 3 of 60 are right." in browser.text(".claims") and browser.all(".evidence")
    assert violations(browser, axe) == []
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
