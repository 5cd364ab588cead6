"""The recipes for Chinese and Korean, run to the end at toy size over documents in three scripts; recall by language."""

import json
import tomllib
from pathlib import Path

import pytest

from realm.answering.opening import open_run
from realm.models.model import RealmModel
from realm.progress import Progress
from realm.recipe import build_recipe, dump_recipe
from realm.runs.evaluation import Wanted, evaluate_run
from realm.runs.run import run_recipe

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
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


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return str(path)


@pytest.fixture(scope="module", params=[("chinese", "zh"), ("korean", "ko")], ids=["chinese", "korean"])
def run(request, tmp_path_factory):
    name, language = request.param
    root = tmp_path_factory.mktemp(name)
    values = tomllib.loads((RECIPES / f"{name}.toml").read_text("utf-8"))
    for section, keys in SMALL.items():
        values[section] |= keys
    values["corpus"]["sources"] = [write(root / "docs.jsonl", documents())]
    values["finetune"]["train"] = write(root / "train.jsonl", questions(language))
    values["eval"]["qa"] = write(root / "qa.jsonl", questions(language))
    write(root / "other.jsonl", questions("ko" if language == "zh" else "zh"))
    (root / "recipe.toml").write_text(dump_recipe(build_recipe(values)), "utf-8")
    run_recipe(root / "recipe.toml", root / "run", stages=None, progress=Progress(quiet=True))
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
    language, root = run
    opened, texts = open_run(root / "run"), {row["id"]: row["text"] for row in documents()}
    assert {opened.inputs.store.language(row) for row in range(len(opened.inputs.store))} >= {"zh", "ko"}
    for answer in opened.answerer.answer([row["question"] for row in questions(language)], k=2):
        for evidence in answer.evidence:
            begin = evidence.doc_start + evidence.start
            assert texts[evidence.doc_id][begin : begin + len(evidence.answer)] == evidence.answer
