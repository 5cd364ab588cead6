"""Hybrid retrieval: the plain sum of scaled scores, scored by the embedder alone; in a run, with documents that come and go."""

import json
import shutil

import numpy as np
import pytest
import torch

from realm.answering.explain import explain
from realm.answering.opening import open_run
from realm.cli import main
from realm.documents.store.blocks import NULL_BLOCK
from realm.errors import ConfigError
from realm.models.types import MaskedQuery
from realm.recipe import build_recipe
from realm.search import retriever as searching
from realm.search.candidates import BM25_LOGIT_SCALE, DenseCandidates, HybridCandidates, Searching, make_source
from realm.search.index.exact import ExactIndex
from realm.search.retriever import NULL_INDEX, Retriever
from realm.training.beams import LiveSource
from realm.training.context import open_context
from realm.training.pretrain.retrieve import PretrainView


@pytest.fixture
def vectors():
    return np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)


@pytest.fixture
def retriever(vectors):
    """Queries are block ids 100..129; a query's embedding points to its own block."""
    return Retriever(lambda queries: 9 * vectors[[q - 100 for q in queries]], ExactIndex(vectors, np.arange(100, 130, dtype=np.int64)))


@pytest.mark.parametrize("null", [True, False])
@pytest.mark.parametrize("k", [1, 2, 8, 30, 31, 40])
def test_origin_is_never_returned_and_k_is_stable(retriever, k, null):
    queries = [100, 107, 129]
    found = retriever.retrieve(queries, k, null=null, exclude=[np.array([q], np.int64) for q in queries])
    assert found.block_ids.shape == found.valid.shape == found.scores.shape == (3, k)
    assert found.block_ids.dtype == np.int64 and found.scores.dtype == np.float32
    for i, query in enumerate(queries):
        blocks = found.block_ids[i][int(null) :][found.valid[i][int(null) :]].tolist()
        assert len(blocks) == len(set(blocks)) == min(k - int(null), 29)
        assert query not in blocks and NULL_BLOCK not in blocks
    assert (found.block_ids[~found.valid] == NULL_BLOCK).all() and np.isneginf(found.scores[~found.valid]).all()
    if null:
        assert (found.block_ids[:, NULL_INDEX] == NULL_BLOCK).all() and found.valid[:, NULL_INDEX].all()
        assert np.isnan(found.scores[:, NULL_INDEX]).all()


def test_without_exclusion_the_best_block_comes_first_with_it_the_null_document(retriever, vectors):
    found = retriever.retrieve([105], 30, null=False)
    assert found.block_ids[0].tolist() == (100 + np.argsort(-(vectors @ vectors[5]), kind="stable")).tolist()
    np.testing.assert_allclose(found.scores[0], 9 * np.sort(vectors @ vectors[5])[::-1], rtol=1e-5, atol=1e-5)
    found = retriever.retrieve([100], 5, null=True, exclude=[np.arange(100, 130)])
    assert found.valid.tolist() == [[True, False, False, False, False]] and (found.block_ids == NULL_BLOCK).all()


def test_bad_calls(retriever):
    with pytest.raises(ValueError, match="k must be"):
        retriever.retrieve([100], 0, null=True)
    with pytest.raises(ValueError, match="exclusion lists"):
        retriever.retrieve([100], 2, null=True, exclude=[])


QUESTIONS = ["What is the currency of Arvad?", "winters in Dulwen", "cents", "zzz"]


def copy_of(tiny_run, tmp_path, kind="hybrid"):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    config = (run / "config.toml").read_text("utf-8")
    assert 'kind = "auto"\nweight = 1.0' in config
    (run / "config.toml").write_text(config.replace('kind = "auto"\nweight', f'kind = "{kind}"\nweight'), "utf-8")
    return run


def sources(run, exclude=None, **more):
    parts = run.networks.finetuned.embedder, run.generation.snapshot, run.generation.index, run.inputs, run.paths.index
    return {kind: make_source(*parts, Searching(kind, **more), exclude) for kind in ("dense", "sparse", "hybrid")}


def asked(source, k):
    return source.find(QUESTIONS, source.inputs.store.tokenizer.encode(QUESTIONS), k)


