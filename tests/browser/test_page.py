"""What a person does with the page: ask, read the evidence, explain, look at the run; on a phone, in the dark, with keys alone."""

from urllib.parse import urlencode

import pytest
from selenium.webdriver.common.keys import Keys

from .tools import until

pytestmark = pytest.mark.browser
QUESTION = "What is the currency of Arvad?"
EXPLAIN = "#explain?x=The+currency+of+Arvad+is+the+%5BMASK%5D.&y=Tirel&k=4"
VIEWS = [
    "#ask?q=What+is+the+currency+of+Arvad%3F&k=3", EXPLAIN, "#documents", "#documents?add=1", "#documents?id=Arvad%2F0&from=4&to=9", "#run",
]  # fmt: skip


def test_ask_and_read_the_evidence(browser, shared):
    browser.open(shared.url)
    assert "12 documents" in browser.text("#ask-result")
    known, links = shared.call("GET", "/v1/run")["examples"], browser.all(".examples a")
    assert [link.text for link in links] == [one["question"] for one in known] and len(known) == 6
    links[0].click()
    browser.sees(".said", shared.call("POST", "/v1/answer", {"questions": [known[0]["question"]], "k": 5})["answers"][0]["answer"])
    browser.open(shared.url)
    browser.ask(QUESTION)
    wanted = shared.call("POST", "/v1/answer", {"questions": [QUESTION], "k": 5})["answers"][0]
    assert browser.text(".said") == f"Probably: {wanted['answer']}" and f"{wanted['p']:.3f}" in browser.text(".answer .scores")
    items = browser.all(".evidence > li")
    assert len(items) == 5
    for item, given in zip(items, wanted["evidence"], strict=True):
        assert f"{given['p_z']:.3f}" in item.text and given["doc_id"] in item.text and given["text"] in item.text
        assert item.find_element("css selector", "mark").text == given["answer"]
    assert "embedding" in browser.text("#ask-result") and "corpus 1" in browser.text("footer")
    browser.press("Copy citation", ".answer")
    browser.sees(".answer", "Copied")
    browser.press("Show in document", ".evidence > li")
    best = wanted["evidence"][0]
    browser.sees(".document", best["doc_id"])
    assert browser.text(".document mark") == best["answer"]
    browser.driver.back()
    browser.one("#view-ask:not([hidden])")
    browser.sees(".said", wanted["answer"])
    assert browser.run("return document.title") == f"{QUESTION} – REALM"


def _slide(browser, percent):
    """Move the control for how sure an answer must be, as a hand would."""
    script = "const e = document.querySelector('#ask-below'); e.value = arguments[0]; e.dispatchEvent(new Event('input', {bubbles: true}))"
    browser.run(script, str(percent))


def test_an_answer_that_is_held_back(browser, shared):
    """At once, without asking again; the tab remembers it; the server is told."""
    browser.open(shared.url)
    browser.ask(QUESTION)
    given = shared.call("POST", "/v1/answer", {"questions": [QUESTION], "k": 5})["answers"][0]
    sure = given["p"] if given["confidence"] is None else given["confidence"]
    assert sure < 0.95 and browser.text(".said") == f"Probably: {given['answer']}" and browser.text("#ask-below-said") == "off"
    _slide(browser, 95)
    assert browser.text(".said") == "I am not sure" and f"{sure:.3f}, below 0.95" in browser.text(".held")
    assert not browser.one(".guess .said").is_displayed() and len(browser.all(".evidence > li")) == 5
    browser.one(".guess summary").click()
    assert browser.text(".guess .said") == given["answer"]
    browser.run("window.sent = []; const real = fetch; window.fetch = (...r) => { sent.push(r); return real(...r) }")
    browser.press("Ask", "#ask-form")
    browser.sees(".held", "below 0.95")
    assert '"abstain_below":0.95' in browser.run("return sent.map(r => r[1].body).join()")
    browser.driver.refresh()
    browser.sees(".said", "I am not sure")
    assert browser.text("#ask-below-said") == "95 %"
    _slide(browser, 0)
    assert browser.text(".said").endswith(given["answer"]) and not browser.all(".held")


def test_leaving_documents_out(browser, shared):
    """From the evidence, one after the other; both answers side by side; taken back by chips; a link holds it."""
    browser.open(shared.url)
    browser.ask(QUESTION)
    first = shared.call("POST", "/v1/answer", {"questions": [QUESTION], "k": 5})["answers"][0]
    out = [first["evidence"][0]["doc_id"]]
    browser.press("Leave out and ask again", ".evidence > li")
    browser.sees(".pair", "WITHOUT 1 DOCUMENT")
    wanted = shared.call("POST", "/v1/answer", {"questions": [QUESTION], "k": 5, "exclude_documents": out})["answers"][0]
    assert [card.text for card in browser.all(".pair .said")] == [f"Probably: {answer['answer']}" for answer in (first, wanted)]
    ids = [found.text for found in browser.all(".evidence .id")]
    assert ids == [item["doc_id"] for item in wanted["evidence"]] and out[0] not in ids
    browser.press("Leave out and ask again", ".evidence > li")
    browser.sees(".pair", "WITHOUT 2 DOCUMENTS")
    gone = [first["evidence"][0], wanted["evidence"][0]]
    chips = [chip.text for chip in browser.all(".chips li > span")]
    assert all(item["title"] in chip and item["doc_id"] in chip for chip, item in zip(chips, gone, strict=True))
    link = browser.run("return location.href")
    browser.one(".chips li button").click()
    until(lambda: len(browser.all(".chips li")) == 1)
    browser.quiet()
    browser.one(".chips li button").click()
    until(lambda: not browser.all(".chips li"))
    browser.quiet()
    browser.sees(".pair", "NOW, WITH ALL DOCUMENTS")
    assert browser.all(".pair .said")[1].text.endswith(first["answer"]) and out[0] in [found.text for found in browser.all(".evidence .id")]
    for look in ({"width": 360, "height": 740}, {"scheme": "dark"}):
        browser.open(link, **look)
        browser.one(".said")
        assert len(browser.all(".chips li")) == 2 and out[0] not in [found.text for found in browser.all(".evidence .id")]
        assert not _too_wide(browser)
    browser.press("Use all again", "#ask-without")
    browser.sees(".pair", "NOW, WITH ALL DOCUMENTS")


