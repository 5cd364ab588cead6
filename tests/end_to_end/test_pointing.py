"""Readers that point: what a pre-training step asks and reads, a retriever that learns after the reader, loops over spans, whole runs."""

import dataclasses
import io
import itertools
import json
import math

import numpy as np
import pytest
import torch
from small import jsonl
from toy_runs import PRETRAINING, context_of, pretraining_of, train

from realm.answering.opening import open_run
from realm.answering.pointing import best_strings, point_at, score_spans
from realm.cli import main
from realm.errors import ConfigError
from realm.models.featurize import MARKED_SEGMENTS, marked, searched_ids
from realm.models.model import RealmModel, state_sha256
from realm.models.spec import bert_spec, one_body
from realm.progress import Progress
from realm.recipe import build_recipe
from realm.runs.run import run_recipe
from realm.search.blocks import NO_ROW, NULL_ROW
from realm.storage.generations import published_generations
from realm.storage.layout import RunPaths, stage_facts
from realm.text.matching.answers import is_whole
from realm.training.context import load_stage
from realm.training.finetune.training import start_share
from realm.training.loop.stepping import one_step
from realm.training.loop.task import LoopOptions
from realm.training.order import WHOLE, hold_out
from realm.training.pretrain.monitor import own_block_rank
from realm.training.pretrain.questions import asked_instead, asked_of_own_blocks
from realm.training.pretrain.retrieve import holding, index_source, with_evidence
from realm.training.pretrain.score import score_step, weigh_candidates
from realm.training.pretrain.stage import starting_model
from realm.training.pretrain.task import PretrainTask


@pytest.fixture(scope="module")
def task(tmp_path_factory, towns):
    """Before its first step. Each fact stands in two documents, and each document has a second block's worth of other sentences."""
    root = tmp_path_factory.mktemp("pointing")
    recipe = towns(root)
    train(recipe, root / "run", PRETRAINING)
    context = context_of(root / "run", recipe)
    task = PretrainTask(context, starting_model(context))
    task.between(0)
    return task


def test_questions_take_the_place_of_sentences_that_something_states(task):
    view, store = task.view, task.context.store
    queries = [task.queries.query(at, task.queries.training[item]) for at, item in task.queries.order.batch(0, 8)]
    found = asked_instead(view, task.queries.statements, queries, {i: np.random.default_rng(i) for i in range(8)})
    asked = [i for i in range(8) if not found[i].positions]
    assert asked and asked_instead(view, task.queries.statements, queries, {}) == queries
    for i in asked:
        text = store.tokenizer.decode(found[i].ids)
        assert text.strip().endswith("?") and found[i].targets == queries[i].targets and found[i].whole == found[i].ids == found[i].pointed
        own = store.doc_id(int(store.rows_of(np.array([queries[i].origin]))[0]))
        excluded = {store.doc_id(int(row)) for row in store.rows_of(found[i].excluded)}
        assert own not in excluded and excluded, "the statement's document is excluded, the sentence's own may answer"
    again = asked_instead(view, task.queries.statements, queries, {i: np.random.default_rng(i) for i in range(8)})
    assert [query.ids for query in again] == [query.ids for query in found]


