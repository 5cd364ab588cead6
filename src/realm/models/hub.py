"""The Hugging Face hub: fetch a model's directory, upload one, and the model card."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from realm.errors import RunError
from realm.storage.files import read_json

PATIENCE = 4.0
"""Seconds that the hub has to answer at all."""
WANTED = ("*.json", "*.txt", "*.safetensors", "*.bin")
"""What is fetched: no code, and not the published records, which only an import reads."""


def download(name: str, *, revision: str | None = None, token: str | bool | None = None) -> Path:
    """The local copy of a hub repository, from the cache where it is there.

    A hub that does not answer within ``PATIENCE`` seconds is not asked: its own client would try again for half a minute.

    Raises:
        RunError: no such repository, or the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        wanted, here = list(WANTED), not _answers()
        return Path(snapshot_download(name, revision=revision, token=token, allow_patterns=wanted, local_files_only=here))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise RunError(f"no model at '{name}'", cure="Name a directory that save_pretrained wrote, or a hub name while online.") from error


def _answers() -> bool:
    """Whether the hub answers in time, whatever it says. In a thread, since a lookup of its name heeds no time limit."""
    from huggingface_hub import constants, get_session

    said: list[Any] = []

    def ask() -> None:
        with suppress(Exception):  # whatever the client raises, of whichever library it is made: there was no answer
            said.append(get_session().head(constants.ENDPOINT, timeout=PATIENCE))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return bool(said)


def cached(name: str, *, revision: str | None = None) -> Path | None:
    """The copy of a hub repository in the cache of this machine, without asking the hub; None where it has no weights there."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "model.safetensors", revision=revision)
    return Path(found).parent if isinstance(found, str) else None


def upload(
    directory: Path, repository: str, *, private: bool | None, revision: str | None, token: str | bool | None, commit_message: str
) -> str:
    """Upload a directory as one commit; the repository is made if it is not there. Returns the commit's address.

    Raises:
        RunError: the hub refuses or cannot be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi(token=token)
    try:
        repo_id = api.create_repo(repository, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        return str(api.upload_folder(repo_id=repo_id, folder_path=directory, revision=revision, commit_message=commit_message))
    except (HFValidationError, HfHubHTTPError, OSError) as error:
        problem = (
            f"'{repository}' could not be written: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
        )
        raise RunError(problem, cure="Log in with: hf auth login, and name a repository that you may write to.") from error


def is_own(directory: Path) -> bool:
    """Whether a directory is to be read as this package's own: not if its ``config.json`` names a family of transformers."""
    values = read_json(directory / "config.json")
    return not isinstance(values, dict) or values.get("library") == "realm" or "model_type" not in values


def model_card(parts: dict[str, int], facts: dict[str, Any], *, load: str) -> str:
    """The README of a model's directory: the hub's front matter, what it is, how to load it, and facts of its run.

    Args:
        parts: parameters of each network.
        facts: name -> value.
        load: Markdown that says how to load it.
    """
    names = ", ".join(f"{name} ({count:,} parameters)" for name, count in parts.items())
    rows = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    task = "question-answering" if "reader" in parts else "fill-mask" if set(parts) == {"encoder"} else "feature-extraction"
    return f"""---
library_name: realm
pipeline_tag: {task}
tags: [realm, retrieval, question-answering]
---
# A REALM model

Parts: {names}.

{load}

{rows}
"""
