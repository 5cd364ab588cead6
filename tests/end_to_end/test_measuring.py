"""What pre-training measures: sentences held out, against the obvious slow way; which weights are published; the rows that it shows."""

import json
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from small import jsonl
from toy_runs import UNTRAINED, context_of, copy_without, pretraining_of, train

from realm.documents.store.blocks import NULL_BLOCK
from realm.models.model import RealmModel, state_sha256
from realm.recipe import dump_recipe, load_recipe
from realm.report import write_report
from realm.search.publishing.generation import open_generation
from realm.search.retriever import Retrieved
from realm.storage.metrics import SPEED, MetricsLog
from realm.training.baselines.closed_book import SentencesTask
from realm.training.context import load_stage
from realm.training.order import hold_out
from realm.training.pretrain import monitor
from realm.training.pretrain.monitor import MEASURE_EVERY, RECENT_QUERIES, excluded_share, held_out_recall, utility_by_rank, utility_gain
from realm.training.pretrain.score import ScoredCandidates, evaluate_held_out
from realm.training.pretrain.task import PretrainTask
from realm.training.starting import new_model
from realm.training.warm import WarmTask


def opened(run, **pretrain):
    return context_of(run, pretrain={"held_out": 5, **pretrain})


KINDS = ("salient", "recurring", "spans", "tokens")


def keys_of(blocks):
    return np.stack([np.repeat(np.arange(blocks), 3), np.tile(np.arange(3), blocks)], 1)


@pytest.mark.parametrize("held", [1, 40, 10**6])
def test_a_tenth_is_set_aside(held):
    out, training = hold_out(keys_of(3000), held)
    assert len(training) == pytest.approx(8100, abs=90) and training == sorted(training)
    assert len(out) == min(held, 9000 - len(training)) and not set(out) & set(training)


