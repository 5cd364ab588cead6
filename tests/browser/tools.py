"""A server in this process with a socket of its own, and a headless Chromium that is driven through its page."""

import base64
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import uvicorn
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from realm.serve.guard import Rules
from realm.serve.server import BoundedProtocol, make_app
from realm.serve.serving import Serving
from realm.serve.shapes import LIMITS, Limits

WAIT = 60
"""Seconds that anything on the page may take: the machine may be busy."""
QUIET = "return !document.querySelector('.loading') && !document.querySelector('[aria-busy=true]')"


class Server:
    """A run served on a socket, stopped by ``stop``."""

    def __init__(self, run: Path, *, port: int = 0, limits: Limits = LIMITS, token: str | None = None):
        self.serving = Serving(run, limits=limits)
        self._listening = socket.create_server(("127.0.0.1", port))
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        app = make_app(self.serving, Rules(token=token))
        self._server = uvicorn.Server(uvicorn.Config(app, http=BoundedProtocol, ws="none", lifespan="on", log_config=None))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listening]}, daemon=True)
        self._thread.start()
        until(lambda: self._server.started)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(WAIT)
        self._listening.close()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=WAIT) as response:
            return json.load(response)


class Site:
    """Another web site: one page, and what was asked of it."""

    def __init__(self, html: str):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(html.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Browser:
    """Chromium. ``open`` starts every test from a fresh page at a size and a colour scheme."""

    def __init__(self, chromium: str, driver: str, shots: Path):
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
            options.add_argument(flag)
        options.add_argument("--host-resolver-rules=MAP evil.example 127.0.0.1")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        self._shots = shots

    def open(self, url: str, *, width: int = 1100, height: int = 800, scheme: str = "light") -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get("about:blank")  # so that the same address is loaded anew
        self.driver.get(url)
        self.quiet()

    def quiet(self) -> None:
        until(lambda: self.driver.execute_script(QUIET))

    def one(self, selector: str) -> WebElement:
        return WebDriverWait(self.driver, WAIT).until(lambda driver: driver.find_element(By.CSS_SELECTOR, selector))

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return self.one(selector).text

    def sees(self, selector: str, words: str) -> None:
        script = "const e = document.querySelector(arguments[0]); return e && e.innerText.includes(arguments[1])"
        until(lambda: self.run(script, selector, words), lambda: f"{words!r} not in {selector}: {self.text('body')}")

    def press(self, label: str, inside: str = "main") -> None:
        inner = "document.querySelector(arguments[0]).querySelectorAll('button, a')"
        script = f"return [...{inner}].find(e => e.innerText.trim() === arguments[1])"
        WebDriverWait(self.driver, WAIT).until(lambda driver: driver.execute_script(script, inside, label)).click()

    def keys(self, *keys: str) -> None:
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def focused(self) -> str:
        return str(self.run("const e = document.activeElement; return e.id || e.innerText"))

    def tab_to(self, wanted: str, most: int = 40) -> None:
        for _ in range(most):
            if self.focused() == wanted:
                return
            self.keys(Keys.TAB)
        raise AssertionError(f"{wanted!r} is not reached with {most} times Tab; the focus is at {self.focused()!r}")

    def ask(self, question: str) -> None:
        field = self.one("#question")
        field.clear()
        field.send_keys(question, Keys.ENTER)
        self.one(".said")
        self.quiet()

    def run(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def complaints(self) -> list[str]:
        """What the console got since the last look, but for information."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def shot(self, name: str, most: int = 4000) -> None:
        self.quiet()
        size = self.run("const e = document.documentElement; return {width: e.scrollWidth, height: e.scrollHeight}")
        clip = {"x": 0, "y": 0, "scale": 1, "width": size["width"], "height": min(size["height"], most)}
        picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True, "clip": clip})
        (self._shots / f"{name}.png").write_bytes(base64.b64decode(picture["data"]))


def until(true: Callable[[], Any], told: Callable[[], str] = lambda: "nothing came") -> None:
    end = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < end, told()
        time.sleep(0.05)
