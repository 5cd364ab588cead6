"""Large changes of documents are made in a process of their own: the server answers meanwhile, and neither reads nor embeds them."""

import os
import subprocess
import threading
from unittest.mock import Mock

import pytest

from realm.documents.store.manifest import current_version
from realm.documents.workers import Workers
from realm.serve import beside
from realm.storage.paths import RunPaths

from .tools import document, served

NOVARIA = document("Novaria/0", "The currency of Novaria is the Belmor crown. Nobody lives there.", "Novaria")


@pytest.fixture
def all_beside(monkeypatch):
    """Every change counts as large, and nothing in this process may read or embed documents."""

    def here(*_, **__):
        raise AssertionError("done in the server's own process")

    monkeypatch.setattr(beside, "MIN_CHILD_BYTES", 0)
    monkeypatch.setattr(beside, "CHANGES", dict.fromkeys(beside.CHANGES, here))
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
    monkeypatch.setattr(beside, "Workers", Mock(side_effect=AssertionError("a process for one small document")))
    with served(run_copy) as client:
        assert client.post("/v1/documents", json={"documents": [NOVARIA]}).status_code == 200
