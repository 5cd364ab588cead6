"""A reader that points, over a real corpus: the fast way against loops over spans, and a whole run that learns from documents alone."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from realm.answering.opening import open_run, read_run_recipe
from realm.answering.pointing import best_strings, point_at, read_candidates, score_spans
from realm.cli import main
from realm.errors import ConfigError
from realm.models.featurize import MARKED_SEGMENTS, marked
from realm.models.model import RealmModel
from realm.models.spec import bert_spec, one_body
from realm.progress import Progress
from realm.recipe import build_recipe
from realm.runs.run import run_recipe
from realm.search.blocks import NO_ROW, NULL_ROW
from realm.storage.paths import RunPaths
from realm.training.context import load_stage, open_context
from realm.training.order import hold_out
from realm.training.pretrain.task import PretrainTask

PLACES = ("Oslo", "Lima", "Cairo", "Quito", "Hanoi", "Accra", "Sofia", "Dakar", "Minsk", "Tunis", "Delhi", "Seoul")
RIVERS = ("Branta", "Kolma", "Vessen", "Tarrow", "Ilmaro", "Quenda", "Sorvik", "Palune", "Grabe", "Ostara", "Melvar", "Durn")
"""Each fact stands in two documents, in other words."""


def documents(directory):
    rows = []
    for place, river in zip(PLACES, RIVERS, strict=True):
        rows.append({"id": place, "title": place, "text": f"{place} is an old town. The river {river} flows through {place} to the sea."})
        rows.append({"id": river, "title": river, "text": f"The {river} is a long river. People in {place} fish in the {river} all year."})
    (directory / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory / "documents.jsonl"


def recipe(source, **sections):
    values = {
        "corpus": {"sources": [str(source)], "vocab_size": 300}, "run": {"threads": 1, "device": "cpu"},
        "model": {"hidden": 32, "layers": 2, "heads": 2, "intermediate": 64, "projection": 16, "span_hidden": 32},
        "warm": {"steps": 2, "batch": 4}, "ict": {"steps": 4, "batch": 8},
        "pretrain": {"fill": "pointer", "steps": 6, "batch": 4, "candidates": 4, "refresh": "inline", "refresh_every": 3, "held_out": 4},
        "finetune": {"steps": 0},
    }  # fmt: skip
    return build_recipe({name: {**own, **sections.get(name, {})} for name, own in values.items()} | {
        name: own for name, own in sections.items() if name not in values
    })  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("pointer")
    run_recipe(recipe(documents(root)), root / "run", stages=("corpus", "warm", "ict", "pretrain"), progress=Progress(quiet=True))
    return root / "run"


def test_the_pointer_against_a_loop_over_the_spans(run):
    opened = open_run(run)
    store, inputs = opened.inputs.store, opened.inputs
    torch.manual_seed(1)
    body = bert_spec(
        vocab_size=store.tokenizer.vocab_size, hidden=32, layers=2, heads=2, intermediate=64, max_length=512, dropout=0, attention_dropout=0
    )
    reader = RealmModel(one_body(body, span_hidden=16, max_span=4, parts=("reader",))).eval().reader
    target = store.tokenizer.encode(["Branta"])[0]
    query = [*store.tokenizer.encode(["the river"])[0], inputs.featurizer.mask]
    holding = [int(store.live_rows_of_document(name)[0]) for name in ("Oslo", "Branta")]
    rows = np.array([[NULL_ROW, *holding, int(store.live_rows_of_document("Lima")[0]), NO_ROW]])
    with torch.no_grad():
        pointed = point_at(reader, inputs, [query], [target], rows)
        pi, found = math.exp(inputs.span_places.log_prior(target)), pointed.log_probs[0].exp().tolist()
        for j, row in enumerate(rows[0].tolist()):
            if row < 0:
                assert found[j] == pytest.approx(pi, rel=1e-5)
                continue
            one = reader([inputs.joint(query, row)], [inputs.featurizer.body_start(query)])
            n, ids = math.exp(one.not_here[0].item()), store.token_ids(row).tolist()
            hits = everything = 0.0
            for start in range(len(ids)):
                for end in range(start + 1, min(start + 4, len(ids)) + 1):
                    f = math.exp(one.logits[0, start, end - start - 1].item())
                    everything += f
                    hits += f * ((start, end) in inputs.span_places.places(row, target))
            assert hits > 0 if row in holding else hits == 0
            assert found[j] == pytest.approx((hits + n * pi) / (n + everything), rel=1e-4)
        strings = best_strings(pointed.spans.of(0), torch.full((5,), math.log(0.2)), inputs, rows[0])
    assert 0 < sum(string.p for string in strings) <= 1 and [s.p for s in strings] == sorted((s.p for s in strings), reverse=True)


def test_a_reader_of_marks_sees_what_a_block_shares_with_its_question(run, tmp_path):
    opened = open_run(run)
    inputs, size = opened.inputs, {"hidden": 64, "layers": 3, "heads": 2, "intermediate": 64, "max_length": 512, "dropout": 0}
    body = bert_spec(vocab_size=opened.inputs.store.tokenizer.vocab_size, attention_dropout=0, segments=MARKED_SEGMENTS, **size)
    model = RealmModel(one_body(body, parts=("encoder",))).eval().with_reader(0, span_hidden=8, max_span=4, pointer=True, marks=True)
    model.save_pretrained(tmp_path / "model")
    reader = RealmModel.from_pretrained(tmp_path / "model").eval().reader
    assert reader.spec.marks
    kinds = reader.body.model.embeddings.token_type_embeddings.weight
    assert (kinds[2:] @ kinds[1] > kinds[0] @ kinds[1]).all(), "marked wordpieces start as ones of the document"
    row = int(inputs.store.live_rows_of_document("Oslo")[0])
    query = inputs.store.token_ids(row).tolist()[2:5]
    asked = inputs.featurizer.with_mask(query)
    start = inputs.featurizer.body_start(asked)
    with torch.no_grad():
        found = score_spans(reader, inputs, [query], np.array([[row]]))
        by_hand, blind = (reader([sequence], [start]) for sequence in (marked(inputs.joint(asked, row), start), inputs.joint(asked, row)))
    assert torch.allclose(found.logits[0], by_hand.logits, atol=1e-6) and not torch.allclose(by_hand.logits, blind.logits, atol=1e-3)


def test_a_reader_that_points_gives_its_spans_what_not_here_leaves(run):
    """Read with relevance 0, the spans of one block sum to 1 - p(none)."""
    opened = open_run(run)
    reader = opened.networks.pretrained.reader
    assert reader.spec.pointer
    query = opened.inputs.store.tokenizer.encode(["which river"])[0]
    with torch.no_grad():
        spans = read_candidates(reader, opened.inputs, [query], np.array([[0, 1]]), torch.zeros(1, 2))
        mass = spans.logits.masked_fill(~spans.valid, float("-inf")).flatten(2).exp().sum(-1)
    assert (mass < 1).all() and (mass > 0).all()


def test_a_run_that_points_answers_and_explains_without_a_question(run, capsys):
    assert main(["ask", str(run), "Which river flows through Oslo?", "--json"]) == 0
    out = capsys.readouterr()
    answer = json.loads(out.out.splitlines()[-1])
    assert "trained on the documents alone" in out.err and answer["answer"] and 0 < answer["p"] <= 1
    assert all(e["text"][e["start"] : e["end"]] == e["answer"] for e in answer["evidence"])
    assert main(["explain", str(run), "The river [MASK] flows through Oslo.", "--target", "Branta", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["p_y"] == pytest.approx(sum(c["p_z"] * c["p_y_given_z"] for c in told["candidates"]))
    assert sum(c["r"] for c in told["candidates"]) == pytest.approx(0, abs=1e-6) and told["candidates"][0]["null"]
    assert main(["explain", str(run), "The river [MASK] flows through Oslo.", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["targets"] == [told["predictions"][0]["text"]]
    assert main(["explain", str(run), "The [MASK] flows through [MASK]."]) == 2
    assert "points at one span" in capsys.readouterr().err


def test_fine_tuning_goes_on_with_the_reader_that_points(run, tmp_path):
    """One network reads before and after questions: with no step of fine-tuning it is the same reader."""
    source, asked = documents(tmp_path), tmp_path / "qa.jsonl"
    rows = [{"id": p, "question": f"Which river flows through {p}?", "answers": [r]} for p, r in zip(PLACES, RIVERS, strict=True)]
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tuned = recipe(
        source, finetune={"train": str(asked), "steps": 2, "batch": 2, "read": 2, "beam": 4, "lr": 1e-9}, eval={"qa": str(asked)}
    )
    run_recipe(tuned, tmp_path / "run", stages=("corpus", "warm", "ict", "pretrain", "finetune"), progress=Progress(quiet=True))
    before = RealmModel.from_pretrained(tmp_path / "run" / "stages" / "pretrain").reader
    after = RealmModel.from_pretrained(tmp_path / "run" / "stages" / "finetune").reader
    assert after.spec == replace(before.spec, taught=True) and after.spec.pointer and not before.spec.taught
    for (name, one), other in zip(before.state_dict().items(), after.state_dict().values(), strict=True):
        assert torch.allclose(one, other, atol=1e-6), name
    assert not open_run(tmp_path / "run").without_questions


@pytest.mark.parametrize("way", [{"reader_first": 9}, {"retriever_rate": 0.0}, {"reader_first": 3}])
def test_what_learnt_alone_is_fine_tuned_over_its_index(way, tmp_path):
    """The index belongs to the document embedder that fine-tuning forks, whether the retriever learnt or not."""
    source, asked = documents(tmp_path), tmp_path / "qa.jsonl"
    rows = [{"id": p, "question": f"Which river flows through {p}?", "answers": [r]} for p, r in zip(PLACES, RIVERS, strict=True)]
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    section = {"train": str(asked), "steps": 1, "batch": 2, "read": 2, "beam": 4}
    tuned = recipe(source, pretrain=way, finetune=section, eval={"qa": str(asked)})
    stages = ("corpus", "warm", "ict", "pretrain", "finetune", "eval")
    run_recipe(tuned, tmp_path / "run", stages=stages, progress=Progress(quiet=True))
    assert json.loads((tmp_path / "run" / "results" / "finetune.json").read_text())["n"] == len(PLACES)
    offset = float(RealmModel.from_pretrained(tmp_path / "run" / "stages" / "pretrain").embedder.null_offset.detach())
    assert (offset == 0) == (way != {"reader_first": 3})


@pytest.mark.parametrize("way", [{"reader_first": 6}, {"retriever_rate": 0.0}])
def test_the_retriever_stays_while_only_the_reader_learns(way, tmp_path):
    still = recipe(documents(tmp_path), pretrain=way)
    run_recipe(still, tmp_path / "run", stages=("corpus", "warm", "ict", "pretrain"), progress=Progress(quiet=True))
    before = RealmModel.from_pretrained(tmp_path / "run" / "stages" / "ict").embedder.state_dict()
    after = RealmModel.from_pretrained(tmp_path / "run" / "stages" / "pretrain")
    assert all(torch.equal(before[name], value) for name, value in after.embedder.state_dict().items() if name != "null_offset")
    assert len(list((tmp_path / "run" / "params").iterdir())) == 1, "no index was made again"
    warm = RealmModel.from_pretrained(tmp_path / "run" / "stages" / "warm").encoder.body.state_dict()
    assert any(not torch.equal(warm[name], value) for name, value in after.reader.body.state_dict().items())


@pytest.mark.parametrize(("wrong", "said"), [
    ({"masking": "tokens"}, "point"), ({"fill": "mlm", "reader_first": 3}, "point"), ({"fill": "mlm", "own_block": 0.5}, "point"),
    ({"own_block": 0.5}, "own_block' is given, and"),
    ({"own_block": 0.5, "reader_first": 2, "sentences": ("news",)}, "own_block' is given, and"),
])  # fmt: skip
def test_what_a_pointer_cannot_fill_and_own_blocks_of_one_that_learns_with_others_are_refused(wrong, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        recipe(tmp_path / "none.jsonl", pretrain=wrong)


def test_a_run_says_what_it_answers_to_questions_of_its_own(tmp_path, capsys):
    """Asked are sentences that no step was trained on; the share that is answered right is a number, a fact, an alarm and a note."""
    taught = recipe(documents(tmp_path), pretrain={"own_block": 0.6, "reader_first": 5, "held_out": 4})
    run_recipe(taught, tmp_path / "run", stages=("corpus", "warm", "ict", "pretrain"), progress=Progress(quiet=True))
    paths = RunPaths(tmp_path / "run")
    context = open_context(paths, read_run_recipe(paths), lambda *_: None)
    task = PretrainTask(context, load_stage(context, "pretrain"))
    asked = task.queries.own_questions
    assert asked and all(q.text.endswith("?") and q.answers[0] not in q.text for q in asked)
    kept = [task.queries.salient.query(item, np.random.default_rng(0)) for item in task.queries._salient_training]
    origins = {(query.origin, query.sentence) for query in kept}
    assert not origins & {tuple(task.queries.salient.keys[item].tolist()) for item in hold_out(task.queries.salient.keys, 10**6)[0]}
    rows = [json.loads(line) for line in paths.metrics.read_text("utf-8").splitlines()]
    measured, own = [row["own_em"] for row in rows if "own_em" in row], open_run(tmp_path / "run").own_em
    assert measured and own == pytest.approx(measured[-1], abs=1e-4) and own < 0.4
    assert [row["alarm"] for row in rows if "alarm" in row][-1:] == ["own_em"]
    assert main(["ask", str(tmp_path / "run"), "Which river flows through Oslo?"]) == 0
    assert f"answers {own:.0%} of the questions made of its own sentences" in capsys.readouterr().err
