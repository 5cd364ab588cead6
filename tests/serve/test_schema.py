"""The OpenAPI document is what the server does: schemathesis sends what it allows and what it does not, and nothing ends in a 5xx.

Answers must fit the document, too; which codes a refusal may have is looked at in the other tests.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("schemathesis")

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from realm.serve.app import make_app
from realm.serve.guard import Rules
from realm.serve.serving import Serving


@pytest.fixture(scope="module")
def described(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The application, as schemathesis calls it."""
    serving = Serving(shutil.copytree(tiny_run, tmp_path_factory.mktemp("schema") / "run"))
    yield schemathesis.openapi.from_asgi(
        "/openapi.json", make_app(serving, Rules(hosts=frozenset({"testserver", "localhost", "127.0.0.1"})))
    )
    serving.close()


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_nothing_fails(case: Any) -> None:
    found = case.call()
    assert found.status_code < 500, found.text
    case.validate_response(found, checks=[response_schema_conformance, status_code_conformance])
