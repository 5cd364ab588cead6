"""The OpenAPI document is what the server does: schemathesis sends what it allows and what it does not, and nothing ends in a 5xx.

Answers must fit the document, too; which codes a refusal may have is looked at in the other tests.
"""

import shutil
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("schemathesis")

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from realm.serve.guard import Rules
from realm.serve.server import make_app
from realm.serve.serving import Serving
from realm.serve.shapes import LIMITS


@pytest.fixture(scope="module")
def described(tiny_run, tmp_path_factory):
    """The application, as schemathesis calls it."""
    serving = Serving(shutil.copytree(tiny_run, tmp_path_factory.mktemp("schema") / "run"))
    app = make_app(serving, Rules(hosts=frozenset({"testserver", "localhost", "127.0.0.1"})))
    app.router.lifespan_context = _goes_on
    yield schemathesis.openapi.from_asgi("/openapi.json", app)
    serving.close()


@asynccontextmanager
async def _goes_on(app):
    """schemathesis ends an application with each of its sessions; here it outlives them."""
    yield


@pytest.mark.parametrize("examples", [4, pytest.param(40, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_nothing_fails(described, mode, examples):
    """What the document allows, and what it does not allow, endpoint by endpoint."""
    asked = []
    for found in described.get_all_operations():
        operation = found.ok()
        if mode == GenerationMode.NEGATIVE and not (operation.body or operation.query):
            continue  # nothing in such a request can be wrong

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        def check(case):
            answer = case.call()
            asked.append(answer.status_code)
            late = answer.status_code == 504 and case.body.get("timeout_ms", LIMITS.timeout_ms) < LIMITS.timeout_ms  # its own wish
            assert answer.status_code < 500 or late, (case.path, answer.text)
            case.validate_response(answer, checks=[response_schema_conformance, status_code_conformance])

        check()
    taken = asked.count(200) + asked.count(504)  # a busy machine does not make a request wrong
    there = len(asked) - asked.count(404)  # what a drawn request names is seldom there
    assert len(asked) > 20 and (mode == GenerationMode.POSITIVE) == (taken > there / 3)
