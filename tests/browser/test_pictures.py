"""A picture as evidence: shown where the block stands, with its path, with a token too; what is gone is said."""

import shutil

import pytest

pytest.importorskip("PIL")

from PIL import Image

from realm.documents.change.updates import add_documents

from .tools import until

pytestmark = pytest.mark.browser
TOKEN = "a-token-of-enough-letters"


def test_a_picture_is_shown_with_its_path(browser, start, run_copy, tmp_path, monkeypatch):
    monkeypatch.setattr("realm.documents.pages.pictures.recognised", lambda data, seconds: "")
    folder = tmp_path / "pictures"
    folder.mkdir()
    Image.new("RGB", (320, 180), "#336699").save(folder / "harbour.png")
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
        browser.shot(f"picture-{scheme}-{width}")
    shutil.rmtree(folder)
    browser.open(f"{server.url}/#documents?id=harbour.png")
    browser.sees(".document .picture", "has changed since")
    assert any("404" in complaint for complaint in browser.complaints())
