"""``realm compare`` in small: every row, two seeds, nothing done twice, the table, and what is refused."""

import json
import shutil

import numpy as np
import pytest

from realm.answering.opening import open_run
from realm.cli import main
from realm.errors import ConfigError, RunError
from realm.evaluation.measures import is_correct
from realm.evaluation.questions.loading import load_datasets, pooled
from realm.experiments.compare import chosen_rows, compare
from realm.progress import Progress
from realm.recipe import load_recipe
from realm.report.tables import as_text, comparison, interval
from realm.storage import locks as locking
from realm.storage.files import sha256_file
from realm.storage.layout import RunPaths, stage_facts
from realm.storage.manifests import read_note
from realm.training.baselines.rows import CONTENDERS
from realm.training.context import load_stage, open_context

QUIET = Progress(quiet=True)
NAMES = [contender.name for contender in CONTENDERS if contender.name != "published"]
"""Rows of a recipe that starts from nothing."""


def write_both(root, write_tiny):
    """The tiny recipe, which learns from and is asked two files: one with strings, one with patterns."""
    path, text = write_tiny(root), (root / "recipe.toml").read_text()
    for key, file in (("qa", "qa.jsonl"), ("train", "qa_train.jsonl")):
        text = text.replace(f'{key} = "{file}"', f'{key} = ["{file}", "patterns.jsonl"]')
    path.write_text(text)
    patterns = [{"id": f"p{at}", "question": "Who pays?", "answers": ["cents?"], "answer_type": "regex"} for at in range(3)]
    (root / "patterns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in patterns), "utf-8")
    return path


@pytest.fixture(scope="module")
def compared(tmp_path_factory, write_tiny):
    """All rows on the tiny run, two seeds and two files of questions: the directory and what was returned."""
    root = tmp_path_factory.mktemp("compared")
    recipe = load_recipe(write_both(root, write_tiny), {"eval": {"closed_book_epochs": 2}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("realm.training.baselines.closed_book.BATCH", 8)
        return root / "out", compare(recipe, root / "out", seeds=2, progress=QUIET)


def test_two_comparisons_do_not_train_in_one_directory(tmp_path, write_tiny, monkeypatch):
    recipe = load_recipe(write_both(tmp_path, write_tiny))
    monkeypatch.setattr(locking, "WAIT_SECONDS", 0.0)
    (tmp_path / "out").mkdir()
    with (
        locking.held(tmp_path / "out", lambda named: RunError(named)),
        pytest.raises(RunError, match=r"another process \(process \d+\) trains here.*compare\.txt"),
    ):
        compare(recipe, tmp_path / "out", progress=QUIET)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["LOCK"]


def test_every_row_has_every_column(compared):
    _, found = compared
    assert [row["name"] for row in found["rows"]] == NAMES and found["n"] == 9
    for row in found["rows"]:
        assert row["seeds"] == [0, 1] and 0 <= row["em_interval"][0] <= row["em"] <= row["em_interval"][1] <= 1
        assert row["em"] == pytest.approx(np.mean(row["em_by_seed"])) and row["encoded"] > 0 and row["parameters"] > 0
        assert row["ms_per_question"] > 0 and (row["index_bytes"] > 0) == (row["name"] != "closed_book")
        assert (row["recall"] is None) == (row["name"] == "closed_book")
        assert (row["zero_shot"] is not None) == (row["name"] in ("finetune", "orqa"))
    by_name = {row["name"]: row for row in found["rows"]}
    assert by_name["bm25"]["recall_gold"] == {"1": 1.0, "5": 1.0}, "one block holds all words of a question"
    assert by_name["tfidf"]["encoded"] == by_name["bm25"]["encoded"] == by_name["finetune"]["encoded"], "the same encoder"
    assert by_name["orqa"]["encoded"] == pytest.approx(by_name["finetune"]["encoded"], rel=0.5), "as many wordpieces, whole steps"
    assert {(gap["of"], gap["minus"]) for gap in found["differences"]} == {("finetune", "orqa"), ("finetune", "closed_book")}


def test_datasets_are_pooled_and_told_apart(compared):
    root, found = compared
    assert {name: apart["n"] for name, apart in found["datasets"].items()} == {"qa": 6, "patterns": 3}
    for at, row in enumerate(found["rows"]):
        apart = {name: table["rows"][at] for name, table in found["datasets"].items()}
        assert row["em"] == pytest.approx((6 * apart["qa"]["em"] + 3 * apart["patterns"]["em"]) / 9)
        hits = json.loads((root / "seed-0" / "compare" / f"{row['name']}.json").read_text())["hits"]
        assert apart["patterns"]["em_by_seed"][0] == pytest.approx(np.mean(hits[6:])), "in the order of the files"
        if row["recall"]:
            for depth in ("1", "5"):
                parts = [6 * apart["qa"]["recall"][depth], 3 * apart["patterns"]["recall"][depth]]
                assert row["recall"][depth] == pytest.approx(sum(parts) / 9)
            assert apart["patterns"]["recall_gold"] is None and apart["patterns"]["f1"] is None, "patterns name no documents and no words"
            assert row["recall_gold"] == apart["qa"]["recall_gold"] and row["f1"] == apart["qa"]["f1"]
    for at, gap in enumerate(found["differences"]):
        parts = [found["datasets"][name]["differences"][at]["em"] for name in ("qa", "patterns")]
        assert gap["em"] == pytest.approx((6 * parts[0] + 3 * parts[1]) / 9)
    assert "\nqa, 6 questions\n" in (root / "compare.txt").read_text()


def test_rows_are_what_their_networks_answer(compared):
    root, _ = compared
    run = open_run(root / "seed-0")
    questions = pooled(load_datasets(run.recipe.eval_files))
    assert [q.id for q in questions[-4:]] == [*[q.id for q in questions[5:6]], "p0", "p1", "p2"]
    answers = run.answerer.answer([q.text for q in questions], k=run.recipe.read)
    row = json.loads((root / "seed-0" / "compare" / "finetune.json").read_text())
    assert row["hits"] == [int(is_correct(a.answer, q)) for a, q in zip(answers, questions, strict=True)]
    assert len(row["risk_coverage"]["curve"]) == 20 and 0 <= row["calibration_error"] <= 1


def test_rows_learn_the_same_way(compared):
    """The same steps; ORQA's encoder is the continued one; the seeds share one corpus and nothing else."""
    root, _ = compared
    paths = RunPaths(root / "seed-0")
    assert {stage_facts(paths, name)["steps"] for name in NAMES if name != "closed_book"} == {5}
    context = open_context(paths, load_recipe(paths.config), lambda *_: None)
    assert load_stage(context, "orqa").document_embedder is not None and stage_facts(paths, "continued")["encoded"] > 0
    assert (root / "seed-1" / "corpus").resolve() == (root / "seed-0" / "corpus").resolve()
    for name in NAMES:
        weights = [sha256_file(root / f"seed-{seed}" / "stages" / name / "model.safetensors") for seed in (0, 1)]
        assert weights[0] != weights[1]


def test_nothing_is_done_twice(compared, write_tiny, monkeypatch):
    root, found = compared
    recipe = load_recipe(root.parent / "recipe.toml", {"eval": {"closed_book_epochs": 2}})

    def never(*_, **__):
        raise AssertionError("trained or measured again")

    monkeypatch.setattr("realm.training.baselines.closed_book.BATCH", 8)
    monkeypatch.setattr("realm.training.context.fit", never)
    monkeypatch.setattr("realm.training.baselines.rows.measured", never)
    assert compare(recipe, root, seeds=2, progress=QUIET) == found
    # A row that was lost is measured anew, by itself and without training.
    monkeypatch.undo()
    monkeypatch.setattr("realm.training.baselines.closed_book.BATCH", 8)
    monkeypatch.setattr("realm.training.context.fit", never)
    row = root / "seed-1" / "compare" / "tfidf.json"
    before = read_note(row)
    row.write_text("{half")
    compare(recipe, root, seeds=2, progress=QUIET)
    assert {**read_note(row), "ms_per_question": 0} == {**before, "ms_per_question": 0}


def fake(name, seed, hits, **more):
    facts = {"name": name, "title": f"{name} & co", "seed": seed, "n": len(hits), "hits": hits, "em": sum(hits) / len(hits), "f1": 0.5}
    facts |= {"recall": {"1": 0.25, "5": 1.0}, "recall_gold": None, "encoded": 1_200_000, "parameters": 10, "index_bytes": 0}
    return facts | {"ms_per_question": 1.5} | more


def test_means_and_paired_differences():
    ours = [fake("finetune", 0, [1, 1, 1, 0]), fake("finetune", 1, [1, 1, 0, 0])]
    theirs = [fake("orqa", 0, [1, 0, 1, 0]), fake("orqa", 1, [1, 0, 0, 0])]
    found = comparison({"orqa": theirs, "finetune": ours, "closed_book": []})
    assert [row["em"] for row in found["rows"]] == [0.375, 0.625]
    (gap,) = found["differences"]
    assert gap["em"] == 0.25 and gap["interval"] == list(interval(np.array([0.0, 1.0, 0.0, 0.0])))
    assert gap["interval"][0] == 0.0, "paired: questions on which both agree say nothing"
    assert interval(np.ones(7)) == (1.0, 1.0)


def test_the_table(compared):
    root, _ = compared
    found = comparison({"orqa": [fake("orqa", 0, [1, 0])], "finetune": [fake("finetune", 0, [1, 1], recall=None)]})
    assert found["datasets"] == {}
    text = as_text(found)
    assert "recall@1  recall@5" in text and "1,200,000" in text and "gold@" not in text
    assert "finetune & co minus orqa & co: +50.0 EM, 95 % interval +0.0 to +100.0" in text
    real = json.loads((root / "compare.json").read_text())
    assert [row["name"] for row in real["rows"]] == NAMES and (root / "compare.txt").read_text() == as_text(real)


def test_what_is_refused(tmp_path, write_tiny, capsys):
    recipe = write_tiny(tmp_path)
    known = load_recipe(recipe)
    with pytest.raises(ConfigError, match=r"no row 'gpt' in a comparison.*tfidf, bm25, hardem, published, orqa, realm"):
        chosen_rows(["realm", "gpt"], known)
    with pytest.raises(ConfigError, match=r"the row published has nothing to start from.*model\.body"):
        chosen_rows(["published"], known)
    assert [row.name for row in chosen_rows(["realm", "bm25"], known)] == ["bm25", "finetune"]
    for arguments, problem in (
        (["--seeds", "0"], "no seed to train with"),
        (["--rows", "all"], "no row 'all'"),
        (["--set", "ict.stepz=3"], "unknown key in [ict] 'stepz'"),
    ):
        assert main(["compare", str(recipe), "--out", str(tmp_path / "out"), *arguments]) == 2
        assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    recipe.write_text(recipe.read_text().replace('qa = "qa.jsonl"', ""))
    assert main(["compare", str(recipe), "--out", str(tmp_path / "out")]) == 2
    assert "needs training questions and evaluation questions" in capsys.readouterr().err


def test_the_command(compared, tmp_path, capsys):
    root, _ = compared
    out = shutil.copytree(root, tmp_path / "out", symlinks=True)
    assert (main( [
        "compare", str(root.parent / "recipe.toml"), "--out", str(out), "--rows", "bm25", "--json", "--set",
        "eval.closed_book_epochs=2",
    ]) == 0)  # fmt: skip
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["name"] for row in found["rows"]] == ["bm25"] and found["differences"] == []
