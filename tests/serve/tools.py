"""What the tests of the server share: a server in this process, a server as a command, a document."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from starlette.testclient import TestClient

from realm.serve.guard import Rules
from realm.serve.server import make_app
from realm.serve.serving import Serving

HERE = "http://127.0.0.1"


@contextmanager
def served(run, rules=None, endpoint=None, **options):
    """A server in this process, without a socket; ``served.serving`` of the client is what answers."""
    serving = Serving(run, **options)
    with TestClient(make_app(serving, rules or Rules(), endpoint), base_url=HERE, raise_server_exceptions=False) as client:
        client.serving = serving
        yield client


def call(url, body=None, method=None):
    """The JSON that a server answers. Raises HTTPError: another status than 200; OSError, HTTPException: no answer."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"content-type": "application/json"}, method=method), timeout=60) as response:
        return json.load(response)


class Process:
    """``realm serve RUN --port 0``, or another verb that serves, as a process."""

    def __init__(self, run, *options, verb="serve", at=("--port", "0")):
        command = [sys.executable, "-m", "realm", verb, str(run), *at, *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said = ""
        for line in self.process.stderr:
            self.said += line
            if line.startswith("serving "):
                break
        else:
            raise AssertionError(self.said)
        self.url = line.split(" at ")[1].split(";")[0]
        self.port = int(self.url.rpartition(":")[2].partition("/")[0])

    def rise(self, act):
        """Bytes by which the memory of the process rises at most while ``act`` is done; 0 where the system does not tell."""
        try:
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")  # the peak so far is forgotten
        except OSError:
            act()
            return 0
        before = self._kib("VmRSS")
        act()
        return 1024 * (self._kib("VmHWM") - before)

    def _kib(self, name):
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))

    def end(self, number):
        """Send a signal; the exit code and what was said on standard error since the start."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, self.said + said


def document(name, text, title=""):
    return {"id": name, "title": title, "text": text}
