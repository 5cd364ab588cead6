"""Two embedders in pre-training: each side searches, scores, learns, is published and goes on into fine-tuning as itself."""

import numpy as np
import pytest
import torch

from realm.answering.opening import open_run
from realm.documents.store.blocks import NULL_BLOCK
from realm.models import losses
from realm.models.model import state_sha256
from realm.progress import Progress
from realm.recipe import load_recipe
from realm.runs.run import run_recipe
from realm.search.publishing.generation import open_generation
from realm.storage.paths import RunPaths
from realm.training.context import load_stage, open_context
from realm.training.pretrain.score import score_candidates
from realm.training.pretrain.task import PretrainTask


@pytest.fixture(scope="module")
def run(tmp_path_factory, write_tiny):
    root = tmp_path_factory.mktemp("separate")
    recipe = write_tiny(root)
    recipe.write_text(recipe.read_text("utf-8").replace("[pretrain]", "[pretrain]\nseparate_embedders = true"), "utf-8")
    run_recipe(recipe, root / "run", stages=None, progress=Progress(quiet=True))
    return root / "run"


@pytest.fixture(scope="module")
def context(run):
    return open_context(RunPaths(run), load_recipe(run / "config.toml"), lambda *row: None)


def sides(model):
    return model.embedder.eval(), model.document_embedder.eval()


@pytest.fixture(scope="module")
def generation(context):
    return open_generation(context.paths, context.inputs)


def test_both_sides_go_their_own_ways_and_fine_tuning_moves_questions(context):
    start = state_sha256(load_stage(context, "ict").documents)
    query, document = (state_sha256(side) for side in sides(load_stage(context, "pretrain")))
    assert len({start, query, document}) == 3
    before, after = load_stage(context, "pretrain"), load_stage(context, "finetune")
    assert state_sha256(after.documents) == state_sha256(before.documents)
    assert state_sha256(sides(after)[0]) != state_sha256(sides(before)[0])


def test_a_generation_searches_with_one_and_was_made_by_the_other(context, generation):
    query, document = sides(load_stage(context, "pretrain"))
    assert state_sha256(generation.queries) == state_sha256(query)
    assert state_sha256(generation.embedder) == state_sha256(document) == generation.snapshot.manifest.document_embedder_sha256
    rows = context.store.rows_of(generation.snapshot.block_ids)
    with torch.no_grad():
        expected = document(context.inputs.blocks(rows.tolist())).numpy()
    np.testing.assert_allclose(generation.snapshot.vectors, expected, rtol=1e-4, atol=1e-5)


def test_a_step_scores_with_both_and_both_learn(context, generation):
    model = load_stage(context, "pretrain")
    query, document = sides(model)
    document.requires_grad_(True)
    task = PretrainTask(context, model)
    task.generation = generation
    queries = [task.queries.query(at, at) for at in range(3)]
    found = task.view.retrieve(queries)
    vectors = query([context.inputs.featurizer.query(q.ids) for q in queries])
    blocks = torch.stack([document(context.inputs.blocks(context.inputs.rows(ids).tolist())) for ids in found.block_ids])
    scores = losses.relevance_scores(vectors, blocks, torch.from_numpy(found.block_ids == NULL_BLOCK), query.null_offset)
    expected = losses.candidate_log_probs(scores, torch.from_numpy(found.valid))
    model.eval()
    scored = score_candidates(model, context, queries, found)
    torch.testing.assert_close(scored.log_p_z, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.scores[:, 1:], scores[:, 1:].detach().numpy(), rtol=1e-4, atol=1e-4)
    loss, _ = losses.marginal_nll_per_token(scored.target_log_probs, scored.log_p_z, scored.slots)
    loss.sum().backward()
    for side in (query, document):
        # The null document's offset is the query side's.
        learning = [p for name, p in side.named_parameters() if name != "null_offset" or side is query]
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in learning)
        assert side.dense.weight.grad is not None and side.dense.weight.grad.abs().max() > 0


def test_the_run_answers(run):
    (answer,) = open_run(run).answerer.answer(["What is the currency of Arvad?"], k=3)
    assert answer.answer and len(answer.evidence) == 3
