"""``realm align``: rows are what explain says sentence by sentence, thresholds and limits hold, files are whole, faults are one line."""

import json
import shutil
from unittest.mock import Mock

import numpy as np
import pytest

from realm.answering.explain import explain
from realm.answering.opening import open_run
from realm.cli import main
from realm.storage.sealed import seal
from realm.training.align import AlignOptions, align

KEYS = {"sentence", "masked", "targets", "doc_id", "block_id", "p_y", "p_y_null", "documents"}
DOCUMENT_KEYS = {"doc_id", "block_id", "title", "text", "p_z", "p_y_given_z", "r", "utility"}


def aligned(run, **options):
    rows, told = [], []
    return rows, align(open_run(run), AlignOptions(**options), rows.append, lambda *at: told.append(at)), told


def test_rows_are_what_explain_says(tiny_run):
    rows, summary, told = aligned(tiny_run, limit=0, k=5, least=-1e9)
    run, store = open_run(tiny_run), open_run(tiny_run).inputs.store
    assert summary["sentences"] == summary["aligned"] == len(rows) == told[-1][0] == told[-1][1] and len(told) == -(-len(rows) // 16)
    assert summary["documents"] == sum(len(row["documents"]) for row in rows)
    assert summary["utility"] == pytest.approx(np.mean([d["utility"] for row in rows for d in row["documents"]]))
    for row in rows[::7]:
        assert set(row) == KEYS and all(set(document) == DOCUMENT_KEYS for document in row["documents"])
        block = store.block(int(store.rows_of(np.array([row["block_id"]]))[0]))
        assert row["sentence"] in block.text and row["doc_id"] == block.doc_id and len(row["targets"]) == 1
        assert row["sentence"] == row["masked"].replace("[MASK]", row["targets"][0])
        found = explain(run.pretrained, run.generation, run.inputs, row["masked"], targets=row["targets"], k=5)
        assert row["p_y"] == pytest.approx(found.p_y, rel=1e-4) and row["p_y_null"] == pytest.approx(found.p_y_null, rel=1e-4)
        expected = sorted(found.candidates[1:], key=lambda c: -float(c.utility or 0))
        assert [d["utility"] for d in row["documents"]] == pytest.approx([c.utility for c in expected], abs=1e-4)
        assert {d["block_id"] for d in row["documents"]} == {c.block_id for c in expected}
        assert row["block_id"] not in {d["block_id"] for d in row["documents"]}


def test_threshold_and_limit(tiny_run):
    everything, _, _ = aligned(tiny_run, limit=0, k=5, least=-1e9)
    median = float(np.median([d["utility"] for row in everything for d in row["documents"]]))
    rows, summary, _ = aligned(tiny_run, limit=0, k=5, least=median)
    kept = [row | {"documents": [d for d in row["documents"] if d["utility"] > median]} for row in everything]
    assert rows == [row for row in kept if row["documents"]] and 0 < summary["documents"] < sum(len(r["documents"]) for r in everything)
    few, summary, _ = aligned(tiny_run, limit=5, k=5, least=-1e9)
    assert summary["sentences"] == len(few) == 5 and [row["masked"] for row in few] == [
        everything[i]["masked"] for i in np.linspace(0, len(everything) - 1, 5).round().astype(int)
    ]
    nothing, summary, _ = aligned(tiny_run, limit=3, least=1e9)
    assert nothing == [] and summary == {"sentences": 3, "aligned": 0, "documents": 0, "utility": None}


def test_the_verb(tiny_run, tmp_path, capsys):
    out = tmp_path / "new" / "aligned.jsonl"
    assert main(["align", str(tiny_run), "--out", str(out), "--limit", "20", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert summary["aligned"] == len(rows) > 0 and summary["out"] == str(out) and set(summary["versions"]) == {"params", "index", "corpus"}
    assert main(["align", str(tiny_run), "--limit", "20", "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed[:-1] == rows and printed[-1] == summary | {"out": None}
    assert main(["align", str(tiny_run), "--out", str(out), "--limit", "2"]) == 0
    assert (
        "sentences" in (shown := capsys.readouterr().out) and "written to" in shown and [p.name for p in out.parent.iterdir()] == [out.name]
    )


@pytest.mark.parametrize(("arguments", "words"), [
    (["--limit", "-1"], "limit = -1"), (["--k", "1"], "k = 1"),
    (["--out", "{tmp}"], "{tmp}: a directory is here"), (["--out", "{tmp}/file/x.jsonl"], "{tmp}/file: no directory"),
])  # fmt: skip
def test_faults_are_one_line(tiny_run, tmp_path, capsys, arguments, words):
    (tmp_path / "file").write_text("x")
    assert main(["align", str(tiny_run), *(a.format(tmp=tmp_path) for a in arguments)]) == 2
    error = capsys.readouterr().err
    assert words.format(tmp=tmp_path) in error and len(error.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_that_cannot_align(tiny_run, tmp_path, capsys):
    assert main(["align", str(tmp_path / "none")]) == 2 and "no run here" in capsys.readouterr().err
    run = shutil.copytree(tiny_run, tmp_path / "run")
    shutil.copytree(tiny_run / "stages" / "ict", run / "stages" / "pretrain", dirs_exist_ok=True)
    (run / "stages" / "pretrain" / "stage.json").write_text((tiny_run / "stages" / "pretrain" / "stage.json").read_text())
    seal(run / "stages" / "pretrain")
    if not open_run(run).pretrained.has("encoder"):
        assert main(["align", str(run)]) == 2 and "cannot fill masks" in capsys.readouterr().err
    shutil.rmtree(run / "stages" / "pretrain")
    shutil.rmtree(run / "stages" / "finetune")
    assert main(["align", str(run)]) == 2 and "pretrain" in capsys.readouterr().err


def test_an_interrupted_alignment_leaves_the_old_file(tiny_run, tmp_path, monkeypatch):
    out = tmp_path / "aligned.jsonl"
    out.write_text("old")
    monkeypatch.setattr("realm.training.align.read_sentences", Mock(side_effect=KeyboardInterrupt))
    assert main(["align", str(tiny_run), "--out", str(out)]) == 130
    assert out.read_text() == "old" and list(tmp_path.iterdir()) == [out]
