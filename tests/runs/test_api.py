"""The Python API: its documentation runs as it stands."""

import doctest
import os
import shutil
from pathlib import Path

import pytest

from realm import Realm
from realm.errors import ConfigError, RealmError
from realm.runs import api

API = Path(__file__).resolve().parents[2] / "docs" / "api.md"


@pytest.fixture
def demo(tiny_run, tmp_path, monkeypatch):
    """A working directory with runs/demo and more.jsonl, as the documentation has it."""
    shutil.copytree(tiny_run, tmp_path / "runs" / "demo")
    shutil.copy(tiny_run.parent / "more.jsonl", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "demo"


def test_the_documentation_runs(demo):
    results = doctest.testmod(api, raise_on_error=False)
    assert results.attempted > 8 and results.failed == 0


def test_changes_by_others_are_seen(demo):
    realm, other = Realm.open(demo), Realm.open(demo)
    before = realm.ask("What is the currency of Arvad?", k=2)
    assert before.versions["corpus"] == 1 and set(before.timings_ms) == {"embed", "search", "read"}
    assert other.add_documents("more.jsonl") == 1 and other.unsearchable == 0
    assert realm.ask("What is the currency of Arvad?", k=13).versions["corpus"] == 2
    assert "Novaria/0" in {hit.doc_id for hit in realm.search("Novaria", k=13)}


def test_what_is_better_withheld(demo):
    realm = Realm.open(demo)
    answer = realm.ask("What is the currency of Arvad?", k=2)
    assert 0.0 <= realm.abstain_below <= 1.0
    assert answer.abstained == (answer.sureness < realm.abstain_below)


def test_public_names_lead_to_what_they_name(demo):
    import realm

    for name in realm.__all__:
        assert getattr(realm, name) is not None
    described = {line.rpartition(".")[2] for line in API.read_text("utf-8").splitlines() if line.startswith("::: ")}
    assert described == set(realm.__all__) - {"DEFAULT_BODY", "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = realm.nothing


def test_explanations_and_bad_calls(demo, tmp_path):
    found = Realm.open(demo).explain("The currency of Arvad is the [MASK].", ["Tirel"], k=4, exclude_documents=["Arvad/0"])
    assert found.p_y == pytest.approx(sum(c.p_z * c.p_y_given_z for c in found.candidates))
    assert len(found.candidates) == 4 and not any(c.text.startswith("People in Arvad") for c in found.candidates)
    realm = Realm.open(demo)
    with pytest.raises(ConfigError, match="k = 0"):
        realm.ask("What?", k=0)
    with pytest.raises(RealmError, match="no such"):
        realm.add_documents(os.fspath(tmp_path / "nothing.jsonl"))
