"""The index belongs to one document embedder, and every document added later is embedded by that one."""

import shutil
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from small import flip, jsonl

from realm.documents.change.updates import add_documents
from realm.documents.ingest.builder import build_corpus
from realm.errors import RealmError, SnapshotError
from realm.models.model import RealmModel, state_sha256
from realm.models.spec import BodySpec, bert_spec, one_body
from realm.search.blocks import open_inputs
from realm.search.publishing.embedding import embed_corpus
from realm.search.publishing.generation import open_generation
from realm.search.publishing.parameters import KEEP_GENERATIONS, publish_parameters
from realm.search.publishing.refresher import add_difference, missing_rows, refresh_index
from realm.storage import arrays
from realm.storage.files import sha256_file
from realm.storage.generations import current_generation, published_generations
from realm.storage.layout import RunPaths

NAMES = ["Arvad", "Belmor", "Carsin", "Dulwen", "Estrag", "Faldor", "Gorlan", "Hestia", "Ivanor", "Jorund", "Kelvas", "Lormand"]


def write(path, names):
    texts = [f"Its river flows to the sea for {number + 3} miles. " * (1 + number % 5) for number in range(len(names))]
    rows = zip(names, texts, strict=True)
    return jsonl(path, [{"id": name, "title": name, "text": f"The capital of {name} is {name} City. {text}"} for name, text in rows])


@pytest.fixture
def paths(tmp_path):
    run = RunPaths(tmp_path / "run")
    build_corpus([write(tmp_path / "docs.jsonl", NAMES)], run.corpus, vocab_size=300)
    return run


@pytest.fixture
def inputs(paths):
    return open_inputs(paths.corpus, 64)


def make_model(inputs, seed=0, *, hidden=32):
    torch.manual_seed(seed)
    vocabulary = inputs.store.tokenizer.vocab_size
    sizes = {"hidden": hidden, "layers": 2, "heads": 2, "intermediate": 2 * hidden}
    body = bert_spec(vocab_size=vocabulary, max_length=352, dropout=0.1, attention_dropout=0.0, **sizes)
    return RealmModel(one_body(BodySpec(body.config), projection=16))


def learn(model, inputs):
    model.embedder.train()(inputs.blocks([0, 1])).pow(3).sum().backward()
    torch.optim.SGD(model.embedder.parameters(), lr=0.1).step()


def test_a_generation_is_what_its_embedder_says(paths, inputs):
    model = make_model(inputs).train()
    before, seen = state_sha256(model), []
    generation = refresh_index(model, inputs, paths, step=7, progress=lambda done, total: seen.append((done, total)))
    assert model.training and state_sha256(model) == before, "the live model is not touched"
    assert generation.number == 1 == current_generation(paths.index) and generation.snapshot.manifest.step == 7
    assert seen[-1] == (len(inputs.store), len(inputs.store))
    assert not generation.embedder.training and not any(p.requires_grad for p in generation.embedder.parameters())
    assert state_sha256(generation.embedder) == state_sha256(model.embedder) == generation.snapshot.manifest.document_embedder_sha256
    with torch.no_grad():
        alone = torch.cat([generation.embedder([inputs.block(row)]) for row in range(len(inputs.store))]).numpy()
    np.testing.assert_allclose(generation.snapshot.vectors, alone, atol=1e-5)
    assert generation.snapshot.block_ids.tolist() == inputs.store.block_ids.tolist()
    # Opened by another process: the same.
    opened = open_generation(paths, open_inputs(paths.corpus, 64))
    assert opened.number == 1 and np.array_equal(opened.snapshot.vectors, generation.snapshot.vectors)
    # Before the fork there is one embedder, and the same parameters give the same bits.
    assert RealmModel.from_pretrained(paths.params / "000001").spec.parts == ("embedder",) and generation.queries is generation.embedder
    again = refresh_index(model, inputs, paths, step=7)
    assert again.number == 2 and np.array_equal(again.snapshot.vectors, generation.snapshot.vectors)


