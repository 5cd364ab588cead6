"""`realm eval` on a run of seconds: several files, the same whatever the batch, predictions, TREC files that outside tools agree with."""

import json
import shutil

import numpy as np
import pytest

import realm.answering.answerer
import realm.evaluation.evaluate
from realm.answering.opening import open_run
from realm.cli import main
from realm.errors import ConfigError, DataError, RunError, SnapshotError
from realm.evaluation.evaluate import answer_all, rank
from realm.evaluation.measures import Relevance, bootstrap_interval
from realm.evaluation.questions.loading import load_questions
from realm.runs.evaluation import Wanted, evaluate_run
from realm.text.matching.answers import exact_match

COUNTRIES = ["Arvad", "Belmor", "Carsin", "Dulwen", "Estrag", "Faldor"]


@pytest.fixture
def patterns(tmp_path):
    rows = [{"id": n, "question": f"When do many visit {n}?", "answers": ["19[0-9]{2}", "("], "answer_type": "regex"} for n in COUNTRIES]
    path = tmp_path / "patterns.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_several_datasets(tiny_run, patterns):
    qa = tiny_run.parent / "qa.jsonl"
    found = evaluate_run(tiny_run, Wanted((qa, patterns)))
    alone = {path.stem: evaluate_run(tiny_run, Wanted((path,))) for path in (qa, patterns)}
    assert list(found["datasets"]) == ["qa", "patterns"] and found["n"] == 12
    for name, rates in found["datasets"].items():
        assert rates == {key: alone[name][key] for key in rates} == alone[name]["datasets"][name]
    both = [found["datasets"][name] for name in ("qa", "patterns")]
    assert found["em"] == pytest.approx(sum(r["em"] for r in both) / 2)
    assert found["f1"] == both[0]["f1"] and both[1]["f1"] is None and both[0]["regex_em"] is None
    assert found["regex_em"] == both[1]["em"] == both[1]["regex_em"]
    assert found["recall"]["5"] == pytest.approx(sum(r["recall"]["5"] for r in both) / 2)
    assert found["invalid_patterns"] == 1 and found["slow_patterns"] == 0 and found["cut_questions"] == 0
    for rates in (*both, found):
        low, high = rates["em_interval"]
        assert 0 <= low <= rates["em"] <= high <= 1


def test_abstaining_is_counted_beside_the_whole(tiny_run, tmp_path, monkeypatch, capsys):
    """Coverage and exact match of what is left, against a loop over the predictions; the rates of the whole stay what they are."""
    qa, file = tiny_run.parent / "qa.jsonl", tmp_path / "p.jsonl"
    whole = evaluate_run(tiny_run, Wanted((qa,), predictions=file))
    assert (whole["coverage"], whole["selective_em"]) == (1.0, whole["em"])
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    below = sorted(row["confidence"] for row in rows)[3]
    found = evaluate_run(tiny_run, Wanted((qa,), abstain_below=below, predictions=file))
    kept = [row["correct"] for row in rows if row["confidence"] >= below]
    assert found["coverage"] == len(kept) / len(rows) < 1 and found["selective_em"] == sum(kept) / len(kept)
    assert {**found, "coverage": 1.0, "selective_em": whole["em"], "abstain_below": 0.0, "datasets": 0} == {**whole, "datasets": 0}
    assert [json.loads(line)["abstained"] for line in file.read_text().splitlines()] == [row["confidence"] < below for row in rows]
    none = evaluate_run(tiny_run, Wanted((qa,), abstain_below=1.0))
    assert none["selective_em"] is None and none["coverage"] == 0 and none["em"] == whole["em"]
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["eval", str(tiny_run), "--qa", str(qa), "--abstain-below", str(below)]) == 0
    assert "selective EM" in capsys.readouterr().out
    assert main(["eval", str(tiny_run), "--qa", str(qa), "--abstain-below", "2"]) == 2
    assert "--abstain-below 2.0: not a probability" in capsys.readouterr().err


