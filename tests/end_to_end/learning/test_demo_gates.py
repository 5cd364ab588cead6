"""What the demo promises, in more than one seed: minutes each on two cores. `make test-slow`."""

import json

import pytest

from realm.experiments.demo import run_demo
from realm.progress import Progress

SEEDS = (0, 1, 2)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module", params=SEEDS)
def claims(request, tmp_path_factory):
    directory, changes = tmp_path_factory.mktemp(f"demo-{request.param}"), {"run": {"seed": request.param}}
    found = run_demo(directory / "run", progress=Progress(quiet=True), show=lambda claim: None, changes=changes)["claims"]
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\nseed {request.param}: {json.dumps(found)}")
    return found


def test_questions_raise_the_answers_and_own_words_are_understood(claims):
    before, after = claims["before"], claims["questions"]
    assert after["em_interval"][0] > before["em"] and after["em"] >= 0.88 and after["recall"]["5"] >= 0.99
    assert claims["own_words"]["em"] >= max(0.75, claims["bm25"]["em"] - 0.05)


def test_what_it_knows_and_explains_stands_in_the_documents(claims):
    assert claims["without_documents"]["em"] <= 0.1
    assert sum(claims["changed"]["added"]) >= 2 and len(claims["changed"]["added"]) == 3
    explained = claims["explained"]
    assert explained["prediction"] == "pound sterling" and explained["p"] > 5 * explained["p_null"]
