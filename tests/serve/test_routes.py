"""Every endpoint gives what the same question gives without a server, in the shape that the OpenAPI document describes."""

import dataclasses
import shutil
import time
from typing import get_type_hints

import pytest
from pydantic import TypeAdapter

from realm.answering import records
from realm.answering.opening import open_run
from realm.answering.records import AnswerResponse, DocumentResponse, ExplainResponse, ListResponse, RunResponse, SearchResponse
from realm.answering.writing import Endpoint
from realm.documents.change.updates import add_documents, remove_documents

from .tools import document, served

QUESTIONS = ["What is the currency of Arvad?", "What is the currency of Belmor?", "Who lives in Carsin?"]
SENTENCE = "The currency of Arvad is the [MASK]."
RECORDS = [kind for kind in vars(records).values() if dataclasses.is_dataclass(kind) and kind is not records.Explanation]


def test_answers_are_those_of_the_answerer(client, tiny_run):
    found = client.post("/v1/answer", json={"questions": QUESTIONS, "k": 3})
    assert found.status_code == 200
    answers = TypeAdapter(AnswerResponse).validate_python(found.json()).answers
    opened = open_run(tiny_run)
    for got, wanted in zip(answers, opened.answerer.answer(QUESTIONS, k=3), strict=True):
        assert (got.question, got.answer) == (wanted.question, wanted.answer) and got.p == pytest.approx(wanted.p, abs=1e-5)
        assert [e.block_id for e in got.evidence] == [e.block_id for e in wanted.evidence]
        assert [(e.start, e.end, e.answer) for e in got.evidence] == [(e.start, e.end, e.answer) for e in wanted.evidence]
    assert found.json()["versions"] == opened.versions


def test_answers_that_are_not_sure_enough_are_marked(client):
    """The best guess stays, ``abstained`` says that nobody should rely on it; a threshold between two answers parts them."""
    body = {"questions": QUESTIONS, "k": 3}
    sure = [row["confidence"] for row in client.post("/v1/answer", json=body).json()["answers"]]
    assert all(0 < value < 1 for value in sure) and len(set(sure)) > 1
    for below in (0.0, max(sure), 1):
        rows = client.post("/v1/answer", json={**body, "abstain_below": below}).json()["answers"]
        assert [row["abstained"] for row in rows] == [value < below for value in sure] and all(row["answer"] for row in rows)


def test_prose_is_written_where_a_request_says_so(client, tiny_run, tmp_path, monkeypatch):
    body = {"questions": QUESTIONS[:1], "k": 2}
    assert client.get("/v1/run").json()["writes"] == "" and client.post("/v1/answer", json={**body, "write": True}).status_code == 422
    monkeypatch.setattr(Endpoint, "complete", lambda *_: "It is 7 [1].")
    copy = shutil.copytree(tiny_run, tmp_path / "run")
    with served(copy, endpoint=Endpoint("http://a/v1", "small")) as writer:
        assert writer.get("/v1/run").json()["writes"] == "small"
        (told,) = writer.post("/v1/answer", json={**body, "write": True, "abstain_below": 0}).json()["answers"]
        assert told["prose"] == [{"text": "It is 7.", "cites": [1], "supported": False}]
        assert writer.post("/v1/answer", json=body).json()["answers"][0]["prose"] == []
        monkeypatch.setattr(Endpoint, "complete", lambda self, *_: (_ for _ in ()).throw(self._failed("is down")))
        refused = writer.post("/v1/answer", json={**body, "write": True, "abstain_below": 0})
        assert (refused.status_code, refused.json()["error"]["code"]) == (502, "endpoint")
        monkeypatch.setattr(Endpoint, "complete", lambda *_: time.sleep(2) or "It is 7 [1].")
        body |= {"questions": QUESTIONS, "write": True, "abstain_below": 0, "timeout_ms": 1500}
        rows = writer.post("/v1/answer", json=body).json()["answers"]
        assert all(row["answer"] and not row["prose"] and row["note"].startswith("small wrote nothing") for row in rows)


