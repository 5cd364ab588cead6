"""Documents that come, change and go while somebody asks; pictures, files and scripts of every kind; text that would like to be HTML."""

import json
import shutil
from urllib.parse import urlencode

import pytest

from realm.documents.change.updates import add_documents

from .tools import until

pytestmark = pytest.mark.browser
QUESTION = "What is the currency of Arvad?"
HOSTILE = "<script>window.owned = 1</script><img src=x onerror='window.owned = 2'>"
HOSTILE_ID = '"><svg onload="window.owned=3">/..'


def paste(browser, name, title, text):
    browser.one("#new-id").send_keys(name)
    browser.one("#new-title").send_keys(title)
    browser.one("#new-text").send_keys(text)
    browser.press("Add document", ".composer")


def test_add_ask_again_change_delete(browser, server):
    browser.open(server.url)
    browser.ask(QUESTION)
    before = browser.text(".said")
    browser.press("Documents", ".top")
    browser.press("Add documents")
    paste(browser, "novaria", "Novaria", "The currency of Novaria is the Belmor crown.")
    browser.sees("#documents-note", "searchable now")
    assert "13 documents" in browser.text("#documents-main") and server.call("GET", "/v1/documents/novaria")["title"] == "Novaria"
    assert browser.one("#documents-note a").get_property("hash") == "#documents?id=novaria"
    browser.press("Ask it again and compare", "#documents-again")
    browser.one(".pair")
    browser.quiet()
    assert browser.text(".said") == before
    assert [found.text.lower() for found in browser.all(".pair h2")] == ["before, corpus version 1", "now, corpus version 2"]
    browser.open(f"{server.url}/#documents?id=novaria")
    browser.press("Change", ".document")
    field = browser.one("#new-text")
    assert "Belmor crown" in str(field.get_property("value"))
    field.clear()
    field.send_keys("The currency of Novaria is nothing at all.")
    browser.press("Save", ".composer")
    browser.sees("#documents-note", "is changed")
    assert "nothing at all" in server.call("GET", "/v1/documents/novaria")["blocks"][0]["text"]
    browser.open(f"{server.url}/#documents?id=novaria")
    browser.press("Delete", ".document")
    browser.press("Keep it", "dialog")
    assert server.call("GET", "/v1/run")["corpus"]["documents"] == 13
    browser.press("Delete", ".document")
    browser.press("Delete", "dialog")
    browser.sees("#documents-note", "is deleted")
    assert "12 documents" in browser.text("#documents-main") and server.call("GET", "/v1/run")["corpus"]["documents"] == 12


def test_ids_that_no_path_can_hold(browser, server):
    for name, words in ((".", "One dot is the whole name."), ("..", "Two dots are another name.")):
        server.call("POST", "/v1/documents", {"documents": [{"id": name, "title": "", "text": words}]})
        browser.open(f"{server.url}/#documents?{urlencode({'id': name})}")
        browser.sees(".document", words)