def slowly(run, question, depth, weight):
    """Rows of all blocks by the plain sum: both scores of every block, each less the mean of its best, in units of their spread."""
    dense, sparse = (asked(source, len(run.inputs.store)) for source in (sources(run)["dense"], sources(run)["sparse"]))
    i, n = QUESTIONS.index(question), len(run.inputs.store)
    products, points = np.zeros(n), np.zeros(n)
    products[dense.rows[i]] = dense.scores[i]
    best = sparse.rows[i][sparse.rows[i] >= 0][:depth]
    points[best] = sparse.proposals.sparse[i, : len(best)]
    spread = [np.sort(values)[::-1][:depth] for values in (products, points)]
    total = sum(
        factor * (values - some.mean()) / (some.std() + 1e-9)
        for factor, values, some in zip((1, weight), (products, points), spread, strict=True)
    )
    return sorted(np.union1d(np.argsort(-products)[:depth], best).tolist(), key=lambda row: -total[row])


@pytest.mark.parametrize(("depth", "weight"), [(200, 1.0), (4, 1.0), (5, 0.3), (200, 7.0)])
def test_the_order_is_that_of_the_plain_sum(tiny_run, tmp_path, depth, weight, monkeypatch):
    run = open_run(copy_of(tiny_run, tmp_path))
    everything = {question: slowly(run, question, depth, weight) for question in QUESTIONS} if depth < 200 else None
    monkeypatch.setattr(searching, "PROPOSAL_DEPTH", depth)
    everything = everything or {question: slowly(run, question, depth, weight) for question in QUESTIONS}
    found = asked(sources(run, weight=weight)["hybrid"], 4)
    for i, question in enumerate(QUESTIONS):
        assert found.rows[i].tolist() == everything[question][:4], question
    assert (np.diff(found.proposals.total) <= 1e-6).all()


def test_scores_are_the_embedders_with_its_gradient(tiny_run, tmp_path, monkeypatch):
    run = open_run(copy_of(tiny_run, tmp_path))
    monkeypatch.setattr(searching, "PROPOSAL_DEPTH", 3)
    source = sources(run)["hybrid"]
    embedder = source.embedder.eval()
    found, tokens = asked(source, 5), run.inputs.store.tokenizer.encode(QUESTIONS)
    query_emb = embedder.embed_queries([run.inputs.featurizer.query(ids) for ids in tokens])
    vectors = torch.from_numpy(np.array(run.generation.snapshot.vectors))
    for i in range(len(QUESTIONS)):
        rows = found.rows[i][found.rows[i] >= 0]
        assert len(set(rows.tolist())) == len(rows)
        expected = vectors[rows] @ query_emb[i]
        assert np.allclose(found.scores[i, : len(rows)], expected.detach(), atol=1e-4)
        assert found.proposals.dense[i, : len(rows)].tolist() == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-4)
    live = LiveSource(source, embedder)(QUESTIONS, tokens, 5)
    assert (live.rows == found.rows).all() and np.allclose(live.scores.detach(), found.scores, atol=1e-4)
    live.scores.sum().backward()
    learning = embedder.named_parameters()
    assert all(p.grad is not None for name, p in learning if name != "null_offset")  # no null document is among them


def test_sparse_search_alone_orders_by_words(tiny_run, tmp_path):
    run = open_run(copy_of(tiny_run, tmp_path, "sparse"))
    found, store = asked(run.source, 3), run.inputs.store
    assert isinstance(run.source, HybridCandidates) and store.block(int(found.rows[0, 0])).title == "Arvad"
    assert (found.rows[3] == -1).all() and (found.scores[3] == 0).all()
    assert (np.diff(found.proposals.sparse) <= 0).all()


@pytest.mark.parametrize("kind", ["sparse", "hybrid"])
def test_words_may_say_how_relevant_a_block_is(tiny_run, tmp_path, kind):
    """Then nothing depends on the embedder but the order in hybrid search, and no gradient reaches it."""
    run = open_run(copy_of(tiny_run, tmp_path, kind))
    own, worded = (asked(sources(run, relevance=relevance)[kind], 4) for relevance in ("embedder", "sparse"))
    assert (own.rows == worded.rows).all()
    assert worded.scores == pytest.approx(BM25_LOGIT_SCALE * worded.proposals.sparse)
    assert not np.allclose(own.scores, worded.scores)
    config = run.paths.config
    config.write_text(config.read_text("utf-8").replace('relevance = "embedder"', 'relevance = "sparse"'), "utf-8")
    assert np.array_equal(asked(open_run(run.paths.root).source, 4).scores, worded.scores)


def test_relevance_by_words_wants_a_search_by_words():
    with pytest.raises(ConfigError, match=r"'retrieval\.relevance' is 'sparse'"):
        build_recipe({"corpus": {"sources": ["x"]}, "retrieval": {"relevance": "sparse"}})


