"""The demo over a tiny model: every claim is measured and told, a second call trains nothing, and the atlas's own words have answers."""

import json
import tomllib
from dataclasses import replace
from html import escape
from importlib.resources import files

import pytest

from realm.cli import main
from realm.errors import RunError
from realm.experiments import demo
from realm.experiments.atlas import read_atlas
from realm.progress import Progress
from realm.recipe import build_recipe
from realm.runs.run import run_recipe

QUIET = Progress(quiet=True)
CLAIMS = ["before", "questions", "own_words", "bm25", "without_documents", "explained", "changed"]


@pytest.fixture(scope="module")
def pointing(tmp_path_factory, small_atlas):
    """A tiny model that has learnt, hardly, to point in the countries."""
    root = tmp_path_factory.mktemp("pointing")
    small_atlas(root / "atlas")
    values = {
        "run": {"threads": 1, "device": "cpu"}, "corpus": {"sources": ["atlas/documents.jsonl"], "vocab_size": 900},
        "model": {"hidden": 16, "layers": 1, "heads": 2, "intermediate": 32, "projection": 16, "span_hidden": 16},
        "warm": {"steps": 2, "batch": 4}, "ict": {"steps": 2, "batch": 4},
        "pretrain": {"fill": "pointer", "steps": 4, "batch": 4, "candidates": 4, "refresh": "inline", "refresh_every": 2},
    }  # fmt: skip
    recipe = build_recipe(values, path=root / "recipe.toml")
    run_recipe(recipe, root / "run", stages=("corpus", "warm", "ict", "pretrain"), progress=QUIET)
    return root / "run" / "stages" / "pretrain"


@pytest.fixture
def small(pointing, small_atlas, monkeypatch):
    bundled = demo.demo_recipe

    def recipe_of(directory, changes=None):
        recipe = bundled(directory, changes)
        finetune, run = replace(recipe.finetune, steps=2), replace(recipe.run, threads=1)
        return replace(recipe, model=replace(recipe.model, body=str(pointing)), finetune=finetune, run=run)

    monkeypatch.setattr(demo, "demo_recipe", recipe_of)
    monkeypatch.setattr(demo, "write_atlas", small_atlas)


@pytest.mark.usefixtures("small")
def test_every_claim_is_measured_and_told(tmp_path, capsys):
    told = []
    summary = demo.run_demo(tmp_path / "demo", progress=QUIET, show=told.append)
    assert [claim.name for claim in told] == CLAIMS == list(summary["claims"])
    assert all(claim.says.endswith((".", ":")) for claim in told)
    for name in ("before", "questions", "own_words", "bm25"):
        facts = summary["claims"][name]
        assert 0 <= facts["em"] <= 1 and {"1", "5"} <= set(facts["recall"]) and facts["n"] > 0
    assert len(summary["claims"]["changed"]["added"]) == 3 and len(summary["claims"]["changed"]["changed"]) == 1
    assert all({"correct", "accepted", "evidence"} <= set(answer) for claim in told for answer in claim.answers)
    json.dumps(summary, allow_nan=False)
    assert json.loads((tmp_path / "demo" / "demo.json").read_text("utf-8"))["claims"] == summary["claims"]
    report = (tmp_path / "demo" / "report.html").read_text("utf-8")
    assert all(escape(claim.says) in report for claim in told), "the report opens with what was shown"
    trained = {path: path.stat().st_mtime_ns for path in (tmp_path / "demo" / "stages").rglob("model.safetensors")}
    assert main(["demo", "--dir", str(tmp_path / "demo")]) == 0
    assert {path: path.stat().st_mtime_ns for path in trained} == trained, "nothing is trained again"
    again, shown = json.loads((tmp_path / "demo" / "demo.json").read_text("utf-8"))["claims"], capsys.readouterr().out
    assert list(again) == CLAIMS and again["changed"] == summary["claims"]["changed"]
    assert "Before any training" in shown and "Nothing was trained." in shown and "report.html" in shown
    with pytest.raises(RunError, match=r"run\.seed"):  # another seed is another run
        demo.run_demo(tmp_path / "demo", progress=QUIET, show=lambda claim: None, changes={"run": {"seed": 1}})


def test_sixty_questions_in_other_words_have_answers_in_the_atlas():
    written = tomllib.loads((files("realm.experiments") / "own_words.toml").read_text("utf-8"))
    asked = {f"{domain}/{name}": text for domain, own in written.items() for name, text in own.items()}
    tests = {q["id"].rpartition("/")[0]: q for q in map(json.loads, read_atlas()["qa_test.jsonl"].splitlines())}
    assert len(asked) == 60 and set(asked) <= set(tests)
    templates = {q["question"] for q in tests.values()}
    assert not templates & set(asked.values())
