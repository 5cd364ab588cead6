"""Documents come, change and go while questions are answered, large changes in a process of their own; what others change is followed."""

import json
import os
import shutil
import subprocess
import threading
from unittest.mock import Mock

import pytest

from realm.answering.opening import open_run
from realm.documents.change import compaction
from realm.documents.change.updates import add_documents, remove_documents
from realm.documents.store.manifest import current_version
from realm.documents.workers import Workers
from realm.search.publishing.parameters import publishing
from realm.search.publishing.refresher import refresh_index
from realm.serve import documents
from realm.storage import generations
from realm.storage.files import write_json
from realm.storage.layout import RunPaths, stage_facts
from realm.storage.manifests import seal

from .tools import document, served

NOVARIA = document("Novaria/0", "The currency of Novaria is the Belmor crown. Nobody lives there.", "Novaria")


@pytest.fixture
def living(run_copy):
    with served(run_copy) as client:
        yield client


def found(client, text="Novaria", k=12):
    answer = client.post("/v1/search", json={"texts": [text], "k": k})
    assert answer.status_code == 200, answer.text
    return {hit["doc_id"] for hit in answer.json()["results"][0]}


def test_a_document_lives(living, run_copy):
    added = living.post("/v1/documents", json={"documents": [NOVARIA]})
    assert added.json() == {"documents": [{"id": "Novaria/0", "blocks": 1}], "versions": {**added.json()["versions"], "corpus": 2}}
    assert "Novaria/0" in found(living, k=13)
    changed = {**NOVARIA, "text": "Novaria has no money at all."}
    assert living.put("/v1/documents", json={"documents": [changed]}).status_code == 200
    hits = living.post("/v1/search", json={"texts": ["Novaria"], "k": 13}).json()["results"][0]
    assert [hit["text"] for hit in hits if hit["doc_id"] == "Novaria/0"] == [changed["text"]]
    assert living.delete("/v1/documents/Novaria/0").json()["removed"] == ["Novaria/0"]
    assert "Novaria/0" not in found(living) and living.get("/v1/documents/Novaria/0").status_code == 404
    assert not list((run_copy / "uploads").glob("*.jsonl"))  # its text is in the corpus alone


@pytest.mark.parametrize("name", [".", "..", "a/../b", "%2e%2e", "a?b#c&d=e", " a  b "])
def test_any_id_can_be_named(living, name):
    added = living.post("/v1/documents", json={"documents": [{**NOVARIA, "id": name}]}).json()["documents"]
    shown = living.get("/v1/documents", params={"id": name})
    assert shown.json()["id"] == added[0]["id"] and "Belmor crown" in shown.json()["blocks"][0]["text"]
    assert living.post("/v1/documents/remove", json={"ids": [name]}).is_success
    assert living.get("/v1/documents", params={"id": name}).status_code == 404


def test_the_reader_stays_while_documents_change(living, run_copy, monkeypatch):
    """It was loaded with its networks. What lies in the stage later may be another's, so nothing of it is read."""
    monkeypatch.setattr("realm.answering.opening.load_reader", Mock(side_effect=AssertionError("the reader is loaded once more")))
    before = living.serving.current
    assert living.post("/v1/documents", json={"documents": [NOVARIA]}).is_success
    (run_copy / "stages" / "finetune" / "stage.json").rename(run_copy / "away.json")
    assert living.delete("/v1/documents/Novaria/0").is_success
    after = living.serving.current
    assert after is not before and after.answerer.reader is before.answerer.reader
    assert after.answerer.confidence == before.answerer.confidence is not None
    assert living.post("/v1/answer", json={"questions": ["Who?"], "k": 2}).status_code == 200


def test_single_changes_do_not_pile_up(living, monkeypatch):
    """Segments are merged while questions are asked; nothing that was removed comes back, and an open state goes on."""
    monkeypatch.setattr(generations, "MAX_SMALL_FILES", 4)
    monkeypatch.setattr(compaction, "LEAST_REMOVED", 3)
    living.serving._stopped.set()
    living.serving._watcher.join()
    most, tidied = 0, 0
    for number in range(12):
        name = f"new/{number}"
        row = document(name, f"Novaria pays with crown {number}.", "Novaria")
        assert living.post("/v1/documents", json={"documents": [row]}).is_success
        if number % 2:
            assert living.delete(f"/v1/documents/{name}").is_success
        tidied += living.serving.tidy()
        current = living.serving.current
        most = max(most, len(current.inputs.store.segments))
        wanted = {f"new/{n}" for n in range(number + 1) if n % 2 == 0}
        assert {name for name in found(living, "Novaria crown", 12 + len(wanted)) if name.startswith("new/")} == wanted
        assert living.post("/v1/answer", json={"questions": ["Who pays with crown 0?"], "k": 3}).status_code == 200
    assert tidied >= 2 and most <= 5 and current.inputs.store.manifest.removed <= 5