def test_after_the_fork_the_document_side_makes_the_index(paths, inputs):
    model = make_model(inputs).fork_document_embedder()
    learn(model, inputs)
    generation = refresh_index(model, inputs, paths, step=0)
    assert generation.snapshot.manifest.document_embedder_sha256 == state_sha256(model.document_embedder) != state_sha256(model.embedder)
    assert RealmModel.from_pretrained(paths.params / "000001").spec.parts == ("embedder", "document_embedder")
    assert state_sha256(generation.queries) == state_sha256(model.embedder) and generation.embedder is not generation.queries


def test_an_added_document_gets_the_vector_of_a_full_rebuild(paths, inputs, tmp_path):
    """To 1e-6 of its length, not bit for bit: in float32 the shape of a batch decides the last digits of its products."""
    model = make_model(inputs, hidden=128).fork_document_embedder()
    first = refresh_index(model, inputs, paths, step=0)
    learn(model, inputs)
    assert missing_rows(first, inputs).tolist() == []
    add_documents(paths.corpus, [write(tmp_path / "more.jsonl", ["Utopia", "Zembla", "Ruritania"])])
    wider = open_inputs(paths.corpus, 64)
    assert open_generation(paths, wider).snapshot.block_ids.tolist() == inputs.store.block_ids.tolist()
    assert missing_rows(first, wider).tolist() == [12, 13, 14]
    extended, added = add_difference(open_generation(paths, wider), paths, wider)
    assert added == 3 and extended.number == first.number and len(extended.index) == 15
    assert np.array_equal(extended.snapshot.vectors[:12], first.snapshot.vectors)
    hits = extended.index.search(torch.from_numpy(np.array(extended.snapshot.vectors[12:13])), 20)
    assert hits.valid.sum() == 15 and int(extended.snapshot.block_ids[12]) in hits.ids[0, :3].tolist()
    rebuilt = refresh_index(model, wider, paths, step=0)
    assert rebuilt.number == 2 and rebuilt.snapshot.block_ids.tolist() == extended.snapshot.block_ids.tolist()
    apart = np.linalg.norm(extended.snapshot.vectors - rebuilt.snapshot.vectors, axis=1)
    assert (apart <= 1e-6 * np.linalg.norm(rebuilt.snapshot.vectors, axis=1)).all()
    moved = embed_corpus(model.embedder, wider, np.array([12])) if model.has("embedder") else None
    assert moved is not None and np.abs(moved - rebuilt.snapshot.vectors[12]).max() > 1e-3, "the question side would give another vector"
    # Again: nothing is left to do.
    again, added = add_difference(open_generation(paths, wider), paths, wider)
    assert added == 0 and again.number == 2


@pytest.mark.parametrize("name", ["vectors-00000.npy", "block_ids-00000.npy"])
def test_a_shard_that_changed_after_it_was_opened_is_found_when_documents_are_added(name, paths, inputs, tmp_path):
    refresh_index(make_model(inputs), inputs, paths, step=0)
    opened = open_generation(paths, inputs)
    flip(paths.index / "000001" / name, -1, 6)  # of a vector: the exponent of its last number
    add_documents(paths.corpus, [write(tmp_path / "more.jsonl", ["Utopia"])])
    with pytest.raises(SnapshotError):
        add_difference(opened, paths, open_inputs(paths.corpus, 64))


