"""A build goes on where it was killed, in one process or several, and makes the bytes of an uninterrupted one."""

import shutil
import threading
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from small import flip, jsonl

from realm.documents.change.updates import add_documents, remove_documents, update_documents
from realm.documents.ingest.builder import build_corpus
from realm.errors import RealmError, SnapshotError
from realm.models.model import RealmModel, state_sha256
from realm.models.spec import BodySpec, bert_spec, one_body
from realm.search.blocks import open_inputs
from realm.search.publishing import embedding
from realm.search.publishing.embedding import IN_PROCESS, EmbedOptions, embed_corpus
from realm.search.publishing.generation import open_generation, read_through
from realm.search.publishing.parameters import (
    KEEP_GENERATIONS,
    forget_requests,
    parameters_path,
    publish_parameters,
    publishing,
    request_index,
    requested,
)
from realm.search.publishing.refresher import Refresher, add_difference, missing_rows, read_status, refresh_index, standing_index
from realm.search.publishing.snapshot import Snapshot, SnapshotFacts
from realm.search.publishing.writing import publish_snapshot
from realm.storage import arrays, files, locks
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


def test_an_index_stands_for_the_same_embedder_blocks_and_arithmetic_alone(paths, inputs, tmp_path):
    model = make_model(inputs).fork_document_embedder()
    assert standing_index(model, inputs, paths, IN_PROCESS) is None
    assert refresh_index(model, inputs, paths, step=0).number == standing_index(model, inputs, paths, IN_PROCESS).number == 1
    assert standing_index(model, inputs, paths, EmbedOptions(bf16=True)) is None
    assert standing_index(make_model(inputs, seed=1).fork_document_embedder(), inputs, paths, IN_PROCESS) is None
    add_documents(paths.corpus, [write(tmp_path / "more.jsonl", ["Utopia"])])
    assert standing_index(model, open_inputs(paths.corpus, 64), paths, IN_PROCESS) is None
    learn(learnt := make_model(inputs).fork_document_embedder(), inputs)
    assert standing_index(learnt, inputs, paths, IN_PROCESS) is None is not standing_index(model, inputs, paths, IN_PROCESS), "of queries"
    (paths.index / "000001" / "vectors-00000.npy").write_bytes(b"")
    assert standing_index(model, inputs, paths, IN_PROCESS) is None, "a damaged one is made anew"
    refresh_index(model, inputs, paths, step=3)
    assert standing_index(model, inputs, paths, IN_PROCESS) is None, "made by what had learnt"


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
    written = {file.name for folder in (paths.params, paths.index) for file in folder.rglob("*") if file.is_file()}
    assert len(hashed) == 2 + two and len(written) <= 12 and "README.md" not in written
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

    refresh_index(make_model(inputs, seed=0), inputs, paths, step=0)
    with monkeypatch.context() as patch:
        patch.setattr(f"realm.search.publishing.{where}", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            refresh_index(make_model(inputs, seed=1), inputs, paths, step=1)
    assert open_generation(paths, inputs).number == 1
    model = make_model(inputs, seed=2)
    generation = refresh_index(model, inputs, paths, step=2)
    assert generation.number == 2 and state_sha256(generation.embedder) == state_sha256(model.embedder)


OWNER = {"corpus_id": "c", "tokenizer_sha256": "t", "document_embedder_sha256": "e"}
IDS = np.arange(10, dtype=np.int64)
ROWS = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)


class Killed(BaseException):
    """Stands for a process that dies here."""


def killed_beyond(number, done, at, total):
    done.append(at)
    if at > number:
        raise Killed


def publish(index, kill_at=None, step=1, dtype="float32"):
    starts = []

    def parts(start):
        starts.append(start)
        for at in range(start, 10, 3):
            if at == kill_at:
                raise Killed
            yield ROWS[at : at + 3]

    facts = SnapshotFacts(params_generation=1, step=step, corpus_version=1, dtype=dtype, segments=(("s", 10),), **OWNER)
    publish_snapshot(index, parts, IDS, facts, generation=1)
    return starts


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_taken_up_after_the_last_whole_part(tmp_path, dtype):
    with pytest.raises(Killed):
        publish(tmp_path / "killed", kill_at=6, dtype=dtype)
    assert not (tmp_path / "killed" / "CURRENT").exists()
    file = tmp_path / "killed" / "000001.building" / "vectors-00000.npy"
    with open(file, "ab") as half:
        half.write(b"half a row")  # written, not noted
    assert publish(tmp_path / "killed", dtype=dtype) == [6] and publish(tmp_path / "whole", dtype=dtype) == [0]
    for name in ("vectors-00000.npy", "block_ids-00000.npy"):
        assert sha256_file(tmp_path / "killed" / "000001" / name) == sha256_file(tmp_path / "whole" / "000001" / name)
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == ["000001", "CURRENT"]
    assert np.allclose(Snapshot.open(tmp_path / "killed", **OWNER).vectors, ROWS, rtol=2**-8)