def test_sentences_are_asked_of_their_own_blocks(task):
    """What is asked so has lost words, never says what is hidden, and its own block may be read: search finds it, and it holds the span."""
    view, store, mask = task.view, task.context.store, task.context.inputs.featurizer.mask
    queries = [task.queries.query(at, task.queries.training[item]) for at, item in task.queries.order.batch(0, 8)]
    found = asked_of_own_blocks(task.queries.statements, queries, {i: np.random.default_rng(i) for i in range(1, 8)})
    assert found[0] is queries[0]
    for query, asked in zip(queries[1:], found[1:], strict=True):
        assert asked.targets == query.targets and asked.origin == query.origin and not asked.positions and not len(asked.excluded)
        said = store.tokenizer.decode([wordpiece for wordpiece in asked.ids if wordpiece != mask]).lower()
        assert store.tokenizer.decode(query.targets).lower() not in said
        assert len(set(asked.ids) & set(query.ids)) > len(asked.ids) // 2
    assert any(mask in asked.ids for asked in found[1:]) and any(mask not in asked.ids for asked in found[1:]), "sentences and questions"
    kind = task.queries.sentences.kind
    read = with_evidence(view, found[1:], view.retrieve(found[1:]), kind.evidence)
    own = [query.origin in read.block_ids[i][read.real[i]] for i, query in enumerate(found[1:])]
    assert holding(view, found[1:], read).any(1).all() and sum(own) >= len(own) // 2
    again = asked_of_own_blocks(task.queries.statements, queries, {i: np.random.default_rng(i) for i in range(1, 8)})
    assert [query.ids for query in again] == [query.ids for query in found]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_own_blocks_are_read_while_only_the_reader_learns(task, monkeypatch, share):
    monkeypatch.setattr(task.queries, "section", dataclasses.replace(task.section, own_block=share))
    queries, positions = [task.queries.query(at, task.queries.training[at]) for at in range(4)], list(range(4))
    alone, joint = (task.queries.varied(task.view, queries, positions, reader_only=only) for only in (True, False))
    assert sum(not len(query.excluded) for query in alone) == 4 * share and all(len(query.excluded) for query in joint)


def test_a_step_reads_what_holds_the_span_while_only_the_reader_learns(task):
    """Over the sentences and the questions of both steps, with evidence where retrieval gave none."""
    view, drawn = task.view, [pair for step in (0, 1) for pair in task.queries.order.batch(step, 8)]
    queries = [task.queries.query(at, task.queries.training[item]) for at, item in drawn]
    asked = asked_instead(view, task.queries.statements, queries, {i: np.random.default_rng(i) for i in range(0, 16, 2)})
    retrieved = view.retrieve(asked)
    given = with_evidence(view, asked, retrieved, task.queries.sentences.kind.evidence)
    held, found = (holding(view, asked, read).any(1) for read in (given, retrieved))
    assert held.all() and held.sum() >= found.sum()
    for i, query in enumerate(asked):
        assert not np.isin(given.block_ids[i][given.real[i]], query.excluded).any()


@pytest.mark.parametrize("reader", ["trained", "frozen"])
def test_nothing_is_forbidden_while_the_reader_stays(task, reader):
    section = dataclasses.replace(task.section, exclude="reading", reader=reader, shown=1.0, questions=0.0)
    context = dataclasses.replace(task.context, recipe=dataclasses.replace(task.context.recipe, pretrain=section))
    found = score_step(dataclasses.replace(task.view, context=context), task.queries, 8, WHOLE)
    own = [np.isin(ids, query.excluded).any() for ids, query in zip(found.retrieved.block_ids, found.queries, strict=True)]
    assert any(own) == (reader == "frozen") and all(len(query.excluded) for query in found.queries), "it stays known"


def test_the_retriever_sees_the_span_or_one_mask(task):
    mask = task.context.inputs.featurizer.mask
    queries = [task.queries.query(at, task.queries.training[at % len(task.queries.training)]) for at in range(64)]
    assert 16 < len([query for query in queries if query.shown]) < 48
    for query in queries:
        seen = searched_ids(query, pointer=True)
        assert seen.count(mask) == (0 if query.shown else 1) and query.pointed.count(mask) == 1
        assert len(seen) == len(query.ids) - (0 if query.shown else len(query.targets) - 1)
    assert not any(query.shown for query in task.queries.held_out_queries())


