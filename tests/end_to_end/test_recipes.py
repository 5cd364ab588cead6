"""Recipes at toy size, run to the end and asked: Chinese and Korean with recall by language, linked pages, triples."""

import json
import tomllib

import pytest
from pydantic import TypeAdapter
from small import jsonl
from toy_runs import train

from realm.answering.opening import open_run
from realm.answering.records import AnswerResponse, ExplainResponse
from realm.cli import main
from realm.models.model import RealmModel
from realm.recipe import build_recipe, dump_recipe
from realm.runs.evaluation import Wanted, evaluate_run

from .conftest import RECIPES

CITIES = [("青川", "청천", "1901"), ("白河", "백하", "1912"), ("金山", "금산", "1923"), ("南湖", "남호", "1934"), ("东岭", "동령", "1945")]
RIVERS = [("玉", "옥"), ("长", "장"), ("明", "명"), ("沙", "사"), ("平", "평")]
SMALL = {
    "run": {"threads": 1, "checkpoint_every": 0},
    "corpus": {"block_length": 64, "vocab_size": 600},
    "model": {"layers": 1, "hidden": 32, "intermediate": 64, "query_length": 32},
    "pretrain": {"steps": 2, "reader_first": 2, "batch": 2, "candidates": 3, "held_out": 0},
    "finetune": {"steps": 2, "batch": 2, "eval_every": 10, "read": 2},
}


def documents():
    rows = []
    for (chinese, korean, year), (river, stream) in zip(CITIES, RIVERS, strict=True):
        text = f"{chinese}市位于{river}河边。{chinese}市在{year}年建立。{river}河流过{chinese}市，{chinese}市的人口是{year}人。"
        rows.append({"id": f"zh-{chinese}", "title": f"{chinese}市", "text": text})
        text = f"{korean}시는 {stream}강 옆에 있다. {korean}시는 {year}년에 세워졌다. {stream}강은 {korean}시를 지나며 인구는 {year}명이다."
        rows.append({"id": f"ko-{korean}", "title": f"{korean}시", "text": text})
    rows.append({"id": "ar-cairo", "title": "القاهرة", "text": "القاهرة هي عاصمة مصر وأكبر مدنها. تقع المدينة على نهر النيل."})
    return rows


def questions(language):
    rows = []
    for chinese, korean, year in CITIES:
        name, asked = (chinese, f"{chinese}市在哪一年建立？") if language == "zh" else (korean, f"{korean}시는 언제 세워졌는가?")
        answer = f"{year}年" if language == "zh" else f"{year}년"
        rows.append({"id": name, "question": asked, "answers": [answer], "positive_ids": [f"{language}-{name}"]})
    return rows


@pytest.fixture(scope="module", params=[("chinese", "zh"), ("korean", "ko")], ids=["chinese", "korean"])
def run(request, tmp_path_factory):
    name, language = request.param
    root = tmp_path_factory.mktemp(name)
    values = tomllib.loads((RECIPES / f"{name}.toml").read_text("utf-8"))
    for section, keys in SMALL.items():
        values[section] |= keys
    values["corpus"]["sources"] = [str(jsonl(root / "docs.jsonl", documents()))]
    values["finetune"]["train"] = str(jsonl(root / "train.jsonl", questions(language)))
    values["eval"]["qa"] = str(jsonl(root / "qa.jsonl", questions(language)))
    jsonl(root / "other.jsonl", questions("ko" if language == "zh" else "zh"))
    (root / "recipe.toml").write_text(dump_recipe(build_recipe(values)), "utf-8")
    train(root / "recipe.toml", root / "run")
    return language, root


def test_the_recipe_runs_and_its_words_find(run):
    _, root = run
    found = json.loads((root / "run" / "results" / "finetune.json").read_text("utf-8"))
    assert found["retrieval"]["kind"] == "sparse" and found["recall_gold"]["5"] >= 0.9, found["recall_gold"]
    assert found["recall"]["5"] >= 0.9 and found["n"] == 5 and 0 <= found["em"] <= found["f1"] <= 1
    opened = open_run(root / "run")
    store, reader = opened.inputs.store, RealmModel.from_pretrained(root / "run" / "stages" / "finetune").reader
    assert opened.reads and reader.spec.marks and reader.spec.pointer
    assert all(store.tokenizer.special.unk not in store.token_ids(row).tolist() for row in range(len(store)))
    assert store.tokenizer.cuts_characters