def test_all_or_nothing(living, run_copy):
    known = document("Arvad/0", "Other words for Arvad.")
    for body, status, code in (
        ([NOVARIA, known], 409, "exists"),
        ([NOVARIA, NOVARIA], 409, "twice"),
        ([NOVARIA, document("\u200b\x00", "No id is left.")], 422, "invalid"),
        ([NOVARIA, document("void", "\u200b \x01")], 422, "invalid"),
    ):
        refused = living.post("/v1/documents", json={"documents": body})
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code), refused.text
    assert living.put("/v1/documents", json={"documents": [known, NOVARIA]}).json()["error"]["code"] == "unknown"
    assert living.post("/v1/documents/remove", json={"ids": ["Arvad/0", "nobody"]}).status_code == 404
    everything = [row["id"] for row in living.get("/v1/documents").json()["documents"]]
    assert living.post("/v1/documents/remove", json={"ids": everything}).json()["error"]["code"] == "last"
    assert len(everything) == 12 == living.get("/v1/documents").json()["total"]
    assert open_run(run_copy).versions["corpus"] == 1 and found(living) == set(everything)


def test_questions_go_on_while_documents_come_and_go(living):
    """No request fails, and nothing that was removed before a search began is found by it."""
    removed, failures, stop = set(), [], threading.Event()

    def search():
        while not stop.is_set():
            gone, hits = set(removed), found(living, "What is the currency of Novaria?", 10)
            if hits & gone:
                failures.append(f"{hits & gone} came back")

    readers = [threading.Thread(target=search) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(6):
        name = f"new/{number}"
        assert living.post(
            "/v1/documents", json={"documents": [document(name, f"Novaria pays with crown {number}.", "Novaria")]}
        ).is_success
        assert name in found(living, "Novaria crown", 13)
        assert living.delete(f"/v1/documents/{name}").is_success
        removed.add(name)
    stop.set()
    for reader in readers:
        reader.join()
    assert not failures


def test_what_others_do_is_followed(living, run_copy, tiny_run):
    add_documents(run_copy / "corpus", [tiny_run.parent / "more.jsonl"])
    remove_documents(run_copy / "corpus", ["Arvad/0"])
    assert "Arvad/0" not in found(living, k=11)  # at once
    living.serving.follow()
    assert "Novaria/0" in found(living, k=12)


def test_an_index_that_somebody_else_builds(living, run_copy, monkeypatch):
    """An addition says that it is made and not found yet; it is found when the index is free. Removals do not wait."""
    monkeypatch.setattr("realm.storage.locks.WAIT_SECONDS", 0.2)
    with publishing(run_copy / "index"):
        refused = living.post("/v1/documents", json={"documents": [NOVARIA]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "later") and "retry-after" in refused.headers
        assert living.get("/v1/documents/Novaria/0").status_code == 200 and "Novaria/0" not in found(living)
        assert living.post("/v1/answer", json={"questions": ["Who?"], "k": 2}).status_code == 200
    living.serving.follow()
    assert "Novaria/0" in found(living, k=13)
    with publishing(run_copy / "index"):
        assert living.delete("/v1/documents/Novaria/0").status_code == 200 and "Novaria/0" not in found(living)


@pytest.mark.parametrize("swaps", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_a_new_generation_and_checkpoint_are_taken_up(living, run_copy, swaps):
    """Questions are asked all the time; each is answered, by the old generation and then by the new one."""
    generations, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            answer = living.post("/v1/answer", json={"questions": ["What is the currency of Arvad?"], "k": 3})
            generations.append(answer.json()["versions"]["index"] if answer.status_code == 200 else -1)

    asker = threading.Thread(target=ask)
    asker.start()
    opened, paths = open_run(run_copy), RunPaths(run_copy)
    assert opened.tuned is not None
    numbers = [opened.generation.number]
    for _ in range(swaps):
        fresh = refresh_index(opened.networks.finetuned, opened.inputs, paths, step=9, protect=frozenset(numbers[-2:]))
        numbers.append(fresh.number)
        facts = {**stage_facts(paths, "finetune"), "generation": fresh.number}
        write_json(paths.stage("finetune") / "stage.json", facts)
        seal(paths.stage("finetune"))
        living.serving.follow()
        assert living.post("/v1/search", json={"texts": ["Arvad"], "k": 1}).json()["versions"]["index"] == fresh.number
    stop.set()
    asker.join()
    assert generations == sorted(generations) and set(generations) <= set(numbers) and len(generations) > swaps


def test_a_broken_change_on_disk_leaves_the_old_state(living, run_copy):
    kept = (run_copy / "stages" / "finetune" / "stage.json").read_text()
    shutil.move(run_copy / "stages" / "finetune", run_copy / "away")
    living.serving._watcher.join(1.5)
    assert living.post("/v1/answer", json={"questions": ["Who?"], "k": 2}).status_code == 200
    shutil.move(run_copy / "away", run_copy / "stages" / "finetune")
    (run_copy / "stages" / "finetune" / "stage.json").write_text(json.dumps({**json.loads(kept), "generation": 999}))
    living.serving._watcher.join(1.5)
    assert living.post("/v1/answer", json={"questions": ["Who?"], "k": 2}).status_code == 200
    assert living.get("/readyz").status_code == 200


def test_a_run_without_a_reader_searches(run_copy):
    shutil.rmtree(run_copy / "stages" / "finetune")
    with served(run_copy) as client:
        refused = client.post("/v1/answer", json={"questions": ["Who?"]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_trained")
        assert len(found(client, k=3)) == 3 and client.get("/v1/run").json()["reader"] is False


@pytest.fixture
def all_beside(monkeypatch):
    """Every change counts as large, and nothing in this process may read or embed documents."""

    def here(*_, **__):
        raise AssertionError("done in the server's own process")

    monkeypatch.setattr(documents, "MIN_CHILD_BYTES", 0)
    monkeypatch.setattr(documents, "CHANGES", dict.fromkeys(documents.CHANGES, here))
    monkeypatch.setattr("realm.search.publishing.refresher.embed_parts", here)


def in_thread(call):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    return thread, answers


def test_questions_are_answered_while_documents_are_taken_in(run_copy, all_beside, monkeypatch):
    gate, begun = run_copy / "gate", run_copy / "begun"
    script = f"touch {begun}; until [ -e {gate} ]; do sleep .02; done"
    apart = Workers.apart
    monkeypatch.setattr(Workers, "apart", lambda self, *work: apart(self, subprocess.call, ["sh", "-c", script]) or apart(self, *work))
    with served(run_copy) as client:
        thread, answers = in_thread(lambda: client.post("/v1/documents", json={"documents": [NOVARIA]}))
        while not begun.exists() and thread.is_alive():
            thread.join(0.02)
        asked = client.post("/v1/search", json={"texts": ["Novaria"], "k": 12, "timeout_ms": 60_000})
        assert asked.status_code == 200 and not answers, "the change is still under way"
        assert "Novaria/0" not in {hit["doc_id"] for hit in asked.json()["results"][0]}
        gate.touch()
        thread.join()
        assert answers[0].json()["documents"] == [{"id": "Novaria/0", "blocks": 1}]
        hits = client.post("/v1/search", json={"texts": ["Novaria"], "k": 13}).json()["results"][0]
        assert "Novaria/0" in {hit["doc_id"] for hit in hits}


def test_documents_are_replaced_beside_the_answers_or_refused(run_copy, all_beside):
    changed = document("Arvad/0", "People in Arvad pay with the dollar now.", "Arvad")
    with served(run_copy) as client:
        assert client.put("/v1/documents", json={"documents": [changed]}).status_code == 200
        assert client.get("/v1/documents/Arvad/0").json()["blocks"][0]["text"] == changed["text"]
    before = current_version(RunPaths(run_copy).corpus)
    with served(run_copy) as client:
        again = client.post("/v1/documents", json={"documents": [{**NOVARIA, "id": "new", "text": "\u0001"}]})
        assert again.status_code == 422 and again.json()["error"]["code"] == "invalid", again.text
    assert current_version(RunPaths(run_copy).corpus) == before


def test_a_killed_change_is_told_and_changes_nothing(run_copy, all_beside, monkeypatch):
    apart = Workers.apart
    monkeypatch.setattr(Workers, "apart", lambda self, *_: apart(self, os._exit, 1))
    before = current_version(RunPaths(run_copy).corpus)
    with served(run_copy) as client:
        refused = client.post("/v1/documents", json={"documents": [NOVARIA]})
        assert refused.status_code == 503 and "ended, perhaps out of memory" in refused.json()["error"]["message"]
        assert client.post("/v1/search", json={"texts": ["Novaria"], "k": 12}).status_code == 200
    assert current_version(RunPaths(run_copy).corpus) == before and not list((run_copy / "uploads").glob("*.jsonl"))


def test_small_changes_wait_for_no_process(run_copy, monkeypatch):
    monkeypatch.setattr(documents, "Workers", Mock(side_effect=AssertionError("a process for one small document")))
    with served(run_copy) as client:
        assert client.post("/v1/documents", json={"documents": [NOVARIA]}).status_code == 200
