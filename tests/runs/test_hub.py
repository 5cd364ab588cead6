"""Models handed on through the hub, and values that were published with the models."""

import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from small_corpus import best_span

from realm import Realm, RealmModel
from realm.errors import RunError
from realm.models import losses
from realm.models.featurize import Featurizer
from realm.models.hub import upload
from realm.models.model import state_sha256
from realm.models.published.models import load_published
from realm.models.types import Sequence
from realm.runs.exchange import import_published


def test_the_hub(publish, tmp_path, monkeypatch):
    """Names, revisions and tokens go to the hub's own functions; the card has the hub's front matter."""
    import huggingface_hub

    asked, hub = [], tmp_path / "hub"

    class FakeApi:
        def __init__(self, token=None):
            asked.append(("token", token))

        def create_repo(self, name, *, private, exist_ok):
            assert exist_ok
            asked.append(("repo", name, private))
            return type("Url", (), {"repo_id": f"me/{name}"})

        def create_branch(self, name, *, branch, exist_ok):
            asked.append(("branch", name, branch))

        def upload_folder(self, *, repo_id, folder_path, revision, commit_message):
            Path(folder_path).rename(hub)
            Path(folder_path).mkdir()
            return f"https://hub/{repo_id}/{revision}"

    def snapshot(name, *, revision, token, allow_patterns, local_files_only):
        asked.append(("download", name, revision, token))
        assert not any(pattern.endswith((".py", ".npy")) for pattern in allow_patterns)
        return str(hub if name == "me/realm" else publish("scorer"))

    monkeypatch.setattr(huggingface_hub, "HfApi", FakeApi)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    published = load_published(publish("openqa"))
    model = RealmModel.from_published(published)
    model.save_pretrained(tmp_path / "model", tokenizer=published.tokenizer, card={})
    named = {"private": True, "revision": "v1", "token": "secret", "commit_message": "A model"}
    address = upload(tmp_path / "model", "realm", **named)
    assert address == "https://hub/me/realm/v1"
    assert asked == [("token", "secret"), ("repo", "realm", True), ("branch", "me/realm", "v1")]
    assert {path.name for path in hub.iterdir()} == {
        "model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "README.md",
    }  # fmt: skip
    front = (hub / "README.md").read_text().split("---")[1]
    assert (
        "library_name: realm" in front and "pipeline_tag: question-answering" in front and "secret" not in (hub / "README.md").read_text()
    )
    again = RealmModel.from_pretrained("me/realm", revision="v1", token="secret")
    assert state_sha256(again) == state_sha256(model) and asked[-1] == ("download", "me/realm", "v1", "secret")
    # A published model of Hugging Face's classes loads by its name as well.
    assert set(RealmModel.from_pretrained("google/realm-scorer").spec.parts) == {"embedder", "document_embedder"}
    monkeypatch.setattr(FakeApi, "create_repo", Mock(side_effect=OSError("no such owner\nand more")))
    with pytest.raises(RunError, match=r"'x/y' could not be written: no such owner\. Log in"):
        upload(tmp_path / "model", "x/y", **named)


SIX, TWELVE = list(range(6)), list(range(6, 12))


def read_published(directory):
    return RealmModel.from_published(load_published(directory))


@pytest.fixture
def checkpoint():
    """checkpoint("realm-...") -> its directory; skips without it."""

    def find(name):
        root = os.environ.get("REALM_CHECKPOINTS")
        if not root:
            pytest.skip("set REALM_CHECKPOINTS to a directory with google's realm-* model directories")
        if not (Path(root) / name / "config.json").is_file():
            pytest.skip(f"$REALM_CHECKPOINTS has no {name}")
        return Path(root) / name

    return find


def plain(*rows):
    return [Sequence(row, [0] * len(row)) for row in rows]


def close(found, expected):
    torch.testing.assert_close(found.detach(), torch.tensor(expected), rtol=0, atol=1e-4)


def test_the_embedder_the_scorer_and_the_encoder(checkpoint):
    found = read_published(checkpoint("realm-cc-news-pretrained-embedder")).embedder(plain(SIX))
    assert found.shape == (1, 128)
    close(found[:, :3], [[-0.0714, -0.0837, -0.1314]])
    model = read_published(checkpoint("realm-cc-news-pretrained-scorer"))
    close(losses.relevance_scores(model.embedder(plain(SIX)), model.documents(plain(SIX, TWELVE)).unsqueeze(0)), [[0.7410, 0.7170]])
    encoder = read_published(checkpoint("realm-cc-news-pretrained-encoder")).encoder
    logits = encoder.logits(encoder.mask_states(plain(SIX, TWELVE), torch.arange(6).expand(2, -1)))
    assert logits.shape == (2, 6, 30522)
    close(logits[1, :2, :2], [[-11.0888, -11.2544], [-10.2170, -10.3874]])


def test_the_reader(checkpoint):
    reader = read_published(checkpoint("realm-orqa-nq-reader")).reader
    reader.max_span = 3
    rows = [Sequence(row, [0, 0, 1, 1, 1]) for row in (list(range(5)), list(range(5, 10)))]
    scores = reader(rows, [2, 2])
    logits = scores.logits + torch.tensor([0.3, 0.7]).view(-1, 1, 1)
    assert best_span(replace(scores, logits=logits)) == (1, 3 - 2, 0)


@pytest.mark.slow  # 13 million blocks are tokenised and indexed first
@pytest.mark.timeout(0)
def test_the_open_qa_model(checkpoint, tmp_path):
    import_published([checkpoint("realm-orqa-nq-openqa")], tmp_path / "run")
    assert Realm.open(tmp_path / "run").ask("Who is the pioneer in modern computer science?").answer.lower() == "alan mathison turing"


def test_the_original_op_s_inputs():
    """ORQA's reader_inputs op: question [0, 1], blocks [2, 3, 4] and [5, 6]."""
    features = Featurizer(cls=10, sep=11, mask=12, pad=0)
    joint = [features.joint([0, 1], body) for body in ([2, 3, 4], [5, 6])]
    assert [row.ids for row in joint] == [[10, 0, 1, 11, 2, 3, 4, 11], [10, 0, 1, 11, 5, 6, 11]]
    body = [range(features.body_start([0, 1]), len(row) - 1) for row in joint]
    assert [list(places) for places in body] == [[4, 5, 6], [4, 5]]