@pytest.mark.parametrize("harm", ["another step", "flipped", "truncated", "no note", "note cut short"])
def test_what_cannot_be_taken_up_is_begun_again(tmp_path, harm):
    with pytest.raises(Killed):
        publish(tmp_path, kill_at=6)
    root = tmp_path / "000001.building"
    file, note = root / "vectors-00000.npy", root / "progress.json"
    if harm == "flipped":
        file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    elif harm == "truncated":
        file.write_bytes(file.read_bytes()[:-20])
    elif harm == "no note":
        note.unlink()
    elif harm == "note cut short":
        note.write_text(note.read_text()[:50])
    assert publish(tmp_path, step=2 if harm == "another step" else 1) == [0]
    np.testing.assert_array_equal(Snapshot.open(tmp_path, **OWNER).vectors, ROWS)


@pytest.fixture
def run(run_copy):
    return RunPaths(run_copy)


def opened(run):
    return open_inputs(run.corpus, 32), RealmModel.from_pretrained(run.stage("pretrain"))


def test_an_inline_refresh_is_taken_up(run, monkeypatch):
    inputs, model = opened(run)
    monkeypatch.setattr(embedding, "PART_ROWS", 5)
    whole, done = refresh_index(model, inputs, run, step=3), []
    with pytest.raises(Killed):
        refresh_index(model, inputs, run, step=4, progress=partial(killed_beyond, 5, done))
    done.clear()
    again = refresh_index(model, inputs, run, step=4, progress=lambda now, total: done.append(now))
    assert again.number == whole.number + 1 and done[0] > 5 and done[-1] == len(inputs.store)
    np.testing.assert_array_equal(again.snapshot.vectors, whole.snapshot.vectors)
    assert again.snapshot.manifest.seconds > 0 and sum(rows for _, rows in again.snapshot.manifest.segments) == len(inputs.store)


def test_several_processes_make_the_same_index(run, monkeypatch):
    inputs, model = opened(run)
    monkeypatch.setattr(embedding, "PART_ROWS", 2)
    alone = refresh_index(model, inputs, run, step=3)
    several = refresh_index(model, inputs, run, step=3, options=EmbedOptions(workers=2, threads=1))
    np.testing.assert_array_equal(several.snapshot.vectors, alone.snapshot.vectors)
    assert several.number == alone.number + 1


def test_a_changed_document_is_embedded_and_its_old_blocks_hidden(run, tmp_path):
    inputs, model = opened(run)
    generation = refresh_index(model, inputs, run, step=1)
    change = {"id": "Arvad/0", "title": "Arvad", "text": "People in Arvad now pay with the Zorin. The Zorin is new."}
    update_documents(run.corpus, [jsonl(tmp_path / "changed.jsonl", [change])])
    remove_documents(run.corpus, ["Belmor/0"])
    now, _ = opened(run)
    assert len(missing_rows(generation, now)) == 1
    extended, embedded = add_difference(open_generation(run, now), run, now)
    assert embedded == 1 and extended.number == generation.number
    hits = extended.index.search(model.documents.eval()(now.blocks([int(np.flatnonzero(now.store.live)[-1])])).detach(), 12)
    live = set(np.asarray(now.store.block_ids)[now.store.live].tolist())
    assert set(hits.ids[hits.valid].tolist()) == live and len(live) == 11


