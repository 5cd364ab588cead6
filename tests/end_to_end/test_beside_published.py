"""``realm compare`` over a published body whose reader points: the same reader start in every row, and only the retriever differs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from realm.errors import ConfigError
from realm.experiments.compare import chosen_rows, compare
from realm.models.model import state_sha256
from realm.progress import Progress
from realm.recipe import build_recipe, dump_recipe
from realm.storage.files import sha256_file
from realm.storage.paths import RunPaths
from realm.storage.stages import stage_facts
from realm.training.baselines.orqa import ClozeTask, finetune_with, learnt_cloze, published_retriever, retrieving_wordpieces
from realm.training.context import load_stage, open_context
from realm.training.ict import IctTask

ROWS = ["bm25", "published", "orqa", "realm"]
STAGES = ("published", "orqa", "finetune")


def asked(root, recipe):
    """Questions on the bridges, to learn from and to be asked; each its file."""
    rows = [json.loads(line) for line in Path(recipe.corpus.sources[0]).read_text().splitlines()][::2]
    files = []
    for name, words in (("train", "By whom was the stone bridge of {} built?"), ("test", "Who built the old bridge of {}?")):
        questions = [
            {"id": row["id"], "question": words.format(row["id"]), "answers": [row["text"].split("built by ")[1].split(".")[0]]}
            for row in rows
        ]
        (root / f"{name}.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
        files.append(str(root / f"{name}.jsonl"))
    return files[0], files[1]


def over_body(root, towns, make_body, **pretrain):
    """A recipe of seconds over a body in small, whose reader learns first and queries alone after it."""
    corpus = towns(root)
    texts = [json.loads(line)["text"] for line in Path(corpus.corpus.sources[0]).read_text().splitlines()]
    (root / "body").mkdir()
    body = make_body(root / "body", texts)
    train, test = asked(root, corpus)
    return build_recipe( {
        "model": {"body": str(body), "span_hidden": 32}, "corpus": {"sources": list(corpus.corpus.sources)},
        "run": {"threads": 1, "device": "cpu", "bf16": False},
        "pretrain": {"fill": "pointer", "steps": 6, "reader_first": 4, "batch": 4, "held_out": 2, "eval_every": 6, **pretrain},
        "warm": {"steps": 2, "batch": 4}, "ict": {"steps": 2, "batch": 4},
        "finetune": {"train": train, "steps": 2, "batch": 2, "read": 2, "start_questions": 0},
        "eval": {"qa": test, "k": [1, 5]},
    })  # fmt: skip


@pytest.fixture(scope="module")
def compared(tmp_path_factory, towns, make_body):
    root = tmp_path_factory.mktemp("beside")
    recipe = over_body(root, towns, make_body)
    return recipe, root / "out", compare(recipe, root / "out", rows=ROWS, progress=Progress(quiet=True))


def context_of(recipe, out):
    return open_context(RunPaths(out / "seed-0"), recipe, lambda *_: None)


def test_every_row_is_measured(compared):
    _, _, found = compared
    assert [row["name"] for row in found["rows"]] == ["bm25", "published", "orqa", "finetune"] and found["n"] == 12
    assert [(gap["of"], gap["minus"]) for gap in found["differences"]] == [("finetune", "published"), ("finetune", "orqa")]
    read = {row["name"]: row["encoded"] for row in found["rows"]}
    assert read["published"] < read["orqa"] and read["orqa"] == pytest.approx(read["finetune"], rel=0.25)


def test_only_the_retriever_differs(compared, monkeypatch):
    """Before a question: one reader, one index, documents as published, three embedders of queries."""
    recipe, out, _ = compared
    context, starts = context_of(recipe, out), {}
    monkeypatch.setattr("realm.training.baselines.orqa.train_reader", lambda *_: {})
    monkeypatch.setattr("realm.training.baselines.orqa.publish_stage", lambda _, stage, model, *rest: starts.update({stage: model}))
    finetune_with(context, "published", published_retriever(context), "")
    finetune_with(context, "orqa", learnt_cloze(context), "")
    starts["finetune"] = load_stage(context, "pretrain")
    assert len({state_sha256(starts[stage].reader) for stage in STAGES}) == 1
    assert len({state_sha256(starts[stage].documents) for stage in STAGES}) == 1
    assert len({state_sha256(starts[stage].embedder) for stage in STAGES}) == 3
    assert state_sha256(starts["published"].embedder) == state_sha256(starts["published"].documents)
    assert {stage_facts(context.paths, stage)["generation"] for stage in STAGES} == {1}


def test_the_twin_reads_as_much_as_the_retriever_learnt_from(compared):
    recipe, out, _ = compared
    context = context_of(recipe, out)
    encoded = stage_facts(context.paths, "pretrain")["encoded"]
    assert retrieving_wordpieces(context) == pytest.approx(encoded / 3), "two steps of six"
    task = ClozeTask(context, published_retriever(context))
    assert task.encoded == pytest.approx(task.section.steps * task.wordpieces_a_step(), abs=1)
    assert abs(task.encoded - retrieving_wordpieces(context)) <= task.wordpieces_a_step() / 2
    facts = stage_facts(context.paths, "cloze")
    assert (facts["steps"], facts["encoded"]) == (task.section.steps, task.encoded)
    assert task.section.lr == pytest.approx(recipe.pretrain.lr * recipe.pretrain.retriever_rate)


def test_queries_alone_learn_the_cloze(compared):
    """The gradient reaches the queries' side; blocks are embedded by the documents' own."""
    recipe, out, _ = compared
    context = context_of(recipe, out)
    model = published_retriever(context)
    task = IctTask(context, model)
    before = task.step(0).loss.detach()
    with torch.no_grad():
        for parameter in model.document_embedder.parameters():
            parameter.mul_(0.5)
    loss = task.step(0).loss
    assert float(loss.detach()) != pytest.approx(float(before)), "blocks are the documents' side's"
    loss.backward()
    assert any(p.grad is not None and float(p.grad.abs().sum()) for p in model.embedder.parameters())
    assert all(p.grad is None for p in model.document_embedder.parameters())


def test_nothing_is_done_twice(compared, monkeypatch):
    recipe, out, found = compared

    def never(*_, **__):
        raise AssertionError("trained or measured again")

    monkeypatch.setattr("realm.training.context.fit", never)
    monkeypatch.setattr("realm.training.baselines.rows.measured", never)
    assert compare(recipe, out, rows=ROWS, progress=Progress(quiet=True)) == found


def test_where_documents_learn_each_row_has_an_index_of_its_own(tmp_path, towns, make_body):
    """Over the paper's filling of masks, both sides learn: the published embedder's index is not REALM's, and neither is the twin's."""
    values = {"fill": "mlm", "reader_first": 0, "documents": "trained", "own_block": 0.0, "questions": 0.0}
    recipe = over_body(tmp_path, towns, make_body, **values, steps=3, force=True, refresh="inline")
    found = compare(recipe, tmp_path / "out", rows=["published", "orqa", "realm"], progress=Progress(quiet=True))
    assert [row["name"] for row in found["rows"]] == ["published", "orqa", "finetune"]
    context = context_of(recipe, tmp_path / "out")
    assert len({state_sha256(load_stage(context, stage).documents) for stage in STAGES}) == 3
    weights = [
        sha256_file(next((tmp_path / "out" / "seed-0" / "compare" / row / "index").rglob("vectors-*.npy"))) for row in ("published", "orqa")
    ]
    assert weights[0] != weights[1]


def test_rows_that_a_recipe_has_nothing_for(compared):
    recipe, _, _ = compared
    untrained = replace(recipe, pretrain=replace(recipe.pretrain, steps=0))
    assert [row.name for row in chosen_rows((), untrained)] == ["tfidf", "bm25", "finetune", "closed_book"]
    with pytest.raises(ConfigError, match=r"the row orqa has nothing to start from in this recipe.*over published weights.*--rows"):
        chosen_rows(["orqa"], untrained)
    assert dump_recipe(recipe)
