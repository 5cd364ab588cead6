"""The recipe for linked pages, run to the end at toy size over a dump with redirects; asked by command and by server shape."""

import json
import tomllib
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from realm.answering.opening import open_run
from realm.answering.records import AnswerResponse
from realm.cli import main
from realm.progress import Progress
from realm.recipe import build_recipe, dump_recipe
from realm.runs.run import run_recipe

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "linked.toml"
LAKES = [("Atitlan", "Guatemala", "quetzal"), ("Balaton", "Hungary", "forint"), ("Inari", "Finland", "euro"), ("Tana", "Ethiopia", "birr")]


def dump(path):
    pages = []
    for lake, land, money in LAKES:
        pages.append(
            (f"Lake {lake}", f"Lake {lake} is a lake in the south of [[Republic of {land}|the republic]]. It is deep, and cold in winter.")
        )
        pages.append((f"Republic of {land}", f"#REDIRECT [[{land}]]"))
        pages.append((land, f"{land} is a country. Its people pay with the {money}. They drink coffee."))
    made = [
        f"<page><title>{title}</title><ns>0</ns><id>{number}</id><revision><id>1</id><text>{text}</text></revision></page>"
        for number, (title, text) in enumerate(pages, 1)
    ]
    path.write_text(f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">{"".join(made)}</mediawiki>', "utf-8")
    return str(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root, values = tmp_path_factory.mktemp("linked-recipe"), tomllib.loads(RECIPE.read_text("utf-8"))
    assert values["model"].pop("body") == "realm-minilm-en" and values["retrieval"] == {"kind": "hybrid", "hops": 1}
    values["run"] |= {"threads": 1}
    values["model"] |= {"layers": 1, "hidden": 32, "intermediate": 64, "heads": 2, "projection": 16}
    values["corpus"] |= {"sources": [dump(root / "wiki.xml")], "block_length": 64, "vocab_size": 300}
    values |= {"warm": {"steps": 1, "batch": 2}, "ict": {"steps": 1, "batch": 4}}
    values["pretrain"] = {"steps": 1, "batch": 2, "candidates": 3, "refresh": "inline", "force": True, "fill": "pointer", "held_out": 0}
    asked = [{"id": lake, "question": f"What do people pay with where Lake {lake} lies?", "answers": [money]} for lake, _, money in LAKES]
    (root / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), "utf-8")
    values["eval"] = {"qa": str(root / "qa.jsonl"), "k": [1, 4]}
    (root / "recipe.toml").write_text(dump_recipe(build_recipe(values)), "utf-8")
    run_recipe(root / "recipe.toml", root / "run", stages=None, progress=Progress(quiet=True))
    return root / "run"


def test_a_lake_leads_to_its_country(run, capsys):
    opened = open_run(run)
    assert opened.source.hops == 1 and len(opened.inputs.store) == 8
    answer = opened.answerer.answer(["Where is the deep Lake Balaton, cold in winter?"], k=6)[0]
    paths = {evidence.title: evidence.path for evidence in answer.evidence if evidence.path}
    assert paths and all(path in {(f"Lake {lake}", land) for lake, land, _ in LAKES} for path in paths.values())
    response = TypeAdapter(AnswerResponse).validate_python({"answers": [answer.to_dict()], "versions": opened.versions})
    assert [evidence.path for evidence in response.answers[0].evidence] == [evidence.path for evidence in answer.evidence]
    assert main(["ask", str(run), "Where is the deep Lake Balaton, cold in winter?", "--k", "6", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [tuple(evidence["path"]) for evidence in found["evidence"]] == [evidence.path for evidence in answer.evidence]


def test_evaluation_follows_links_and_search_does_not(run):
    assert json.loads((run / "results" / "pretrain.json").read_text("utf-8"))["recall"]["4"] > 0
    hits = open_run(run).search("Lake Tana", 3)
    assert hits[0].title == "Lake Tana" and len(hits) == 3