def test_a_killed_difference_is_taken_up(run, tmp_path, monkeypatch):
    """Added blocks go to disk part by part; the second call embeds only what the first had not written."""
    inputs, model = opened(run)
    generation = refresh_index(model, inputs, run, step=1)
    added = [{"id": f"new/{n}", "title": "New", "text": f"New facts, number {n}, in a text of its own."} for n in range(6)]
    add_documents(run.corpus, [jsonl(tmp_path / "added.jsonl", added)])
    now, _ = opened(run)
    monkeypatch.setattr(embedding, "PART_ROWS", 2)
    done = []
    with pytest.raises(Killed):
        add_difference(open_generation(run, now), run, now, partial(killed_beyond, 4, done))
    assert len(missing_rows(open_generation(run, now), now)) == 6, "nothing counts before all is there"
    done.clear()
    extended, embedded = add_difference(open_generation(run, now), run, now, lambda at, total: done.append(at))
    assert embedded == 6 and min(done) > 4 and extended.snapshot.manifest.revision == 1
    np.testing.assert_allclose(extended.snapshot.vectors, refresh_index(model, now, run, step=1).snapshot.vectors, atol=1e-6)
    assert extended.number == generation.number and not list(run.index.glob("*.building"))


def test_the_refresher_answers_the_newest_request_only(run):
    inputs, model = opened(run)
    first, second, ticks = request_index(model, run, 10), request_index(model, run, 20), []
    assert not (run.params / f"{first:06d}").exists(), "skipped, not queued"
    Refresher(run, inputs, EmbedOptions()).serve(lambda: len(ticks) > 1, sleep=lambda _: ticks.append(requested(run)))
    found = open_generation(run, inputs)
    assert found.number == second and found.step == 20 and ticks == [None, None]
    assert read_status(run.index).beat > 0


def test_a_request_that_is_taken_back_while_it_is_answered_leaves_nothing(run):
    inputs, model = opened(run)
    before, asked = refresh_index(model, inputs, run, step=1).number, request_index(model, run, 10)

    def embedded_too_late(*args):
        parts = embedding.embed_parts(*args)

        def until_taken_back(start):
            yield from parts(start)
            forget_requests(run, above=before)  # a trainer that was killed starts again

        return until_taken_back

    with publishing(run.index):
        assert Refresher(run, inputs, EmbedOptions(), parts_of=embedded_too_late).tick() == asked
    assert published_generations(run.index)[-1] == before and not parameters_path(run, asked).exists()
    assert refresh_index(model, inputs, run, step=3).number > asked and not list(run.index.glob("*.building"))


def test_a_request_cannot_be_taken_back_while_its_answer_becomes_visible(run, monkeypatch):
    inputs, model = opened(run)
    before, asked = refresh_index(model, inputs, run, step=1).number, request_index(model, run, 10)
    trainer = threading.Thread(target=forget_requests, args=(run, before))

    def start_the_trainer(point, path):
        if point == "generation: published" and path.name == f"{asked:06d}":
            trainer.start()
            trainer.join(0.3)
            assert trainer.is_alive(), "it waits until CURRENT says that the request is answered"

    monkeypatch.setattr(files, "listener", start_the_trainer)
    with publishing(run.index):
        assert Refresher(run, inputs, EmbedOptions()).tick() == asked
    trainer.join()
    assert open_generation(run, inputs, asked).step == 10, "the answer has its parameters"


def test_a_generation_that_current_never_reached_does_not_count_later(run, monkeypatch):
    inputs, model = opened(run)
    before, asked = refresh_index(model, inputs, run, step=1).number, request_index(model, run, 10)

    def die(point, path):
        if point == "generation: published":
            raise Killed

    monkeypatch.setattr(files, "listener", die)
    with publishing(run.index), pytest.raises(Killed):
        Refresher(run, inputs, EmbedOptions()).tick()
    monkeypatch.setattr(files, "listener", None)
    assert (run.index / f"{asked:06d}").is_dir() and not forget_requests(run, above=before).start > asked
    newest = refresh_index(model, inputs, run, step=20).number
    assert asked not in published_generations(run.index) and newest > asked, "it has no parameters"
    assert not any(read_through(run, inputs, number)[1] for number in published_generations(run.index))


def test_a_second_refresher_is_refused(run, monkeypatch):
    inputs, model = opened(run)
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.0)
    with publishing(run.index), pytest.raises(SnapshotError, match=r"another process \(process \d+\) builds this index"):
        refresh_index(model, inputs, run, step=1)


def test_parameters_that_are_damaged_are_not_searched_with(run):
    inputs, model = opened(run)
    older = refresh_index(model, inputs, run, step=1).number
    newer = refresh_index(model, inputs, run, step=2).number
    flip(run.params / f"{newer:06d}" / "model.safetensors")
    with pytest.raises(SnapshotError, match="checksum differs"):
        open_generation(run, inputs, newer)
    assert open_generation(run, inputs).number == older and (run.index / f"{newer:06d}.quarantined").is_dir()