def test_an_upload_changes_the_answer(browser, server, tmp_path):
    """All documents are replaced, so that no old answer can be left."""
    browser.open(server.url)
    browser.ask(QUESTION)
    before = browser.text(".said")
    text = "Nobody sells anything on the moon, so {} stones are worth nothing."
    ids = [row["id"] for row in server.call("GET", "/v1/documents")["documents"]]
    rows = [{"id": name, "title": "Moon", "text": text.format(1000 + i)} for i, name in enumerate(ids)]
    (file := tmp_path / "moon.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    browser.press("Documents", ".top")
    browser.press("Add documents")
    browser.one("#files").send_keys(str(file))
    browser.press("Add 12 documents", ".forms")
    browser.sees(".forms", "That id is taken")
    browser.complaints()  # the browser reports the 409
    assert "Tirel" in server.call("GET", "/v1/documents/Arvad%2F0")["blocks"][0]["text"]
    browser.one("#replace").click()
    browser.press("Add 12 documents", ".forms")
    browser.sees("#documents-note", "12 documents are searchable now")
    browser.press("Ask it again and compare", "#documents-again")
    browser.sees(".verdict", "The answer changed")
    said = [found.text for found in browser.all(".said")]
    assert said[0] == before != said[1] and "moon" in browser.text(".evidence")
    assert all("409" in line for line in browser.complaints())


@pytest.mark.parametrize(("name", "data", "said"), [
    ("picture.png", b"\x89PNG", "not a .txt, .md or .jsonl file"),
    ("binary.txt", b"\xff\xfe\x00\x01", "not UTF-8 text"), ("null.txt", b"a\x00b", "not a text file"),
    ("empty.txt", b"  \n", "there is no text"),
    ("broken.jsonl", b'{"id": "a", "text": "b"}\n{"id": "c"', "broken.jsonl, line 2: not JSON"),
    ("number.jsonl", b'{"id": 1, "text": "b"}', "line 1: id must be text"),
    ("twice.jsonl", b'{"id": "a", "text": "b"}\n{"id": "a", "text": "c"}', "this id occurs twice"),
    ("none.jsonl", b"\n", "There is no document in it"), ("large.txt", b"a " * 4_500_000, "larger than 8.0 MiB"),
])  # fmt: skip
def test_files_that_are_no_documents(browser, shared, tmp_path, name, data, said):
    browser.open(f"{shared.url}/#documents?add=1")
    (tmp_path / name).write_bytes(data)
    browser.one("#files").send_keys(str(tmp_path / name))
    browser.sees(".forms", said)
    assert not browser.all("#replace")


def test_markdown_and_text_become_documents(browser, server, tmp_path):
    (tmp_path / "guide.md").write_text("# The guide to Novaria\n\nNovaria pays with crowns.", "utf-8")
    (tmp_path / "näh.txt").write_text("The näh is a river in Novaria. \U0001f600", "utf-8")
    browser.open(f"{server.url}/#documents?add=1")
    browser.one("#files").send_keys(f"{tmp_path / 'guide.md'}\n{tmp_path / 'näh.txt'}")
    browser.press("Add 2 documents", ".forms")
    browser.sees("#documents-note", "2 documents are searchable now")
    found = {row["id"]: row["title"] for row in server.call("GET", "/v1/documents")["documents"]}
    assert found["guide.md"] == "The guide to Novaria" and found["näh.txt"] == "näh"


def test_hostile_documents_are_text(browser, server):
    """Wherever a title, an id or a text is shown, it is shown as it is, and nothing in it runs."""
    server.call("POST", "/v1/documents", {"documents": [{"id": HOSTILE_ID, "title": HOSTILE, "text": f"Hostile {HOSTILE} text."}]})
    links = [
        ("documents", {"find": "Hostile"}), ("documents", {"id": HOSTILE_ID, "from": 8, "to": 16}),
        ("ask", {"q": HOSTILE, "k": 13}), ("explain", {"x": "Hostile [MASK]", "y": "Tirel", "k": 13}),
    ]  # fmt: skip
    for place in ["#documents", *(f"#{view}?{urlencode(parameters)}" for view, parameters in links)]:
        browser.open(f"{server.url}/{place}")
        assert HOSTILE in browser.text("main") and "script" in browser.text("main"), place
        assert browser.run("return window.owned === undefined && !document.querySelector('main img, main script, main svg[onload]')"), place
        if "id=" in place:
            assert browser.text("mark") == "<script>" and HOSTILE_ID in browser.text(".document")


TOKEN = "a-token-of-enough-letters"


def test_a_picture_is_shown_with_its_path(browser, start, run_copy, tmp_path, monkeypatch):
    monkeypatch.setattr("realm.documents.pages.pictures.recognised", lambda data, seconds: "")
    folder = tmp_path / "pictures"
    folder.mkdir()
    pytest.importorskip("PIL.Image").new("RGB", (320, 180), "#336699").save(folder / "harbour.png")
    (folder / "harbour.png.txt").write_text("The harbour of Novaria, where the Belmor crown is the currency.")
    add_documents(run_copy / "corpus", [folder], workers=1)
    server = start(run_copy, token=TOKEN)
    browser.open(f"{server.url}/")
    browser.run("sessionStorage.setItem('realm-token', arguments[0])", TOKEN)
    browser.complaints()  # the requests without a token
    browser.open(f"{server.url}/#documents?id=harbour.png")
    size = "const e = document.querySelector('.document .picture img'); return e && e.complete && [e.naturalWidth, e.naturalHeight]"
    until(lambda: browser.run(size) == [320, 180])
    assert str(folder / "harbour.png") in browser.text(".document .picture figcaption")
    assert "harbour of Novaria" in browser.run("return document.querySelector('.picture img').alt")
    browser.open(f"{server.url}/#ask?q=What+is+the+currency+of+the+harbour+of+Novaria%3F&k=13")
    until(lambda: browser.run("const e = document.querySelector('.evidence .picture img'); return e && e.naturalWidth") == 320)
    assert len(browser.all(".evidence .picture")) == 1
    for scheme, width in (("light", 1100), ("dark", 1100), ("light", 360)):
        browser.open(f"{server.url}/#ask?q=What+is+the+currency+of+the+harbour+of+Novaria%3F&k=13", scheme=scheme, width=width)
        until(lambda: browser.run("const e = document.querySelector('.evidence .picture img'); return e && e.naturalWidth") == 320)
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    shutil.rmtree(folder)
    browser.open(f"{server.url}/#documents?id=harbour.png")
    browser.sees(".document .picture", "has changed since")
    assert any("404" in complaint for complaint in browser.complaints())


ARABIC = "القاهرة هي عاصمة مصر وأكبر مدنها، وتقع على نهر النيل. 1989"
CHINESE = "广茂铁路是中国广东省的一条铁路，由三茂铁路股份有限公司管理，全长364.6公里。" * 12
DIRECTION = "return getComputedStyle(document.querySelector(arguments[0])).direction"


def test_text_runs_in_its_own_direction(browser, server):
    rows = [{"id": "cairo", "title": "القاهرة", "text": ARABIC}, {"id": "rail", "title": "广茂铁路", "text": CHINESE}]
    server.call("POST", "/v1/documents", {"documents": rows})
    browser.open(f"{server.url}/#documents?{urlencode({'id': 'cairo'})}")
    browser.sees(".document", "القاهرة هي")
    assert browser.run(DIRECTION, ".document h2") == browser.run(DIRECTION, ".document p[dir]") == "rtl"
    browser.open(f"{server.url}/#documents?{urlencode({'id': 'rail'})}", width=390)
    browser.sees(".document", "广茂铁路")
    assert browser.run(DIRECTION, ".document p[dir]") == "ltr"
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), "lines break between characters"
    browser.open(server.url)
    browser.run("document.querySelector('#question').value = arguments[0]", "ما هي عاصمة مصر؟")
    assert browser.run(DIRECTION, "#question") == "rtl"
