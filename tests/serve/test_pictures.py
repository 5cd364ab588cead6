"""Pictures over HTTP: only what the corpus names, only as it was read, never by a path."""

import shutil

import pytest

from realm.documents.change.updates import add_documents
from realm.serve.guard import Rules

from .tools import document, served

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
def client(run_copy, pictures, monkeypatch):
    monkeypatch.setattr("realm.documents.pages.pictures.recognised", lambda data, seconds: "")
    add_documents(run_copy / "corpus", [pictures], workers=1)
    with served(run_copy) as found:
        yield found


def block(client, doc_id):
    return client.get("/v1/documents", params={"id": doc_id}).json()["blocks"][0]


def test_a_picture_is_sent_as_it_was_read(client, pictures):
    harbour = block(client, "a harbour.png")
    assert harbour["media"] == str(pictures / "a harbour.png")
    answer = client.get(f"/v1/pictures/{harbour['block_id']}")
    assert answer.status_code == 200 and answer.content == PNG
    assert answer.headers["content-type"] == "image/png" and answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store" and "default-src 'none'" in answer.headers["content-security-policy"]
    (found,) = client.post("/v1/answer", json={"questions": ["What does the harbour of Novaria show?"], "k": 12}).json()["answers"]
    assert {item["media"] for item in found["evidence"]} >= {""} and all("media" in item for item in found["evidence"])
    hits = client.post("/v1/search", json={"texts": ["This shows a harbour of Novaria."], "k": 15}).json()["results"][0]
    assert {hit["media"] for hit in hits} >= {"", str(pictures / "a harbour.png")}


def test_a_picture_that_changed_is_not_sent(client, pictures, tmp_path):
    at = f"/v1/pictures/{block(client, 'a harbour.png')['block_id']}"
    secret = tmp_path / "secret.png"
    secret.write_bytes(PNG + b"secret")
    path = pictures / "a harbour.png"
    for change in (
        lambda: path.write_bytes(PNG + b" "), lambda: (path.unlink(), path.symlink_to(secret)),
        lambda: (path.unlink(), path.symlink_to(path)), lambda: (path.unlink(), path.mkdir()),
        lambda: shutil.rmtree(pictures),
    ):  # fmt: skip
        change()
        answer = client.get(at)
        assert answer.status_code == 404 and answer.json()["error"]["code"] == "gone" and str(tmp_path) not in answer.text


def test_no_request_names_a_file(client, pictures):
    for at in (
        "../../etc/passwd", "..%2f..%2fetc%2fpasswd", str(pictures / "a harbour.png").lstrip("/"), "-1", "1.5", "",
        "99999999999999999999",
    ):  # fmt: skip
        assert client.get(f"/v1/pictures/{at}").status_code in (404, 405, 422), at
    assert client.get("/v1/pictures/123456").json()["error"]["code"] == "unknown"
    castle = client.get(f"/v1/pictures/{block(client, 'the castle.tif')['block_id']}")
    assert castle.status_code == 415 and castle.json()["error"]["code"] == "not_shown"


def test_a_document_added_over_http_names_no_picture(client, pictures):
    given = document("Novaria/9", f"![](file://{pictures}/a harbour.png) Novaria has a harbour.", "Novaria")
    lying = {**given, "media": str(pictures / "a harbour.png"), "media_sum": "0" * 32}
    assert client.post("/v1/documents", json={"documents": [lying]}).status_code == 422
    assert client.post("/v1/documents", json={"documents": [given]}).status_code == 200
    added = block(client, "Novaria/9")
    assert added["media"] == "" and client.get(f"/v1/pictures/{added['block_id']}").status_code == 404
    taken = {
        "id": "a harbour.png",
        "title": "",
        "text": "A text of its own, and no picture.",
    }  # the document that was a picture is a text now
    assert client.put("/v1/documents", json={"documents": [taken]}).status_code == 200
    assert client.get(f"/v1/pictures/{block(client, 'a harbour.png')['block_id']}").status_code == 404


def test_pictures_take_the_token(run_copy):
    with served(run_copy, Rules(token="a-token-of-enough-letters")) as client:
        assert client.get("/v1/pictures/0").status_code == 401
        assert client.get("/v1/pictures/0", headers={"authorization": "Bearer a-token-of-enough-letters"}).status_code == 404