def test_held_out_sentences_are_the_same_whatever_else_is_drawn():
    assert hold_out(keys_of(100), 0) == ([], list(range(300)))
    # So that what pre-training holds out, the warm stage has not seen either.
    out, training = hold_out(keys_of(300), 60)
    assert hold_out(keys_of(300), 30) == (out[:30], training)
    keys = keys_of(900)
    out = set(hold_out(keys, 10**6)[0])
    for some in (np.arange(0, 2700, 7), np.arange(1000), np.arange(2699, 0, -2)):
        assert {int(some[item]) for item in hold_out(keys[some], 10**6)[0]} == out & set(some.tolist())


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_fewest_sentences_are_trained_on_and_tested(number):
    """The warm stage always ends by its test; of a single sentence, by one on that."""
    for keys in np.split(keys_of(40)[: 120 // number * number], 120 // number):
        out, training = hold_out(keys, 200, least=1)
        assert out and training and (number == 1 or len(out) == number or not set(out) & set(training))


@pytest.fixture(scope="module")
def corpus_run(tmp_path_factory, write_tiny):
    """A run with a corpus of several hundred sentences, in which a third of the spans is stated twice."""
    root = tmp_path_factory.mktemp("many")
    recipe = write_tiny(root)
    names = [
        f"{a}{b}" for a in ("Arv", "Belm", "Cars", "Dulw", "Estr", "Fald", "Gorm", "Hask") for b in ("ad", "or", "in", "en", "ag", "ul")
    ]
    texts = []
    for at, name in enumerate(names):
        money = name[::-1].title()
        texts.append(f"People in {name} pay with the {money}. Many visit {name} in {1900 + at}. Winters are long there.")
        if at % 3 == 0:
            texts.append(f"The currency of {name} is the {money}. It is far from {names[at - 1]} to {name}.")
    jsonl(root / "docs.jsonl", [{"id": str(at), "title": "", "text": text} for at, text in enumerate(texts)])
    train(recipe, root / "run", ("corpus",))
    return root / "run"


def places(keys, items):
    return {(block, sentence) for block, sentence in keys[items].tolist()}


def test_no_stage_trains_on_what_another_holds_out(corpus_run, monkeypatch):
    """Whatever is hidden in it: by their numbers alone, the sentences held out for one kind of mask were others than for the next."""
    model, held, trained = new_model(opened(corpus_run, masking="salient", held_out=100)), {}, {}
    for masking in KINDS:
        context = opened(corpus_run, masking=masking, held_out=100)
        task, closed = PretrainTask(context, model), SentencesTask(context, model)
        held[masking], trained[masking] = (
            places(task.queries.sentences.keys, items) for items in (task.queries.held_out, task.queries.training)
        )
        monkeypatch.setattr(closed.sentences, "query", asked := Mock(wraps=closed.sentences.query))
        for at, item in closed.order.batch(0, len(closed.training)):
            closed.example(at, item)
        trained[f"closed book, {masking}"] = places(closed.sentences.keys, [call.args[0] for call in asked.call_args_list])
    pairs = WarmTask(context, model).pairs
    held["warm"], trained["warm"] = (places(pairs.sentences.keys, items) for items in (pairs.held_out, pairs.training))
    seen = [pairs.example(pairs.training[at], at)[0] for at in range(len(pairs.training))]
    assert {(query.origin, query.sentence) for query in seen} == trained["warm"]
    assert all(held.values()) and len(trained["recurring"]) < len(trained["salient"]) < len(trained["tokens"])
    assert [(a, b) for a in held for b in trained if held[a] & trained[b]] == []


def test_what_no_step_sees_is_evaluated_as_one_sentence_after_the_other(tiny_run):
    task = pretraining_of(opened(tiny_run))
    training = {task.queries.training[item] for step in range(60) for _, item in task.queries.order.batch(step, task.section.batch)}
    assert training == set(task.queries.training) and task.queries.held_out and not training & set(task.queries.held_out)
    held_out = task.queries.held_out_queries()
    fast = evaluate_held_out(task.view, held_out, 3)
    assert fast == evaluate_held_out(task.view, held_out, 1) or all(
        fast[name] == pytest.approx(value, abs=1e-5) for name, value in evaluate_held_out(task.view, held_out, 1).items()
    )
    model, inputs = task.model.eval(), task.context.inputs
    sums, tokens = dict.fromkeys(fast, 0.0), 0
    for item in task.queries.held_out:
        query = task.queries.query(-1 - item, item)
        found = task.view.retrieve([query])
        rows = [int(row) for row, valid in zip(inputs.rows(found.block_ids)[0], found.valid[0], strict=True) if valid]
        with torch.no_grad():
            query_emb = model.embedder([inputs.featurizer.query(query.ids)])[0]
            scores = torch.stack([model.documents(inputs.blocks([row]))[0] @ query_emb for row in rows])
            where = torch.tensor([[position + 1 for position in query.positions]])
            p_y = torch.stack([model.encoder.log_probs([inputs.joint(query.ids, row)], where)[0].exp() for row in rows])
        mixed = (torch.softmax(scores, 0)[:, None, None] * p_y).sum(0)
        for slot, target in enumerate(query.targets):
            sums["held_out_loss"] -= float(mixed[slot, target].log())
            sums["held_out_utility"] += float((mixed[slot, target] / p_y[0, slot, target]).log())
            sums["held_out_accuracy"] += float(mixed[slot].argmax() == target)
            sums["held_out_accuracy_null"] += float(p_y[0, slot].argmax() == target)
            tokens += 1
    assert fast == {name: pytest.approx(value / tokens, abs=1e-4) for name, value in sums.items()}


def test_utility_is_gained_by_learning_alone(tiny_run, tmp_path):
    """What learning tests assert must not hold without learning: at a rate of nearly 0 there is a level, and no gain."""
    gains = {}
    for rate in (1e-12, 3e-2):
        run = copy_without(tiny_run, tmp_path / str(rate), *UNTRAINED)
        (run / "metrics.jsonl").unlink()
        recipe = load_recipe(run / "config.toml", {"pretrain": {"lr": rate, "warmup": 0, "held_out": 5}})
        (run / "config.toml").write_text(dump_recipe(recipe), "utf-8")
        train(recipe, run, ("pretrain",))
        gained = utility_gain(MetricsLog(run / "metrics.jsonl").rows())
        assert gained is not None
        gains[rate] = gained
    (level, still), (_, moved) = gains[1e-12], gains[3e-2]
    assert level != 0 and abs(still) < 1e-4 < abs(moved)
    assert utility_gain([{"loss": 1.0}]) is None


@pytest.mark.parametrize("publish", ["last", "best"])
def test_which_weights_are_published(tiny_run, tmp_path, monkeypatch, publish):
    run = copy_without(tiny_run, tmp_path / "run", *UNTRAINED)
    weights, utilities = {}, iter([0.1, 0.7, 0.2])

    def evaluate(view, queries, size):
        weights[len(weights) * 2] = state_sha256(view.model)
        return {"held_out_utility": next(utilities)}

    monkeypatch.setattr("realm.training.pretrain.task.evaluate_held_out", evaluate)
    settings = {"pretrain": {"steps": 4, "held_out": 2, "eval_every": 2, "publish": publish}, "eval": {"qa": ""}}
    train(load_recipe(run / "config.toml", settings), run, ("pretrain",))
    facts = json.loads((run / "stages/pretrain/stage.json").read_text())
    step = 2 if publish == "best" else 4
    assert (facts["published"], facts["published_step"], facts["steps"]) == (publish, step, 4)
    assert (facts["best_step"], facts["best_utility"]) == (2, 0.7)
    published = RealmModel.from_pretrained(run / "stages/pretrain")
    assert state_sha256(published) == weights[step] and len(set(weights.values())) == 3
    # The index that fine-tuning goes on with is that of the published weights.
    context = opened(run)
    generation = open_generation(context.paths, context.inputs, facts["generation"])
    assert generation.step == step and state_sha256(generation.embedder) == state_sha256(published.documents)


@pytest.mark.parametrize("recall_after", [0.2, 0.6])
@pytest.mark.parametrize("utility_after", [-0.5, 0.5])
def test_what_got_worse_goes_back(tiny_run, tmp_path, monkeypatch, recall_after, utility_after):
    """Network by network: the retriever by recall, with an index of its own again, then the encoder by utility."""
    run = copy_without(tiny_run, tmp_path / "run", *UNTRAINED)
    recalls, weights = iter([0.4, 0.0, recall_after]), list[dict[str, str]]()

    def recall(view, queries, size):
        weights.append({"embedder": state_sha256(view.model.embedder), "encoder": state_sha256(view.model.encoder)})
        return next(recalls)

    def utility(view, queries, size):
        began = not weights or state_sha256(view.model.encoder) == weights[0]["encoder"]
        return {"held_out_utility": 0.1 if began else utility_after}

    for module in ("task", "stage"):
        monkeypatch.setattr(f"realm.training.pretrain.{module}.held_out_recall", recall)
        monkeypatch.setattr(f"realm.training.pretrain.{module}.evaluate_held_out", utility)
    settings = {"pretrain": {"steps": 4, "held_out": 2, "eval_every": 4, "publish": "better"}, "eval": {"qa": ""}}
    train(load_recipe(run / "config.toml", settings), run, ("pretrain",))
    facts, published = json.loads((run / "stages/pretrain/stage.json").read_text()), RealmModel.from_pretrained(run / "stages/pretrain")
    kept = {"retriever": "after" if recall_after > 0.4 else "before", "encoder": "after" if utility_after > 0.1 else "before"}
    gate = facts["gate"]
    assert {name: (found["before"], found["after"], found["kept"]) for name, found in gate.items()} == {
        "retriever": (0.4, recall_after, kept["retriever"]),
        "encoder": (0.1, utility_after, kept["encoder"]),
    }
    began, learnt = weights[0], weights[-1]
    assert began["embedder"] != learnt["embedder"] and began["encoder"] != learnt["encoder"]
    offset = published.embedder.null_offset
    assert state_sha256(published.encoder) == (began if kept["encoder"] == "before" else learnt)["encoder"]
    assert offset is not None and (kept["retriever"] == "before") != (state_sha256(published.embedder) == learnt["embedder"])
    context = opened(run)
    generation = open_generation(context.paths, context.inputs, facts["generation"])
    assert state_sha256(generation.embedder) == state_sha256(published.documents)
    page = write_report(context.paths).read_text()
    assert "what went back" in page and gate["encoder"]["measure"] in page


def test_without_held_out_sentences_nothing_says_what_got_worse(tiny_run, tmp_path):
    run = copy_without(tiny_run, tmp_path / "run", *UNTRAINED)
    settings = {"pretrain": {"steps": 1, "held_out": 0, "publish": "better"}, "eval": {"qa": ""}}
    train(load_recipe(run / "config.toml", settings), run, ("pretrain",))
    facts = json.loads((run / "stages/pretrain/stage.json").read_text())
    assert facts["published"] == "last" and "gate" not in facts


def test_held_out_recall_is_counted_over_the_embedder_alone(tiny_run):
    task = pretraining_of(opened(tiny_run))
    context = task.context
    queries, places, found = task.queries.held_out_queries(), context.inputs.span_places, 0
    for query in queries:
        retrieved = task.view.retrieve([query], 5 + int(context.recipe.pretrain.null))
        rows = context.inputs.rows(retrieved.block_ids)[0][retrieved.real[0]]
        found += any(places.places(int(row), query.targets) for row in rows)
    assert queries and held_out_recall(task.view, queries, 2) == found / len(queries)


@pytest.fixture
def task(run_copy):
    context = context_of(run_copy)
    task = PretrainTask(context, load_stage(context, "pretrain"))
    task.between(0)
    task.model.train()
    return task


def test_utility_by_rank_leaves_out_what_is_no_document():
    log_probs = torch.tensor([[[-4.0], [-1.0], [-2.0]], [[-3.0], [-6.0], [0.0]]])
    scored = ScoredCandidates(torch.zeros(2, 3), log_probs, torch.ones(2, 1, dtype=torch.bool), 0)
    valid = np.array([[True, True, True], [True, True, False]])
    retrieved = Retrieved(np.where(valid, [[NULL_BLOCK, 1, 2], [NULL_BLOCK, 3, 4]], NULL_BLOCK), valid, np.zeros((2, 3), np.float32))
    assert utility_by_rank(scored, retrieved) == {"utility_rank_1": (3 - 3) / 2, "utility_rank_2": 2.0}
    assert utility_by_rank(scored, Retrieved(np.array([[5, 1, 2], [6, 3, 4]]), np.ones((2, 3), bool), np.zeros((2, 3), np.float32))) == {}


def test_excluded_hits_are_those_of_the_slow_way(task):
    queries = [task.queries.query(at, item) for at, item in task.queries.order.batch(0, 6)]
    inputs = task.context.inputs
    embedded = task.generation.queries.embed_questions([inputs.featurizer.query(q.ids) for q in queries])
    everything = task.generation.index.search(embedded, 3, None)
    forbidden = [block_id in query.excluded for ids, query in zip(everything.ids.tolist(), queries, strict=True) for block_id in ids]
    assert excluded_share(task.view, queries) == {"excluded_share": pytest.approx(np.mean(forbidden))}


def test_watching_changes_no_gradient(task, monkeypatch):
    def gradients():
        torch.manual_seed(5)
        task.model.zero_grad()
        task.step(MEASURE_EVERY).loss.backward()
        return {name: p.grad.clone() for name, p in task.model.named_parameters() if p.grad is not None}

    watched = gradients()
    monkeypatch.setattr(task.watcher, "step", lambda *_: {})
    for name, gradient in gradients().items():
        assert torch.equal(gradient, watched[name]), name


def test_distinct_documents_come_back_with_a_checkpoint(task, monkeypatch):
    monkeypatch.setattr(monitor, "RECENT_QUERIES", 10)
    watcher = monitor.Watcher()
    for _ in range(2):
        assert "distinct_per_1000" not in watcher.row(1, 5)
        watcher._recent.extend([[1, 2], [2, 3], [3, 1], [9, 9], [1, 9]])
    watcher._recent = type(watcher._recent)(watcher._recent, maxlen=10)
    again = monitor.Watcher()
    again.restore(watcher.state())
    assert watcher.row(2, 5)["distinct_per_1000"] == again.row(2, 5)["distinct_per_1000"] == 4
    assert RECENT_QUERIES == 1000


def test_rows_of_a_run_say_everything(tiny_run):
    rows = [row for row in MetricsLog(tiny_run / "metrics.jsonl").rows() if row["stage"] == "pretrain"]
    window = next(row for row in rows if "loss" in row)
    names = ("marginal_utility", "p_null", "entropy", "staleness_steps", "excluded_share")
    assert set(names) | {f"utility_rank_{rank}" for rank in (1, 2, 3)} | set(SPEED) <= set(window)
    assert window["tokens_per_second"] > 0 and window["seconds_left"] == 0
    assert any("held_out_recall" in row for row in rows)