def test_answers_are_whole_characters_and_recall_is_told_by_language(run):
    language, root = run
    assert evaluate_run(root / "run", Wanted((root / "qa.jsonl",), depths=(1, 5)))["languages"] == {}, "one language is the whole"
    both = evaluate_run(root / "run", Wanted((root / "qa.jsonl", root / "other.jsonl"), depths=(1, 5)))
    assert list(both["languages"]) == ["ko", "zh"] and all(rates["n"] == 5 for rates in both["languages"].values())
    assert both["languages"][language] == both["datasets"]["qa"]
    assert sum([both["languages"][name]["recall"]["5"] for name in ("ko", "zh")]) / 2 == pytest.approx(both["recall"]["5"])
    opened, texts = open_run(root / "run"), {row["id"]: row["text"] for row in documents()}
    assert {opened.inputs.store.language(row) for row in range(len(opened.inputs.store))} >= {"zh", "ko"}
    for answer in opened.answerer.answer([row["question"] for row in questions(language)], k=2):
        for evidence in answer.evidence:
            begin = evidence.doc_start + evidence.start
            assert texts[evidence.doc_id][begin : begin + len(evidence.answer)] == evidence.answer


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
def linked(tmp_path_factory, toy):
    root = tmp_path_factory.mktemp("linked-recipe")
    asked = [(lake, f"What do people pay with where Lake {lake} lies?", money) for lake, _, money in LAKES]
    return toy(root, "linked", {"kind": "hybrid", "hops": 1}, asked, sources=[dump(root / "wiki.xml")])


def test_a_lake_leads_to_its_country(linked, capsys):
    opened = open_run(linked)
    assert opened.source.hops == 1 and len(opened.inputs.store) == 8
    answer = opened.answerer.answer(["Where is the deep Lake Balaton, cold in winter?"], k=6)[0]
    paths = {evidence.title: evidence.path for evidence in answer.evidence if evidence.path}
    assert paths and all(path in {(f"Lake {lake}", land) for lake, land, _ in LAKES} for path in paths.values())
    response = TypeAdapter(AnswerResponse).validate_python({"answers": [answer.to_dict()], "versions": opened.versions})
    assert [evidence.path for evidence in response.answers[0].evidence] == [evidence.path for evidence in answer.evidence]
    assert main(["ask", str(linked), "Where is the deep Lake Balaton, cold in winter?", "--k", "6", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [tuple(evidence["path"]) for evidence in found["evidence"]] == [evidence.path for evidence in answer.evidence]


def test_evaluation_follows_links_and_search_does_not(linked):
    assert json.loads((linked / "results" / "pretrain.json").read_text("utf-8"))["recall"]["4"] > 0
    hits = open_run(linked).search("Lake Tana", 3)
    assert hits[0].title == "Lake Tana" and len(hits) == 3


LANDS = [
    ("Guatemala", "quetzal", "Antigua"), ("Hungary", "forint", "Budapest"), ("Finland", "euro", "Espoo"),
    ("Ethiopia", "birr", "Harar"),
]  # fmt: skip


@pytest.fixture(scope="module")
def triples(tmp_path_factory, toy):
    root = tmp_path_factory.mktemp("triples-recipe")
    rows = [f"{land},currency,{money}\n{city},country,{land}\n{land},city,{city}\n" for land, money, city in LANDS]
    (root / "facts.csv").write_text("subject,relation,object\n" + "".join(rows), "utf-8")
    (root / "relations.toml").write_text('currency = "The people of {subject} pay with the {object}."\n', "utf-8")
    asked = [(land, f"What do people pay with in {land}?", money) for land, money, _ in LANDS]
    sources, templates = [str(root / "facts.csv")], str(root / "relations.toml")
    return toy(root, "triples", {"kind": "hybrid"}, asked, sources=sources, templates=templates)


def test_facts_are_found(triples, capsys):
    assert main(["index", "search", str(triples), "What do people pay with in Hungary?", "--k", "8", "--json"]) == 0
    hungary = next(hit for hit in json.loads(capsys.readouterr().out)["results"] if hit["title"] == "Hungary")
    assert hungary["text"] == "The people of Hungary pay with the forint.\nHungary city Budapest."
    assert main(["ask", str(triples), "What do people pay with in Hungary?", "--json"]) == 0
    assert any(one["doc_id"] == "facts.csv#Hungary" for one in json.loads(capsys.readouterr().out)["evidence"])
    facts = json.loads((triples / "results" / "pretrain.json").read_text("utf-8"))
    assert facts["retrieval"] == {"kind": "hybrid", "weight": 1.0} and facts["recall"]["4"] > 0


def test_explain_reads_facts(triples, capsys):
    sentence = "They say that in Hungary people pay with the [MASK]."
    assert main(["explain", str(triples), sentence, "--target", "forint", "--json"]) == 0
    assert "Hungary" in {one["title"] for one in json.loads(capsys.readouterr().out)["candidates"]}
    opened = open_run(triples)
    explained = opened.explain(sentence, targets=["forint"]).to_dict()
    assert TypeAdapter(ExplainResponse).validate_python(explained | {"versions": opened.versions}).candidates[0].null