def test_documents_that_are_left_out(client, tiny_run, tmp_path):
    body = {"questions": QUESTIONS, "k": 4}
    everything = client.post("/v1/answer", json=body).json()["answers"]
    out = sorted({answer["evidence"][0]["doc_id"] for answer in everything} | {"Arvad/0"})
    copy = shutil.copytree(tiny_run, tmp_path / "run")
    remove_documents(copy / "corpus", out)
    rows = client.post("/v1/answer", json={**body, "exclude_documents": out}).json()["answers"]
    for got, wanted in zip(rows, open_run(copy).answerer.answer(QUESTIONS, k=4), strict=True):
        assert got["answer"] == wanted.answer and got["p"] == pytest.approx(wanted.p, abs=1e-5)
        assert [e["block_id"] for e in got["evidence"]] == [e.block_id for e in wanted.evidence]
    names = [row["id"] for row in client.get("/v1/documents").json()["documents"]]
    few = client.post("/v1/answer", json={**body, "exclude_documents": names[2:]}).json()["answers"][0]
    assert {e["doc_id"] for e in few["evidence"]} == set(names[:2])
    for wrong, word in ((["nobody"], "no document 'nobody'"), (names, "every document is left out"), (["x"] * 65, "exclude_documents")):
        refused = client.post("/v1/answer", json={**body, "k": 2, "exclude_documents": wrong})
        assert refused.status_code == 422 and word in refused.json()["error"]["message"]


def test_the_records_are_the_documents(client):
    """The OpenAPI document describes each record, field for field and kind for kind; an explanation with its versions."""
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    plain = {str: "string", int: "integer", float: "number", bool: "boolean", float | None: ["number", "null"]}
    for record in RECORDS:
        hints, described = get_type_hints(record), schemas[record.__name__]["properties"]
        assert set(hints) == set(described), record
        for field, hint in hints.items():
            kinds = [part.get("type") for part in described[field].get("anyOf", [described[field]])]
            assert hint not in plain or kinds == ([plain[hint]] if isinstance(plain[hint], str) else plain[hint]), (record, field)


def test_search_and_explain(client, tiny_run):
    found = TypeAdapter(SearchResponse).validate_python(client.post("/v1/search", json={"texts": QUESTIONS, "k": 4}).json())
    opened = open_run(tiny_run)
    every = client.post("/v1/search", json={"texts": QUESTIONS, "k": 100}).json()["results"]
    assert all(len(hits) == 12 for hits in every), "a k above the number of blocks is all of them"
    for hits, text in zip(found.results, QUESTIONS, strict=True):
        wanted = opened.search(text, 4)
        assert [hit.block_id for hit in hits] == [hit.block_id for hit in wanted]
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in wanted], abs=1e-4)
    body = {"text": SENTENCE, "targets": ["Tirel"], "k": 4, "exclude_documents": ["Belmor/0"]}
    found = client.post("/v1/explain", json=body).json()
    TypeAdapter(ExplainResponse).validate_python(found)
    wanted = opened.explain(SENTENCE, targets=["Tirel"], k=4, exclude_documents=["Belmor/0"]).to_dict()
    assert found.pop("versions") == opened.versions
    assert found["p_y"] == pytest.approx(wanted["p_y"]) and found["excluded"] == wanted["excluded"]
    assert [c["block_id"] for c in found["candidates"]] == [c["block_id"] for c in wanted["candidates"]]


def test_state(client):
    assert client.get("/healthz").json() == {"status": "ok"} and client.get("/readyz").json() == {"status": "ready"}
    run = TypeAdapter(RunResponse).validate_python(client.get("/v1/run").json())
    assert run.reader and not run.without_questions and run.corpus == {"documents": 12, "blocks": 12, "unsearchable": 0}
    assert len(run.examples) == 6 and all(example.question and example.correct is not None for example in run.examples)


def test_documents_are_listed_and_shown(client):
    first = TypeAdapter(ListResponse).validate_python(client.get("/v1/documents", params={"limit": 5}).json())
    assert (first.total, first.next, len(first.documents)) == (12, 5, 5)
    last = client.get("/v1/documents", params={"start": 10, "limit": 5}).json()
    assert last["next"] is None and len(last["documents"]) == 2
    shown = TypeAdapter(DocumentResponse).validate_python(client.get("/v1/documents/Arvad/0").json())
    assert shown.title == "Arvad" and shown.blocks[0].start == 0 and "Tirel" in shown.blocks[0].text
    assert client.get("/v1/documents/Arvad%2F0").json() == client.get("/v1/documents/Arvad/0").json()
    assert client.get("/v1/documents", params={"id": "Arvad/0"}).json() == client.get("/v1/documents/Arvad/0").json()
    assert client.get("/v1/documents/nobody").status_code == 404 == client.get("/v1/documents?id=nobody").status_code
    assert client.get("/v1/documents?id=").status_code == 422


