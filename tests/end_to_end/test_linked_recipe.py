"""The recipe for linked pages, run to the end at toy size over a dump with redirects; asked by command and by server shape."""

import json

import pytest
from pydantic import TypeAdapter

from realm.answering.opening import open_run
from realm.answering.records import AnswerResponse
from realm.cli import main

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
def run(tmp_path_factory, toy):
    root = tmp_path_factory.mktemp("linked-recipe")
    asked = [(lake, f"What do people pay with where Lake {lake} lies?", money) for lake, _, money in LAKES]
    return toy(root, "linked", {"kind": "hybrid", "hops": 1}, asked, sources=[dump(root / "wiki.xml")])


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
