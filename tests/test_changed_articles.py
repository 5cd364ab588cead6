"""The facts that change between real articles, and what is counted of the answers to them."""

import json
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import changed_articles

    return changed_articles


def test_each_fact_names_two_answers_that_differ(script: ModuleType) -> None:
    rows = [json.loads(line) for line in script.FACTS.read_text("utf8").splitlines()]
    assert len(rows) == len({row["id"] for row in rows}) >= 50
    assert {row["kind"] for row in rows} == set(script.KINDS)
    for row in rows:
        assert ("new_id" in row) == (row["kind"] != "exchanged"), row["title"]
        documents = {"id": row["id"], "text": row["old"][0]}, {"id": row["id"], "text": row["new"][0]}
        fact = script.checked(row, *documents)
        assert not script.is_correct(row["new"][0], fact.old) and script.is_correct(row["new"][0], fact.new)
    with pytest.raises(AssertionError, match="does not say"):
        script.checked(rows[0], {"id": "x", "text": "nothing"}, documents[1])


@pytest.mark.slow
def test_the_articles_say_what_the_table_says(script: ModuleType, data_dir: Path) -> None:
    rows = [json.loads(line) for line in script.FACTS.read_text("utf8").splitlines()]
    found, others = script.wanted(data_dir, {row[key] for row in rows for key in ("id", "new_id") if key in row}, 5)
    facts = [script.checked(row, found[row["id"]], script.after_change(row, found)) for row in rows]
    assert len(facts) == len(rows) and len(others) == 5
    assert not {other["id"] for other in others} & found.keys()


def test_an_article_ends_with_a_sentence(script: ModuleType) -> None:
    text = "One sentence here. " * 400
    cut = script.lead(text)
    assert len(cut) <= script.LEAD < len(cut) + 19 and cut.endswith("here.") and script.lead("Short") == "Short"


def test_who_follows_is_counted_among_those_right_before(script: ModuleType) -> None:
    def fact(name: str, kind: str) -> object:
        row = {"id": name, "title": name, "kind": kind, "question": "Who?", "old": ["a"], "new": ["b"]}
        return script.checked(row, {"id": name, "text": "a"}, {"id": name, "text": "b"})

    facts = [fact("1", "later"), fact("2", "later"), fact("3", "exchanged"), fact("4", "otherwise")]
    said = {"a": {"old": True, "new": False}, "b": {"old": False, "new": True}, "-": {"old": False, "new": False}}
    told = {"before": [said[x] for x in "aa-a"], "after": [said[x] for x in "bab-"]}
    rows = {row["facts"]: row for row in script.table(facts, told)}
    assert rows["all"]["of those right before"]["new"]["share"] == pytest.approx(1 / 3)
    assert rows["later"]["of those right before"]["old"] == {"n": 2, "share": 0.5, "interval": pytest.approx((0, 1))}
    assert rows["all"]["after"]["new"]["share"] == 0.5 and rows["all"]["before"]["old"]["n"] == 4
