"""A build goes on where it was killed, in one process or several, and makes the bytes of an uninterrupted one."""

import threading

import numpy as np
import pytest
from small import flip, jsonl

from realm.documents.change.updates import add_documents, remove_documents, update_documents
from realm.errors import SnapshotError
from realm.models.model import RealmModel
from realm.search.blocks import open_inputs
from realm.search.publishing import embedding
from realm.search.publishing.embedding import EmbedOptions
from realm.search.publishing.generation import open_generation, read_through
from realm.search.publishing.parameters import forget_requests, parameters_path, publishing, request_index, requested
from realm.search.publishing.refresher import Refresher, add_difference, missing_rows, read_status, refresh_index
from realm.search.publishing.snapshot import Snapshot, SnapshotFacts
from realm.search.publishing.writing import publish_snapshot
from realm.storage import files, locks
from realm.storage.files import sha256_file
from realm.storage.generations import published_generations
from realm.storage.layout import RunPaths

OWNER = {"corpus_id": "c", "tokenizer_sha256": "t", "document_embedder_sha256": "e"}
IDS = np.arange(10, dtype=np.int64)
ROWS = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)


class Killed(BaseException):
    """Stands for a process that dies here."""


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

    def killed(now, total):
        done.append(now)
        if now > 5:
            raise Killed

    with pytest.raises(Killed):
        refresh_index(model, inputs, run, step=4, progress=killed)
    done.clear()
    again = refresh_index(model, inputs, run, step=4, progress=lambda now, total: done.append(now))
    assert again.number == whole.number + 1 and done[0] > 5 and done[-1] == len(inputs.store)
    np.testing.assert_array_equal(again.snapshot.vectors, whole.snapshot.vectors)
    assert again.snapshot.manifest.seconds > 0
    assert sum(rows for _, rows in again.snapshot.manifest.segments) == len(inputs.store)


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

    def killed(at, total):
        done.append(at)
        if at > 4:
            raise Killed

    with pytest.raises(Killed):
        add_difference(open_generation(run, now), run, now, killed)
    assert len(missing_rows(open_generation(run, now), now)) == 6, "nothing counts before all is there"
    done.clear()
    extended, embedded = add_difference(open_generation(run, now), run, now, lambda at, total: done.append(at))
    assert embedded == 6 and min(done) > 4 and extended.snapshot.manifest.revision == 1
    np.testing.assert_allclose(extended.snapshot.vectors, refresh_index(model, now, run, step=1).snapshot.vectors, atol=1e-6)
    assert extended.number == generation.number and not list(run.index.glob("*.building"))


def test_the_refresher_answers_the_newest_request_only(run):
    inputs, model = opened(run)
    first, second = request_index(model, run, 10), request_index(model, run, 20)
    assert not (run.params / f"{first:06d}").exists(), "skipped, not queued"
    ticks = []
    Refresher(run, inputs, EmbedOptions()).serve(lambda: len(ticks) > 1, sleep=lambda _: ticks.append(requested(run)))
    found = open_generation(run, inputs)
    assert found.number == second and found.step == 20 and ticks == [None, None]
    status = read_status(run.index)
    assert status is not None and status.beat > 0


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
    assert refresh_index(model, inputs, run, step=3).number > asked
    assert not list(run.index.glob("*.building"))


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
    assert open_generation(run, inputs).number == older
    assert (run.index / f"{newer:06d}.quarantined").is_dir()