def test_what_the_search_found_weighs_as_the_live_embedder_does_before_it_learns(task):
    queries = [task.queries.query(at, task.queries.training[item]) for at, item in task.queries.order.batch(0, 8)]
    retrieved = task.view.retrieve(queries)
    task.model.eval()
    with torch.no_grad():
        live = weigh_candidates(task.model, task.context, queries, retrieved)
        found = weigh_candidates(task.model, task.context, queries, retrieved, as_found=True)
    assert found.tokens < live.tokens and torch.allclose(found.log_p_z, live.log_p_z, atol=1e-4)


def test_a_step_learns_and_is_the_same_again(task):
    task.model.train()
    losses = []
    for _ in range(2):
        torch.manual_seed(0)
        result = task.step(0)
        losses.append(float(result.loss.detach()))
    assert losses[0] == losses[1] and result.valid == 8 and result.weight == 8
    result.loss.backward()
    assert all(p.grad is None for p in task.model.embedder.parameters()) and task.model.reader.score.weight.grad is not None
    task.model.zero_grad(set_to_none=True)


FROZEN = {"documents": "frozen", "reader_first": 4, "steps": 8, "held_out": 4, "eval_every": 4}


def pretrained(recipe, run):
    train(recipe, run, PRETRAINING)
    return load_stage(context_of(run, recipe), "pretrain")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, towns):
    return towns(tmp_path_factory.mktemp("towns"), **FROZEN)


@pytest.fixture(scope="module")
def run(tmp_path_factory, recipe):
    run = tmp_path_factory.mktemp("frozen") / "run"
    pretrained(recipe, run)
    return run


def test_documents_stay_and_queries_learn(recipe, run):
    """One index, made by the start's embedder; another embedder for queries; and whoever opens the run searches with that."""
    context = context_of(run, recipe)
    start, end = load_stage(context, "ict").embedder, load_stage(context, "pretrain")
    assert state_sha256(end.documents) == state_sha256(start) != state_sha256(end.embedder)
    assert published_generations(context.paths.index) == [1]
    for side, expected in {"frozen": True, "trained": False}.items():
        reduced = context_of(run, refresher={"int8": True}, pretrain={"documents": side})
        assert index_source(reduced, frozenset).context.options.int8 == expected, "in 8 bits only what no step changes"
    opened = open_run(run)
    assert opened.generation.queries is opened.networks.first.embedder
    assert state_sha256(opened.networks.pretrained.embedder) == state_sha256(end.embedder)
    question = context.store.tokenizer.encode(["Who built the bridge of Oslo?"])
    found = opened.source.find(["Who built the bridge of Oslo?"], question, 4)
    with torch.no_grad():
        asked = end.embedder.eval().embed_queries([context.inputs.featurizer.query(question[0])])
        blocks = start.eval()(context.inputs.blocks(found.rows[0].tolist()))
    torch.testing.assert_close(torch.from_numpy(found.scores), asked @ blocks.T, rtol=1e-4, atol=1e-4)


def test_the_reader_stays_as_it_was_when_the_retriever_began(towns, tmp_path):
    """The weights of the reader after all steps are those after reader_first; and these do not depend on what comes then."""
    whole = pretrained(towns(tmp_path, **FROZEN), tmp_path / "whole")
    shorter = pretrained(towns(tmp_path, **(FROZEN | {"steps": 6})), tmp_path / "shorter")
    assert state_sha256(whole.reader) == state_sha256(shorter.reader)
    assert state_sha256(whole.embedder) != state_sha256(shorter.embedder)


def test_each_phase_has_its_own_rate(recipe, run):
    """The rate of the retriever's first step is that of a stage that begins: warm-up, then down to nothing at the end."""
    context = context_of(run, recipe)
    task = PretrainTask(context, starting_model(context))
    assert [task.phase(step, 8) for step in (0, 3, 4, 7)] == [(0, 4), (0, 4), (4, 8), (4, 8)]
    assert task.phase(0, 4) == (0, 4), "too few steps for a second phase"
    task.between(0)
    optimizer, rates = torch.optim.SGD(task.model.parameters(), lr=1.0), []
    for step in range(8):
        one_step(task, step, optimizer, LoopOptions(steps=8, lr=1.0, warmup=1))
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[:4] == rates[4:] and rates[0] > rates[3] > 0


