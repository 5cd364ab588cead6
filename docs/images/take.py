"""Take the pictures of the documentation: the page with an answer, and the report of a run.

    python docs/images/take.py RUN QUESTION [FOLDER]

For example: python docs/images/take.py runs/demo "What is the currency of Japan?"

RUN is a finished run; QUESTION is asked on its page. Writes ask.png, and report.png if the run has a report, into FOLDER
(default: beside this script).
Needs Chromium and its driver: make test-browser installs them where it can.
"""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.browser.tools import Browser, Server  # noqa: E402

WIDTH, HEIGHT = 1100, 900
ANSWER = 860
"""Pixels of the page that show the answer and the first evidence."""


def programs() -> tuple[str, str]:
    """Chromium and its driver."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser, driver = next((path for name in names if (path := shutil.which(name))), None), shutil.which("chromedriver")
    if not browser or not driver:
        raise SystemExit("error: no Chromium with its driver here: make test-browser installs them where it can")
    return browser, driver


def take(run: Path, question: str, folder: Path) -> None:
    """Both pictures, each at most as high as one screen."""
    browser, server = Browser(*programs(), folder), Server(run)
    try:
        browser.open(server.url, width=WIDTH, height=HEIGHT)
        browser.ask(question)
        browser.shot("ask", most=ANSWER)
        if (report := run / "report.html").is_file():
            browser.open(report.resolve().as_uri(), width=WIDTH, height=HEIGHT)
            browser.shot("report", most=HEIGHT)
    finally:
        browser.driver.quit()
        server.stop()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    take(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]) if len(sys.argv) == 4 else HERE)
