"""The script behind docs/evidence.md: what it reads once, how it pairs, and how it decides."""

import dataclasses
from pathlib import Path
from unittest.mock import Mock
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from realm.answering.answerer import Answerer
from realm.answering.opening import open_run
from realm.search.blocks import NULL_ROW

ROOT = Path(__file__).parents[2]
ASKED = ["What is the currency of Arvad?", "What do people in Belmor pay with?", "zzz"]


@pytest.fixture(scope="module")
def evidence():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        from benchmarks.evidence import evidence

        yield evidence


def strings(answers):
    return [(answer.answer, pytest.approx(answer.p, rel=1e-4)) for answer in answers]


def test_what_was_read_before_is_answered_the_same(evidence, tiny_run, monkeypatch):
    run = open_run(tiny_run)
    reader = run.answerer.reader
    slow = Answerer(run.inputs, run.source, reader, versions={})
    quick = evidence.RememberingAnswerer(run.inputs, run.source, reader, versions={})
    quick.memory = {}
    found, expected = quick.answer(ASKED, k=3), slow.answer(ASKED, k=3)
    assert [(a.answer, a.p) for a in found] == strings(expected)
    assert [[e.answer for e in a.evidence] for a in found] == [[e.answer for e in a.evidence] for a in expected]
    read = len(quick.memory)
    assert quick.answer(ASKED, k=4) and len(quick.memory) == read + len(ASKED), "one block more each"
    monkeypatch.setattr(evidence, "read_spans", Mock(side_effect=AssertionError("read again")))
    assert [(a.answer, a.p) for a in quick.answer(ASKED[:2], k=3)] == strings(expected[:2])


def test_documents_that_stay_are_looked_up(evidence, tiny_run):
    run = open_run(tiny_run)
    blocks = run.inputs.blocks([3, NULL_ROW, 0, 3])
    with torch.no_grad():
        expected = torch.from_numpy(run.generation.embedder.embed_blocks(blocks))
    torch.testing.assert_close(evidence.StandingDocuments(run.generation, run.inputs)(blocks), expected, rtol=1e-4, atol=1e-5)


def test_differences_are_paired_by_question(evidence):
    ours, theirs = np.array([[1, 1, 0, 1], [1, 0, 0, 1]]), np.array([[1, 0, 0, 1], [1, 0, 0, 0]])
    found = evidence.paired(ours, theirs)
    assert found["value"] == 0.25 and found["by_seed"] == [0.25, 0.25]
    assert found["interval"] == [0.0, 0.5] and found["decision"] == "open", "half of the questions never differ"
    assert evidence.paired(ours, ours) == {"value": 0.0, "interval": [0.0, 0.0], "by_seed": [0.0, 0.0], "decision": "open"}


@pytest.mark.parametrize(("low", "high", "by_seed", "expected"), [
    (0.1, 0.2, [0.1, 0.2, 0.1], "holds"), (0.1, 0.2, [0.1, 0.2], "above 0"), (0.1, 0.2, [0.3, 0.1, -0.1], "open"),
    (-0.2, -0.1, [-0.1], "against"), (-0.1, 0.1, [0.0], "open"),
])  # fmt: skip
def test_as_registered(evidence, low, high, by_seed, expected):
    assert evidence.decision(low, high, by_seed) == expected


def test_figures_are_those_of_the_results(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.evidence import evidence_figures

    monkeypatch.setattr("sys.argv", ["evidence_figures.py", "--out", str(tmp_path)])
    evidence_figures.main()
    drawn = sorted(tmp_path.glob("*.svg"))
    assert len(drawn) == 4
    for path in drawn:
        ElementTree.parse(path)
        assert path.read_text("utf-8") == (ROOT / "docs" / "images" / path.name).read_text("utf-8"), "draw them again"


def test_rows_of_an_ablation_beside_realm(evidence):
    assert {row.name for row in evidence.retriever_rows("no_null,salient,ict")} == {"no_null", "salient", "ict"}
    for name in ("stale", "frozen", "orqa", "no_warm"):
        with pytest.raises(SystemExit, match=name):
            evidence.retriever_rows(name)
    measured = evidence.Evidence()
    for retriever, values in (("off the shelf", [0, 0]), ("REALM", [1, 0]), ("REALM, ict", [1, 1])):
        measured.add(0, retriever, "dense", recall=np.array(values))
    found = [(row["of"], row["minus"], row["value"]) for row in measured.differences()]
    assert found == [("REALM", "off the shelf", 0.5), ("REALM, ict", "off the shelf", 1.0), ("REALM, ict", "REALM", 0.5)]


def test_the_retrievers_steps_are_a_stage_of_their_own(evidence, tiny_run):
    context = evidence.seed_context(tiny_run, 1, tiny_run.with_name("beside"))
    section = evidence.retriever_context(context, 3, {"null": False}).recipe.pretrain
    assert (section.steps, section.reader_first, section.null, section.publish) == (3, 0, False, "last") and context.seed == 1
    assert evidence.retriever_context(context).recipe.pretrain.steps == context.recipe.pretrain.steps
    none = dataclasses.replace(context.recipe, pretrain=dataclasses.replace(context.recipe.pretrain, steps=0))
    with pytest.raises(SystemExit, match="--steps"):
        evidence.retriever_context(dataclasses.replace(context, recipe=none))


def test_rows_and_differences(evidence):
    measured = evidence.Evidence()
    for hits in ([1, 1], [1, 0]):
        for retriever, values in (("off the shelf", [1, 0]), ("ORQA", [0, 0]), ("REALM", hits)):
            if not measured.repeated(0, retriever, "hybrid", ["em"]):
                measured.add(0, retriever, "hybrid", em=np.array(values))
    assert measured.rows()[2] == {
        "labels": 0, "retriever": "REALM", "search": "hybrid", "measure": "em", "n": 2, "value": 0.75, "by_seed": [1.0, 0.5]
    }  # fmt: skip
    assert [(row["minus"], row["value"]) for row in measured.differences()] == [("ORQA", 0.75), ("off the shelf", 0.25)]
    assert measured.repeated(0, "off the shelf", "hybrid", ["em"]) and not measured.repeated(0, "REALM", "hybrid", ["em"])
    assert not measured.repeated(16, "off the shelf", "hybrid", ["em"])
