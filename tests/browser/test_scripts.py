"""Documents in scripts that are written from right to left, or without spaces: each piece of text runs in its own direction."""

from urllib.parse import urlencode

import pytest

pytestmark = pytest.mark.browser
ARABIC = "القاهرة هي عاصمة مصر وأكبر مدنها، وتقع على نهر النيل. 1989"
CHINESE = "广茂铁路是中国广东省的一条铁路，由三茂铁路股份有限公司管理，全长364.6公里。" * 12
DIRECTION = "return getComputedStyle(document.querySelector(arguments[0])).direction"


def test_text_runs_in_its_own_direction(browser, server):
    rows = [{"id": "cairo", "title": "القاهرة", "text": ARABIC}, {"id": "rail", "title": "广茂铁路", "text": CHINESE}]
    server.call("POST", "/v1/documents", {"documents": rows})
    browser.open(f"{server.url}/#documents?{urlencode({'id': 'cairo'})}")
    browser.sees(".document", "القاهرة هي")
    assert browser.run(DIRECTION, ".document h2") == browser.run(DIRECTION, ".document p[dir]") == "rtl"
    browser.shot("arabic")
    browser.open(f"{server.url}/#documents?{urlencode({'id': 'rail'})}", width=390)
    browser.sees(".document", "广茂铁路")
    assert browser.run(DIRECTION, ".document p[dir]") == "ltr"
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), "lines break between characters"
    browser.shot("chinese")
    browser.open(server.url)
    browser.run("document.querySelector('#question').value = arguments[0]", "ما هي عاصمة مصر؟")
    assert browser.run(DIRECTION, "#question") == "rtl"