def test_a_killed_stage_goes_on_as_if_nothing_had_been(recipe, run, towns, tmp_path, interrupt_each):
    again = towns(tmp_path, **FROZEN)
    interrupt_each({"pretrain"})
    with pytest.raises(KeyboardInterrupt):
        pretrained(again, tmp_path / "run")
    ended = pretrained(again, tmp_path / "run")
    for name, value in load_stage(context_of(run, recipe), "pretrain").state_dict().items():
        assert torch.equal(value, ended.state_dict()[name]), name


def test_documents_that_stay_are_looked_up_and_not_embedded_again(recipe, run, monkeypatch):
    """The retriever's step weighs with the vectors of the index: what embedding each document anew gives, with the same gradient."""
    context = context_of(run, recipe)
    task = PretrainTask(context, starting_model(context))
    task.between(0)
    queries = [task.queries.query(at, item) for at, item in task.queries.order.batch(0, 6)]
    retrieved, embedder, read = task.view.retrieve(queries), task.model.embedder, []
    forward = task.model.documents.forward
    monkeypatch.setattr(task.model.documents, "forward", lambda sequences: (read.append(len(sequences)), forward(sequences))[1])
    found = []
    for known in (None, task.view.known):
        embedder.zero_grad()
        weighed = weigh_candidates(task.model, context, queries, retrieved, known=known)
        (weighed.log_p_z.masked_fill(torch.isinf(weighed.log_p_z), 0.0).square().sum()).backward()
        found.append((weighed.log_p_z, *[weight.grad.clone() for weight in embedder.parameters() if weight.grad is not None]))
    assert len(found[0]) == len(found[1]) > 2
    for anew, looked_up in zip(*found, strict=True):
        torch.testing.assert_close(looked_up, anew, atol=1e-4, rtol=1e-2)
    assert read[0] > 1 and read[1:] == [1]  # of the second only the null document
    task.step(6)
    assert read[2:] == [1]


@pytest.mark.parametrize("measure", ["held_out_recall", "own_block_rank"])
def test_the_gate_takes_the_queries_back(towns, tmp_path, monkeypatch, measure):
    """A retriever that got worse in either measure goes back without an index being made again, and the run says so."""
    falls = itertools.count(0, -1)
    monkeypatch.setattr(f"realm.training.pretrain.stage.{measure}", lambda *_: next(falls) - (measure == "held_out_recall"))
    better = towns(tmp_path, **FROZEN, publish="better")
    run_recipe(better, tmp_path / "run", stages=PRETRAINING, progress=Progress(stream=(said := io.StringIO())))
    model = load_stage(context_of(tmp_path / "run", better), "pretrain")
    documents = model.documents.state_dict()
    for name, value in model.embedder.state_dict().items():  # the null document's offset is the one that the phase began with
        assert name == "null_offset" or torch.equal(value, documents[name]), name
    assert published_generations(RunPaths(tmp_path / "run").index) == [1]
    assert "search got worse and stays as it began" in said.getvalue() and "was read 2.7 times" in said.getvalue(), said.getvalue()