@pytest.mark.parametrize("batch", [1, 4, 64])
def test_the_same_whatever_the_batch(tiny_run, batch, monkeypatch):
    run, questions = open_run(tiny_run), load_questions(tiny_run.parent / "qa.jsonl")
    relevance, told = Relevance(run.inputs.store), []
    monkeypatch.setattr(realm.evaluation.evaluate, "SEARCH_BATCH", batch)
    rankings = rank(run.source, relevance, questions, 12, counting=lambda *what: told.append(what))
    assert told[-1] == ("eval: questions searched", 6, 6) and len(told) == -(-6 // batch)
    monkeypatch.setattr(realm.answering.answerer, "BATCH_SIZE", batch)
    readings = answer_all(run.answerer, relevance, questions, 3)
    for number, question in enumerate(questions):
        one = rank(run.source, relevance, [question], 12)[0]
        assert np.array_equal(rankings[number].rows, one.rows) and np.allclose(rankings[number].scores, one.scores, atol=1e-5)
        answer, got = run.answerer.answer([question.text], k=3)[0], readings[number].answer
        assert (got.answer, [e.block_id for e in got.evidence]) == (answer.answer, [e.block_id for e in answer.evidence])
        assert got.p == pytest.approx(answer.p, abs=1e-5)


def test_predictions(tiny_run, patterns, tmp_path):
    qa = tiny_run.parent / "qa.jsonl"
    found = evaluate_run(tiny_run, Wanted((qa, patterns), read=2, predictions=tmp_path / "p.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text("utf-8").splitlines()]
    assert [row["id"] for row in rows] == COUNTRIES * 2 and {row["dataset"] for row in rows} == {"qa", "patterns"}
    assert sum(row["correct"] for row in rows) / 12 == pytest.approx(found["em"])
    documents = {row["id"]: row["text"] for row in map(json.loads, (tiny_run.parent / "docs.jsonl").read_text("utf-8").splitlines())}
    for row in rows:
        assert len(row["evidence"]) == 2
        for evidence in row["evidence"]:  # the document's own spelling, where it stands
            assert documents[evidence["doc_id"]][evidence["start"] : evidence["end"]] == evidence["answer"]
        if row["dataset"] == "qa":
            assert row["correct"] == exact_match(row["prediction"], row["answers"])


def test_what_is_refused(tiny_run):
    qa = tiny_run.parent / "qa.jsonl"
    with pytest.raises(ConfigError, match="nothing to evaluate on"):
        evaluate_run(tiny_run, Wanted(()))
    with pytest.raises(ConfigError, match="is named twice"):
        evaluate_run(tiny_run, Wanted((qa, qa.parent / "." / "qa.jsonl")))
    with pytest.raises(ConfigError, match="--k 0: too few"):
        evaluate_run(tiny_run, Wanted((qa,), depths=(0, 5)))


def test_an_index_of_another_corpus(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    command = ["corpus", "build", str(tiny_run.parent / "more.jsonl"), "--out", str(tmp_path / "other"), "--vocab-size", "300"]
    assert main(command) == 0
    shutil.rmtree(run / "corpus")
    shutil.copytree(tmp_path / "other", run / "corpus")
    with pytest.raises((SnapshotError, RunError, DataError)) as caught:
        evaluate_run(run, Wanted((tiny_run.parent / "qa.jsonl",)))
    assert caught.value.cure


def test_long_questions_are_cut_and_a_depth_beyond_the_corpus_is_all_of_it(tiny_run, tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps({"question": "What is " + "very " * 100, "answers": ["Tirel"]}) + "\n", "utf-8")
    found = evaluate_run(tiny_run, Wanted((path, tiny_run.parent / "qa.jsonl"), depths=(12, 5000)))
    assert found["cut_questions"] == 1 and found["datasets"]["qa"]["recall"] == {"12": 1.0, "5000": 1.0}


def test_intervals_need_no_memory_for_a_million(monkeypatch):
    hits = [True] * 30 + [False] * 70
    whole = bootstrap_interval(hits)
    monkeypatch.setattr("realm.evaluation.measures._DRAWS_PER_CHUNK", 700)
    assert bootstrap_interval(hits) == whole and 0.2 < whole[0] < 0.3 < whole[1] < 0.4


def test_the_table(tiny_run, patterns, capsys):
    command = ["eval", tiny_run, "--qa", tiny_run.parent / "qa.jsonl", patterns, "--k", 1, 5]
    assert main([str(word) for word in command]) == 0
    shown = capsys.readouterr().out
    for words in ("together", "patterns", "regex EM", "qa, gold", "invalid patterns"):
        assert words in shown
