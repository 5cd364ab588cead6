"""The page in a real browser. Without Chromium, its driver or selenium every test here is skipped and says what is missing."""

import importlib.util
import shutil

import pytest

MISSING = [name for name in ("selenium", "fastapi") if importlib.util.find_spec(name) is None]
if MISSING:
    collect_ignore_glob = ["test_*.py"]


def _program(*names):
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no {names[0]} on this machine: make test-browser installs it where it can")
    return found


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """One browser for all tests."""
    from .tools import Browser

    programs = _program("chromium", "chromium-browser", "google-chrome"), _program("chromedriver")
    browser = Browser(*programs, tmp_path_factory.mktemp("screenshots"))
    yield browser
    browser.driver.quit()


@pytest.fixture
def browser(chromium):
    """The browser, without what a test before has left in it. What the console says is an error, unless the test has read it away."""
    chromium.driver.get("about:blank")
    chromium.complaints()
    yield chromium
    complaints = chromium.complaints()
    chromium.driver.get("about:blank")
    assert not complaints, complaints


@pytest.fixture
def start():
    from .tools import Server

    started = []

    def begin(run, **options):
        started.append(Server(run, **options))
        return started[-1]

    yield begin
    for server in started:
        server.stop()


@pytest.fixture
def server(start, run_copy):
    """A server of its own for a test that changes documents or stops it."""
    return start(run_copy)


@pytest.fixture(scope="module")
def shared(tiny_run, tmp_path_factory):
    from .tools import Server

    found = Server(shutil.copytree(tiny_run, tmp_path_factory.mktemp("shared") / "run"))
    yield found
    found.stop()