def test_sentences_own_blocks_are_ranked_as_by_enumeration(recipe, run):
    context = context_of(run, recipe)
    task, store, ranks = PretrainTask(context, starting_model(context)), context.store, []
    task.between(0)
    blocks = task.model.embedder.embed_blocks(context.inputs.blocks(range(len(store))))
    for row in range(len(store)):
        start, end = store.sentences(row).tokens[len(store.sentences(row).tokens) // 2]
        query = context.inputs.featurizer.query(store.token_ids(row)[start:end].tolist())
        scores = blocks @ task.model.embedder.embed_questions([query])[0]
        ranks.append(1 + int((scores > scores[row]).sum()))
    assert own_block_rank(task.view, task.model.embedder) == pytest.approx(np.mean([1 / rank for rank in ranks]), abs=1e-3) != 1


def test_the_retriever_learns_by_the_reader_of_another_run(recipe, run, towns, tmp_path):
    """Which stays as that run left it, from the first step; and a run without a step publishes both as they are, with an index."""
    left = load_stage(context_of(run, recipe), "pretrain")
    values = {"documents": "frozen", "reader": "frozen", "reader_first": 0, "from_ict": False, "from_warm": False, "held_out": 4}

    def of(root, **more):
        root.mkdir()
        whole = towns(root, **values, **more)
        files = {"corpus": {"sources": list(whole.corpus.sources), "tokenizer": str(run / "corpus")}}
        return build_recipe(dataclasses.asdict(whole), overrides={"model": {"body": str(run / "stages" / "pretrain")}, **files})

    learnt = pretrained(of(tmp_path / "two", steps=2), tmp_path / "learnt")
    assert state_sha256(learnt.reader) == state_sha256(left.reader)
    assert state_sha256(learnt.documents) == state_sha256(left.embedder) != state_sha256(learnt.embedder)
    untaught = pretrained(of(tmp_path / "none", steps=0), tmp_path / "untaught")
    assert state_sha256(untaught.reader) == state_sha256(left.reader) and state_sha256(untaught.embedder) == state_sha256(left.embedder)
    assert published_generations(RunPaths(tmp_path / "untaught").index) == [1] and open_run(tmp_path / "untaught").answerer.reader


def test_a_reader_that_stays_must_be_there(towns, tmp_path):
    with pytest.raises(ConfigError, match="no reader"):
        pretrained(towns(tmp_path, **(FROZEN | {"reader": "frozen", "reader_first": 0})), tmp_path / "run")
    body = build_recipe({"model": {"body": "minilm"}, "pretrain": {"fill": "pointer", "reader": "frozen"}}).pretrain
    assert (body.reader_first, body.own_block) == (0, 0.0) and body.reader_stays(0)
    both = build_recipe({"pretrain": {"fill": "pointer", "masking": "recurring", "documents": "frozen"}}).pretrain
    assert not any(map(both.reader_stays, range(both.steps))), "without a reader that learnt first both learn"


@pytest.fixture(scope="module")
def few(tmp_path_factory, towns):
    root = tmp_path_factory.mktemp("few")
    asked = [("Oslo", "Karel Brandt"), ("Lima", "Ilse Kolm"), ("Cairo", "Omar Vesse")]
    rows = [{"id": town, "question": f"Who built the old stone bridge of {town}?", "answers": [name]} for town, name in asked]
    jsonl(root / "qa.jsonl", rows)
    recipe = towns(root)
    section = dataclasses.replace(recipe.finetune, train=str(root / "qa.jsonl"), steps=4, batch=3, warmup=1, read=3, rename_rate=0.0)
    return dataclasses.replace(recipe, finetune=section)


def readers(recipe, run, worth):
    recipe = dataclasses.replace(recipe, finetune=dataclasses.replace(recipe.finetune, start_questions=worth))
    train(recipe, run, (*PRETRAINING, "finetune"))
    context = context_of(run, recipe)
    start, end = (load_stage(context, stage).reader.state_dict() for stage in ("pretrain", "finetune"))
    return start, end, stage_facts(context.paths, "finetune")


def test_the_published_reader_is_between_the_start_and_the_trained_one(few, tmp_path):
    start, trained, facts = readers(few, tmp_path / "trained", 0)
    assert "start_share" not in facts and any(not torch.equal(start[name], trained[name]) for name in start)
    again, blended, facts = readers(few, tmp_path / "blended", 9)
    assert facts["start_share"] == pytest.approx(9 / 12)
    for name, value in blended.items():
        assert torch.equal(start[name], again[name])
        torch.testing.assert_close(value, 0.75 * start[name] + 0.25 * trained[name], rtol=1e-5, atol=1e-6)


def test_a_new_reader_keeps_nothing_of_its_beginning(few, tmp_path):
    pointed = dataclasses.replace(few, finetune=dataclasses.replace(few.finetune, start_questions=16))
    train(pointed, tmp_path / "run", ("corpus",))
    context = context_of(tmp_path / "run", pointed)
    assert [start_share(context, n) for n in (16, 48)] == [0.5, 0.25]
    for changes in ({"fill": "mlm"}, {"steps": 0}):
        other = dataclasses.replace(pointed, pretrain=dataclasses.replace(pointed.pretrain, **changes))
        assert start_share(dataclasses.replace(context, recipe=other), 16) == 0


PLACES = ("Oslo", "Lima", "Cairo", "Quito", "Hanoi", "Accra", "Sofia", "Dakar", "Minsk", "Tunis", "Delhi", "Seoul")
RIVERS = ("Branta", "Kolma", "Vessen", "Tarrow", "Ilmaro", "Quenda", "Sorvik", "Palune", "Grabe", "Ostara", "Melvar", "Durn")
"""Each fact stands in two documents, in other words."""


def documents(directory):
    rows = []
    for place, river in zip(PLACES, RIVERS, strict=True):
        rows.append({"id": place, "title": place, "text": f"{place} is an old town. The river {river} flows through {place} to the sea."})
        rows.append({"id": river, "title": river, "text": f"The {river} is a long river. People in {place} fish in the {river} all year."})
    return jsonl(directory / "documents.jsonl", rows)


def questions(directory):
    rows = [{"id": p, "question": f"Which river flows through {p}?", "answers": [r]} for p, r in zip(PLACES, RIVERS, strict=True)]
    return str(jsonl(directory / "qa.jsonl", rows))


def recipe_of(source, **sections):
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
def rivers(tmp_path_factory):
    root = tmp_path_factory.mktemp("pointer")
    train(recipe_of(documents(root)), root / "run", PRETRAINING)
    return root / "run"


def test_the_pointer_against_a_loop_over_the_spans(rivers):
    opened = open_run(rivers)
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


def test_a_reader_of_marks_sees_what_a_block_shares_with_its_question(rivers, tmp_path):
    opened = open_run(rivers)
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


def test_a_run_that_points_answers_and_explains_without_a_question(rivers, capsys):
    assert main(["ask", str(rivers), "Which river flows through Oslo?", "--json"]) == 0
    out = capsys.readouterr()
    answer = json.loads(out.out.splitlines()[-1])
    assert "trained on the documents alone" in out.err and answer["answer"] and 0 < answer["p"] <= 1
    assert all(e["text"][e["start"] : e["end"]] == e["answer"] for e in answer["evidence"])
    assert main(["explain", str(rivers), "The river [MASK] flows through Oslo.", "--target", "Branta", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["p_y"] == pytest.approx(sum(c["p_z"] * c["p_y_given_z"] for c in told["candidates"]))
    assert sum(c["r"] for c in told["candidates"]) == pytest.approx(0, abs=1e-6) and told["candidates"][0]["null"]
    assert main(["explain", str(rivers), "The river [MASK] flows through Oslo.", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["targets"] == [told["predictions"][0]["text"]] and told["p_y"] > 0
    shown = {prediction["text"] for prediction in told["predictions"]}
    assert all(is_whole(text) and any(text in c["text"] for c in told["candidates"]) for text in shown), "as documents write it"
    assert main(["explain", str(rivers), "The [MASK] flows through [MASK]."]) == 2
    assert "points at one span" in capsys.readouterr().err


def test_fine_tuning_goes_on_with_the_reader_that_points(tmp_path):
    """One network reads before and after questions: with no step of fine-tuning it is the same reader."""
    section = {"train": questions(tmp_path), "steps": 2, "batch": 2, "read": 2, "beam": 4, "lr": 1e-9}
    train(recipe_of(documents(tmp_path), finetune=section), tmp_path / "run", (*PRETRAINING, "finetune"))
    before, after = (RealmModel.from_pretrained(tmp_path / "run" / "stages" / stage).reader for stage in ("pretrain", "finetune"))
    assert after.spec == dataclasses.replace(before.spec, taught=True) and after.spec.pointer and not before.spec.taught
    for (name, one), other in zip(before.state_dict().items(), after.state_dict().values(), strict=True):
        assert torch.allclose(one, other, atol=1e-6), name
    assert not open_run(tmp_path / "run").without_questions


@pytest.mark.parametrize("way", [{"reader_first": 9}, {"reader_first": 6}, {"retriever_rate": 0.0}, {"reader_first": 3}])
def test_the_retriever_stays_while_only_the_reader_learns(way, tmp_path):
    """The index belongs to the document embedder that fine-tuning forks, whether the retriever learnt or not."""
    section, asked = {"steps": 1, "batch": 2, "read": 2, "beam": 4}, questions(tmp_path)
    tuned = recipe_of(documents(tmp_path), pretrain=way, finetune={"train": asked, **section}, eval={"qa": asked})
    train(tuned, tmp_path / "run", (*PRETRAINING, "finetune", "eval"))
    assert json.loads((tmp_path / "run" / "results" / "finetune.json").read_text())["n"] == len(PLACES)
    stages = {stage: RealmModel.from_pretrained(tmp_path / "run" / "stages" / stage) for stage in ("ict", "warm", "pretrain")}
    before, after = (stages[stage].embedder.state_dict() for stage in ("ict", "pretrain"))
    stays = way != {"reader_first": 3}
    assert (after["null_offset"] == 0) == stays
    assert (stage_facts(RunPaths(tmp_path / "run"), "pretrain")["generation"] == 1) == stays, "no index was made again"
    assert all(torch.equal(before[name], value) for name, value in after.items() if name != "null_offset") == stays
    warm, reader = stages["warm"].encoder.body.state_dict(), stages["pretrain"].reader.body.state_dict()
    assert any(not torch.equal(warm[name], value) for name, value in reader.items())


def test_a_run_says_what_it_answers_to_questions_of_its_own(tmp_path, capsys):
    """Asked are sentences that no step was trained on; the share that is answered right is a number, a fact, an alarm and a note."""
    taught = recipe_of(documents(tmp_path), pretrain={"own_block": 0.6, "reader_first": 5, "held_out": 4})
    train(taught, tmp_path / "run", PRETRAINING)
    task = pretraining_of(context_of(tmp_path / "run"))
    asked = task.queries.own_questions
    assert asked and all(q.text.endswith("?") and q.answers[0] not in q.text for q in asked)
    kept = [task.queries.salient.query(item, np.random.default_rng(0)) for item in task.queries._salient_training]
    origins = {(query.origin, query.sentence) for query in kept}
    assert not origins & {tuple(task.queries.salient.keys[item].tolist()) for item in hold_out(task.queries.salient.keys, 10**6)[0]}
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    measured, own = [row["own_em"] for row in rows if "own_em" in row], open_run(tmp_path / "run").own_em
    assert measured and own == pytest.approx(measured[-1], abs=1e-4) and own < 0.4
    assert [row["alarm"] for row in rows if "alarm" in row][-1:] == ["own_em"] and "own_em" in task._evaluated(5)
    task.model.reader.spec = dataclasses.replace(task.model.reader.spec, taught=True)
    assert "own_em" not in task._evaluated(5), "it is no measure of a reader that learnt from people's questions"
    assert main(["ask", str(tmp_path / "run"), "Which river flows through Oslo?"]) == 0
    assert f"answers {own:.0%} of the questions made of its own sentences" in capsys.readouterr().err
