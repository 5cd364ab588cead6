"""Models handed on: through the hub, and as ONNX graphs."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from realm import RealmModel
from realm.errors import RunError
from realm.models.hub import upload
from realm.models.model import state_sha256
from realm.models.published.models import load_published


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