def test_openapi_names_every_endpoint(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        "/v1/answer", "/v1/search", "/v1/explain", "/v1/documents", "/v1/documents/remove",
        "/v1/documents/{doc_id}", "/v1/pictures/{block_id}", "/v1/run", "/healthz", "/readyz",
    }  # fmt: skip
    assert set(paths["/v1/documents"]) == {"get", "post", "put"} and set(paths["/v1/documents/{doc_id}"]) == {"get", "delete"}


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c636000000002000148afa4710000000049454e44ae426082"
)


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name in ("a harbour.png", "the castle.tif", "old bridge.png"):
        (folder / name).write_bytes(PNG if name.endswith("png") else b"II*\0" + bytes(64))
        (folder / f"{name}.txt").write_text(f"This shows {name.partition('.')[0]} of Novaria.")
    return folder


@pytest.fixture
def gallery(run_copy, pictures, monkeypatch):
    monkeypatch.setattr("realm.documents.pages.pictures.recognised", lambda data, seconds: "")
    add_documents(run_copy / "corpus", [pictures], workers=1)
    with served(run_copy) as found:
        yield found


def block(gallery, doc_id):
    return gallery.get("/v1/documents", params={"id": doc_id}).json()["blocks"][0]


def test_a_picture_is_sent_as_it_was_read(gallery, pictures):
    harbour = block(gallery, "a harbour.png")
    assert harbour["media"] == str(pictures / "a harbour.png")
    answer = gallery.get(f"/v1/pictures/{harbour['block_id']}")
    assert answer.status_code == 200 and answer.content == PNG
    assert answer.headers["content-type"] == "image/png" and answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store" and "default-src 'none'" in answer.headers["content-security-policy"]
    (found,) = gallery.post("/v1/answer", json={"questions": ["What does the harbour of Novaria show?"], "k": 12}).json()["answers"]
    assert {item["media"] for item in found["evidence"]} >= {""} and all("media" in item for item in found["evidence"])
    hits = gallery.post("/v1/search", json={"texts": ["This shows a harbour of Novaria."], "k": 15}).json()["results"][0]
    assert {hit["media"] for hit in hits} >= {"", str(pictures / "a harbour.png")}


def test_a_picture_that_changed_is_not_sent(gallery, pictures, tmp_path):
    at = f"/v1/pictures/{block(gallery, 'a harbour.png')['block_id']}"
    secret = tmp_path / "secret.png"
    secret.write_bytes(PNG + b"secret")
    path = pictures / "a harbour.png"
    for change in (
        lambda: path.write_bytes(PNG + b" "), lambda: (path.unlink(), path.symlink_to(secret)),
        lambda: (path.unlink(), path.symlink_to(path)), lambda: (path.unlink(), path.mkdir()),
        lambda: shutil.rmtree(pictures),
    ):  # fmt: skip
        change()
        answer = gallery.get(at)
        assert answer.status_code == 404 and answer.json()["error"]["code"] == "gone" and str(tmp_path) not in answer.text


def test_no_request_names_a_file(gallery, pictures):
    for at in (
        "../../etc/passwd", "..%2f..%2fetc%2fpasswd", str(pictures / "a harbour.png").lstrip("/"), "-1", "1.5", "",
        "99999999999999999999",
    ):  # fmt: skip
        assert gallery.get(f"/v1/pictures/{at}").status_code in (404, 405, 422), at
    assert gallery.get("/v1/pictures/123456").json()["error"]["code"] == "unknown"
    castle = gallery.get(f"/v1/pictures/{block(gallery, 'the castle.tif')['block_id']}")
    assert castle.status_code == 415 and castle.json()["error"]["code"] == "not_shown"


def test_a_document_added_over_http_names_no_picture(gallery, pictures):
    given = document("Novaria/9", f"![](file://{pictures}/a harbour.png) Novaria has a harbour.", "Novaria")
    lying = {**given, "media": str(pictures / "a harbour.png"), "media_sum": "0" * 32}
    assert gallery.post("/v1/documents", json={"documents": [lying]}).status_code == 422
    assert gallery.post("/v1/documents", json={"documents": [given]}).status_code == 200
    added = block(gallery, "Novaria/9")
    assert added["media"] == "" and gallery.get(f"/v1/pictures/{added['block_id']}").status_code == 404
    taken = document("a harbour.png", "A text of its own, and no picture.")  # the document that was a picture is a text now
    assert gallery.put("/v1/documents", json={"documents": [taken]}).status_code == 200
    assert gallery.get(f"/v1/pictures/{block(gallery, 'a harbour.png')['block_id']}").status_code == 404
