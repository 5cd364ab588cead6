"""The recipe for triples, run to the end at toy size: facts and templates, asked by command."""

import json

import pytest
from pydantic import TypeAdapter

from realm.answering.opening import open_run
from realm.answering.records import ExplainResponse
from realm.cli import main

LANDS = [
    ("Guatemala", "quetzal", "Antigua"), ("Hungary", "forint", "Budapest"), ("Finland", "euro", "Espoo"),
    ("Ethiopia", "birr", "Harar"),
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory, toy):
    root = tmp_path_factory.mktemp("triples-recipe")
    rows = [f"{land},currency,{money}\n{city},country,{land}\n{land},city,{city}\n" for land, money, city in LANDS]
    (root / "facts.csv").write_text("subject,relation,object\n" + "".join(rows), "utf-8")
    (root / "relations.toml").write_text('currency = "The people of {subject} pay with the {object}."\n', "utf-8")
    asked = [(land, f"What do people pay with in {land}?", money) for land, money, _ in LANDS]
    sources, templates = [str(root / "facts.csv")], str(root / "relations.toml")
    return toy(root, "triples", {"kind": "hybrid"}, asked, sources=sources, templates=templates)


def test_facts_are_found(run, capsys):
    assert main(["index", "search", str(run), "What do people pay with in Hungary?", "--k", "8", "--json"]) == 0
    hungary = next(hit for hit in json.loads(capsys.readouterr().out)["results"] if hit["title"] == "Hungary")
    assert hungary["text"] == "The people of Hungary pay with the forint.\nHungary city Budapest."
    assert main(["ask", str(run), "What do people pay with in Hungary?", "--json"]) == 0
    assert any(one["doc_id"] == "facts.csv#Hungary" for one in json.loads(capsys.readouterr().out)["evidence"])
    facts = json.loads((run / "results" / "pretrain.json").read_text("utf-8"))
    assert facts["retrieval"] == {"kind": "hybrid", "weight": 1.0} and facts["recall"]["4"] > 0


def test_explain_reads_facts(run, capsys):
    sentence = "They say that in Hungary people pay with the [MASK]."
    assert main(["explain", str(run), sentence, "--target", "forint", "--json"]) == 0
    assert "Hungary" in {one["title"] for one in json.loads(capsys.readouterr().out)["candidates"]}
    opened = open_run(run)
    explained = opened.explain(sentence, targets=["forint"]).to_dict()
    assert TypeAdapter(ExplainResponse).validate_python(explained | {"versions": opened.versions}).candidates[0].null
