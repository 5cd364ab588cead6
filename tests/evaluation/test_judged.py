"""Collections with judgements: BEIR's folders, TREC's columns, JSON lines with Cranfield's codes; broken ones are named by line."""

import json

import pytest

from realm.errors import DataError
from realm.evaluation.judged import load_judged

QUERIES = "".join(json.dumps({"_id": f"q{n}", "text": f"query {n}"}) + "\n" for n in (1, 2, 3))


def folder(root, qrels, name="qrels/test.tsv", queries=QUERIES):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / "queries.jsonl").write_text(queries, "utf-8")
    (root / name).write_text(qrels, "utf-8")
    return root


def test_beir_trec_and_json(tmp_path):
    found = load_judged(folder(tmp_path, "query-id\tcorpus-id\tscore\nq1\td 1\t2\nq1\td2\t0\nq2\td1\t0\nq9\td1\t1\n"))
    assert found.queries == {"q1": "query 1"} and found.grades == {"q1": {"d 1": 2, "d2": 0}}
    assert load_judged(folder(tmp_path / "trec", "q2 0 d1 1\n", "a.qrels.txt")).grades == {"q2": {"d1": 1}}
    rows = [{"qid": "q1", "did": 7, "code": 1}, {"qid": "q1", "did": 8, "code": -1}, {"qid": "q3", "did": 9, "score": 1}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert load_judged(folder(tmp_path / "json", text, "x_qrels.jsonl")).grades == {"q1": {"7": 4}, "q3": {"9": 1}}


@pytest.mark.parametrize(("qrels", "queries", "where"), [
    ("q1\td1\tgood\n", QUERIES, "test.tsv:1: no judgement"), ("q1\td1\t1\nq1\n", QUERIES, "test.tsv:2: no judgement"),
    ("q1\td1\t0\n", QUERIES, "no query with a relevant document"),
    ("q1\td1\t1\n", '{"_id": 1}\n', "queries.jsonl:1: no query"), ("q1\td1\t1\n", "{\n", "queries.jsonl:1: not JSON"),
])  # fmt: skip
def test_broken(tmp_path, qrels, queries, where):
    with pytest.raises(DataError) as caught:
        load_judged(folder(tmp_path, qrels, queries=queries))
    assert where in str(caught.value) and caught.value.cure


def test_files_that_are_missing(tmp_path):
    with pytest.raises(DataError, match="0 files"):
        load_judged(tmp_path)
    (tmp_path / "queries.jsonl").write_text(QUERIES, "utf-8")
    with pytest.raises(DataError, match="0 files"):
        load_judged(tmp_path)


def test_cranfield(data_dir):
    found = load_judged(data_dir / "ir")
    assert len(found.queries) == len(found.grades) == 225
    assert {grade for grades in found.grades.values() for grade in grades.values()} == {1, 2, 3, 4}
    assert found.grades["1"]["184"] == 3