def test_excluded_documents_are_found_by_neither(tiny_run, tmp_path):
    run = open_run(copy_of(tiny_run, tmp_path))
    exclude = run.inputs.blocks_of_documents(["Arvad/0", "Arvad/1"])
    for kind, source in sources(run, exclude=exclude).items():
        rows = asked(source, 50).rows
        assert not np.isin(run.inputs.store.block_ids[rows[rows >= 0]], exclude).any(), kind
    for kind, source in sources(run, exclude=np.asarray(run.inputs.store.block_ids)).items():
        assert (asked(source, 3).rows == -1).all() and not asked(source, 3).scores.any(), kind


def test_dense_is_what_a_run_from_nothing_uses(tiny_run):
    run = open_run(tiny_run)
    assert run.recipe.retrieval_kind == "dense" and type(run.source) is DenseCandidates
    assert build_recipe({"model": {"body": "minilm"}}).retrieval_kind == "hybrid"
    assert build_recipe({"model": {"body": "minilm"}, "retrieval": {"kind": "dense"}}).retrieval_kind == "dense"
    assert not list((tiny_run / "index").rglob("sparse"))


def test_candidates_of_masked_sentences(tiny_run, tmp_path):
    """Words propose what the embedder may not know; blocks that hold the sentence are never found; the null document stands first."""
    run = open_run(copy_of(tiny_run, tmp_path))
    store = run.inputs.store
    row = next(row for row in range(len(store)) if store.block(row).title == "Belmor")
    start, end = store.sentences(row).tokens[0].tolist()
    ids, own = store.token_ids(row)[start:end].tolist(), np.array([store.block_ids[row]])
    query = MaskedQuery([*ids[:1], run.inputs.featurizer.mask, *ids[2:]], [1], ids[1:2], int(own[0]), 0, own)
    search = sources(run)["hybrid"].search

    def view(search):
        return PretrainView(open_context(run.paths, run.recipe, lambda *_: None), run.networks.pretrained, run.generation, store, search)

    found = view(search).retrieve([query] * 2, 5)
    assert found.has_null and found.block_ids.shape == (2, 5) and not np.isin(found.block_ids, own).any()
    assert np.isnan(found.scores[:, 0]).all() and found.valid.all()
    found = view(searching.HybridSearch(search.snapshot, search.index, search.sparse, dense=False)).retrieve([query], 2)
    assert store.block(int(store.rows_of(found.block_ids[:, 1])[0])).title == "Belmor"


def test_explain_searches_as_the_run_does(tiny_run, tmp_path, capsys):
    """By words alone a block of the country that is named comes first, which the embedder alone misses; p(z|x) is the embedder's."""
    root = copy_of(tiny_run, tmp_path, "sparse")
    run = open_run(root)
    parts, names = (run.networks.pretrained, run.generation, run.inputs), ["Arvad", "Belmor", "Carsin", "Dulwen", "Estrag", "Faldor"]

    def first(name, **options):
        return explain(*parts, f"In 1950 {name} had a [MASK].", targets=["cents"], k=3, **options).candidates[1].title

    assert [first(name, hybrid=run.hybrid) for name in names] == names != [first(name) for name in names]
    sentence = f"In 1950 {names[0]} had a [MASK]."
    found = explain(*parts, sentence, targets=["cents"], k=3, hybrid=run.hybrid)
    assert main(["explain", str(root), sentence, "--target", "cents", "--k", "3", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])["candidates"]
    assert [c["block_id"] for c in shown] == [c.block_id for c in found.candidates]
    everything = {c.block_id: c for c in explain(*parts, sentence, targets=["cents"], k=500).candidates}
    odds = [(c.p_z / found.candidates[0].p_z, everything[c.block_id].p_z / everything[-1].p_z) for c in found.candidates]
    assert [mine for mine, _ in odds] == pytest.approx([theirs for _, theirs in odds], rel=1e-3)


def test_the_weight_is_that_of_the_recipe(tiny_run, tmp_path):
    run = copy_of(tiny_run, tmp_path)
    text = (run / "config.toml").read_text("utf-8")
    (run / "config.toml").write_text(text.replace("weight = 1.0", "weight = 0.5"), "utf-8")
    source = open_run(run).source
    assert isinstance(source, HybridCandidates) and source.weight == source.search.weight == 0.5
    with pytest.raises(ConfigError, match=r"'retrieval\.weight' is -1"):
        build_recipe({"retrieval": {"weight": -1.0}})