@pytest.mark.parametrize("two", [False, True])
def test_networks_and_vectors_are_hashed_once_and_few_files_are_written(paths, inputs, two, monkeypatch):
    model = make_model(inputs).fork_document_embedder() if two else make_model(inputs)
    hashed = []
    monkeypatch.setattr("realm.models.model.state_sha256", lambda network: hashed.append("network") or state_sha256(network))
    monkeypatch.setattr(arrays, "sha256_file", lambda path: hashed.append(path.name) or sha256_file(path))
    opened = refresh_index(model, inputs, paths, step=0)
    # The vectors are hashed while they are written, and their ids once they are.
    assert hashed.count("network") == 1 + two and not [name for name in hashed if name.startswith("vectors")]
    assert len(hashed) == 2 + two
    written = {file.name for folder in (paths.params, paths.index) for file in folder.rglob("*") if file.is_file()}
    assert len(written) <= 12 and "README.md" not in written
    again = open_generation(paths, inputs)
    assert (again.snapshot.vectors == opened.snapshot.vectors).all()
    for ours, theirs in ((opened.embedder, again.embedder), (opened.queries, again.queries)):
        assert state_sha256(ours) == state_sha256(theirs)
    assert (again.query_embedder is not None) == (opened.query_embedder is not None) == two


def test_an_index_of_another_embedder_or_corpus_is_refused(paths, inputs, tmp_path):
    sha = refresh_index(make_model(inputs), inputs, paths, step=0).snapshot.manifest.document_embedder_sha256
    assert open_generation(paths, inputs, 1, document_embedder_sha256=sha).number == 1
    with pytest.raises(SnapshotError, match="another document embedder"):
        open_generation(paths, inputs, document_embedder_sha256="0" * 64)
    other = RunPaths(tmp_path / "other")
    build_corpus([write(tmp_path / "few.jsonl", NAMES[:5])], other.corpus, vocab_size=300)
    with pytest.raises(SnapshotError, match="another corpus"):
        open_generation(paths, open_inputs(other.corpus, 64))
    with pytest.raises(SnapshotError, match="generation 9 does not exist"):
        open_generation(paths, inputs, 9)


def test_missing_and_foreign_parameters_are_refused(paths, inputs):
    with pytest.raises(RealmError) as caught:
        open_generation(paths, inputs)
    assert "\n" not in str(caught.value) and caught.value.cure
    refresh_index(make_model(inputs), inputs, paths, step=0)
    shutil.rmtree(paths.params / "000001")
    with pytest.raises(SnapshotError, match="no model"):
        open_generation(paths, inputs)
    publish_parameters(make_model(inputs, seed=1), paths.params / "000001")
    with pytest.raises(SnapshotError, match="not those that embedded the index") as caught:
        open_generation(paths, inputs)
    assert "\n" not in str(caught.value) and caught.value.cure


def test_three_generations_stay_and_what_checkpoints_need(paths, inputs):
    assert KEEP_GENERATIONS == 3
    model = make_model(inputs)
    for step in range(6):
        refresh_index(model, inputs, paths, step=step, protect=frozenset({2}))
    assert published_generations(paths.index) == [2, 4, 5, 6]
    assert sorted(p.name for p in paths.params.iterdir()) == ["000002", "000004", "000005", "000006"]
    assert open_generation(paths, inputs, 2).snapshot.manifest.step == 1
    refresh_index(model, inputs, paths, step=6)
    assert published_generations(paths.index) == [5, 6, 7]


@pytest.mark.parametrize("where", ["refresher.publish_snapshot", "embedding.embed_corpus"])
def test_a_killed_refresh_leaves_the_old_index_and_no_trap(paths, inputs, monkeypatch, where):
    """Killed after its parameters were published: the next refresh, with other weights, must not take them for its own."""

    class Killed(BaseException):
        pass

    refresh_index(make_model(inputs, seed=0), inputs, paths, step=0)
    with monkeypatch.context() as patch:
        patch.setattr(f"realm.search.publishing.{where}", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            refresh_index(make_model(inputs, seed=1), inputs, paths, step=1)
    assert open_generation(paths, inputs).number == 1
    model = make_model(inputs, seed=2)
    generation = refresh_index(model, inputs, paths, step=2)
    assert generation.number == 2 and state_sha256(generation.embedder) == state_sha256(model.embedder)