def test_leaving_everything_out(browser, shared):
    names = [row["id"] for row in shared.call("GET", "/v1/documents")["documents"]]
    browser.open(f"{shared.url}/#ask?{urlencode([('q', QUESTION), ('k', 3), *(('without', name) for name in names)])}")
    browser.sees("#ask-result", "Every document is left out")
    assert len(browser.all(".chips li")) == len(names)
    assert all("422" in line for line in browser.complaints())


def test_explain(browser, shared):
    browser.open(shared.url + EXPLAIN)
    wanted = shared.call("POST", "/v1/explain", {"text": "The currency of Arvad is the [MASK].", "targets": ["Tirel"], "k": 4})
    items = browser.all(".candidates > li")
    assert len(items) == 4 and "No document" in items[0].text
    for item, given in zip(items, wanted["candidates"], strict=True):
        assert given["title"] in item.text and len(item.find_elements("css selector", ".bar")) == 4
        sign = "+" if given["utility"] > 0 else "−" if given["utility"] < 0 else "0"
        assert item.find_elements("css selector", "dd")[-1].text.startswith(sign)
    assert [line.text.split("\n")[0] for line in browser.all(".predictions li")] == [given["text"] for given in wanted["predictions"]]


def test_hiding_words(browser, shared):
    """A sentence without a mask is refused in words; selected words are hidden and become the target."""
    browser.open(f"{shared.url}/#explain")
    field = browser.one("#sentence")
    field.send_keys("The currency of Arvad is the Tirel.", Keys.ENTER)
    browser.sees("#explain-result", "Hide words first")
    browser.run("document.querySelector('#sentence').setSelectionRange(29, 34)")
    browser.press("Hide the selected words")
    assert browser.run("return [sentence.value, targets.value]") == ["The currency of Arvad is the [MASK].", "Tirel"]
    browser.press("Explain", "#explain-form")
    browser.one(".candidates > li")


def test_the_run(browser, shared):
    browser.open(f"{shared.url}/#run")
    run = shared.call("GET", "/v1/run")
    assert "12" in browser.text(".tiles") and f"REALM {run['realm']}" in browser.text(".tiles")
    assert len(browser.all("table tbody tr")) == len(run["results"])


def _too_wide(browser):
    """Elements that reach beyond the window, but for those inside a part that scrolls by itself."""
    return browser.run(
        "return [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, .unseen, .skip') && e.checkVisibility()"
        " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 120))"
    )


@pytest.mark.parametrize("place", VIEWS)
def test_narrow(browser, shared, place):
    browser.open(shared.url + place, width=360, height=740)
    assert browser.run("return [innerWidth, document.documentElement.scrollWidth]") == [360, 360] and not _too_wide(browser)
    small = browser.run(
        "return [...document.querySelectorAll('.top a, .top button, main button, main input:not(.unseen), main select')]"
        ".filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 24).map(e => e.outerHTML)"
    )
    assert not small


def _brightness(browser, what):
    return sum(browser.run(f"return getComputedStyle(document.body).{what}.match(/[0-9.]+/g).map(Number)")[:3]) / 765


def test_dark(browser, shared):
    for place in VIEWS:
        browser.open(shared.url + place, scheme="dark")
        assert _brightness(browser, "backgroundColor") < 0.2 and _brightness(browser, "color") > 0.8
    for wanted, dark in (("light", False), ("dark", True), ("auto", True)):
        browser.one("#theme").click()
        assert browser.text("#theme-name") == wanted and (_brightness(browser, "backgroundColor") < 0.2) == dark
        browser.driver.refresh()
        browser.quiet()
        assert browser.text("#theme-name") == wanted and (_brightness(browser, "backgroundColor") < 0.2) == dark


def test_keys_alone(browser, shared):
    browser.open(shared.url)
    browser.keys(Keys.TAB)
    assert browser.focused() == "Skip to the content"
    browser.keys(Keys.ENTER)
    assert browser.focused() == "main"
    browser.keys("/")
    assert browser.focused() == "question"
    browser.keys(QUESTION, Keys.ENTER)
    browser.one(".said")
    assert browser.run("return document.querySelector('#ask-result').ariaLive") == "polite"
    browser.quiet()
    browser.tab_to("Show in document")
    outline = browser.run("const s = getComputedStyle(document.activeElement); return [s.outlineStyle, parseFloat(s.outlineWidth)]")
    assert outline[0] == "solid" and outline[1] >= 2
    browser.keys(Keys.ENTER)
    browser.one(".document mark")
    browser.tab_to("Delete")
    browser.keys(Keys.ENTER)
    assert browser.run("return document.querySelector('dialog').open") and browser.focused() == "Keep it"
    browser.keys(Keys.ESCAPE)
    assert not browser.run("return document.querySelector('dialog').open") and browser.focused() == "Delete"
    assert shared.call("GET", "/v1/run")["corpus"]["documents"] == 12
