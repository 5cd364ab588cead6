"""A pre-training step that points: whole documents excluded, spans shown or not, questions in place of sentences, evidence put in."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from realm.models.featurize import searched_ids
from realm.progress import Progress
from realm.runs.run import run_recipe
from realm.storage.paths import RunPaths
from realm.training.context import open_context
from realm.training.pretrain.questions import asked_instead, asked_of_own_blocks
from realm.training.pretrain.retrieve import holding, with_evidence
from realm.training.pretrain.score import weigh_candidates
from realm.training.pretrain.stage import starting_model
from realm.training.pretrain.task import PretrainTask


@pytest.fixture(scope="module")
def task(tmp_path_factory, towns):
    """Before its first step. Each fact stands in two documents, and each document has a second block's worth of other sentences."""
    root = tmp_path_factory.mktemp("pointing")
    recipe = towns(root)
    run_recipe(recipe, root / "run", stages=("corpus", "warm", "ict", "pretrain"), progress=Progress(quiet=True))
    context = open_context(RunPaths(root / "run"), recipe, lambda *_: None)
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
    monkeypatch.setattr(task.queries, "section", replace(task.section, own_block=share))
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
    assert (
        holding(view, asked, given).any(1).all()
        and holding(view, asked, given).any(1).sum() >= holding(view, asked, retrieved).any(1).sum()
    )
    for i, query in enumerate(asked):
        assert not np.isin(given.block_ids[i][given.real[i]], query.excluded).any()


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
