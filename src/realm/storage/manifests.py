"""JSON that says which files belong together, and what their bytes must be. What the entries mean, its owner knows.

Directories that are published whole have a list of their files, ``checksums.json``, with the bytes and the checksum of every one, and over
itself. A directory without one, such as a network from elsewhere, passes unchecked."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realm.errors import RealmError
from realm.storage.files import STAGING_SUFFIX, file_sum, json_value, sha256_file, write_json

CHECKSUM = "manifest_sha256"
"""Of a SHA-256 in hexadecimal."""
ITEMS = "items"
"""Under which a list stands in a note."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Errors:
    """Errors that the owner of a file raises for it, so that they name the corpus, index or run that was opened, called with (problem,
    path=): of one that is missing, cut short or changed since it was published, and of one that the disk would not give, which is no damage
    as far as we know."""

    damaged: Callable[..., RealmError]
    refused: Callable[..., RealmError]

    @classmethod
    def of(cls, kind: type[RealmError], cure: str | None = None, prefix: str = "") -> "Errors":
        """One kind of error with one cure for both; ``prefix`` comes before the problem."""

        def error(problem: object, path: Path) -> RealmError:
            return kind(f"{prefix}{problem}", path=path, cure=cure)

        return cls(error, error)

    def unreadable(self, error: OSError, path: Path) -> RealmError:
        """``refused``, with what the operating system says."""
        return self.refused(f"could not be read: {error.strerror or error}", path=path)


def read_object(path: Path, errors: Errors) -> dict[str, Any]:
    """A JSON object. Raises RealmError: of ``errors``."""
    try:
        value = json_value(path.read_bytes())
    except FileNotFoundError:
        raise errors.damaged("missing", path=path) from None
    except OSError as error:
        raise errors.unreadable(error, path) from error
    except ValueError:
        raise errors.damaged("not valid JSON", path=path) from None
    if not isinstance(value, dict):
        raise errors.damaged("not a JSON object", path=path)
    return value


def write_sealed(path: Path, values: dict[str, Any]) -> None:
    """Publish JSON with a checksum over itself: readers see the old file or this one."""
    write_json(path, sealed(values))


def sealed(values: dict[str, Any]) -> dict[str, Any]:
    """The entries with a checksum over them."""
    return {**values, CHECKSUM: _checksum(values)}


def unsealed(values: dict[str, Any], errors: Errors, path: Path) -> dict[str, Any]:
    """The entries that :func:`sealed` was given, compared with their checksum. Raises RealmError: of ``errors``: an entry changed since."""
    values = dict(values)
    known = values.pop(CHECKSUM, None)
    try:
        differs = known != _checksum(values)
    except (ValueError, RecursionError):  # NaN, or nested as deeply as can just be read: nothing that was sealed
        differs = True
    if differs:
        raise errors.damaged("changed since it was published (checksum differs)", path=path)
    return values


def read_sealed(path: Path, errors: Errors) -> dict[str, Any]:
    """The values of :func:`write_sealed`. Raises RealmError: of ``errors``: damaged, too, if a byte of it changed."""
    return unsealed(read_object(path, errors), errors, path)


def write_note(path: Path, value: dict[str, Any] | list[Any]) -> None:
    """Publish something that is shown, or saves work, and that can be rebuilt: an object or a list, with a checksum over itself."""
    values = json.loads(json.dumps(value if isinstance(value, dict) else {ITEMS: value}))  # the checksum is over what will be read
    write_sealed(path, values)


def read_note(path: Path) -> Any:
    """The value of :func:`write_note`; None where nothing is there. None, too, if it is damaged: a warning says so, and the caller rebuilds
    it."""
    if not path.exists():
        return None
    try:
        values = read_sealed(path, _NOTES)
    except RealmError as error:
        logger.warning("%s: damaged and skipped: %s. Remove it: realm run rebuilds it", path, error.problem)
        return None
    return values[ITEMS] if values.keys() == {ITEMS} else values


_NOTES = Errors.of(RealmError)


def _checksum(values: dict[str, Any]) -> str:
    """SHA-256 of the entries in canonical JSON. The same in all format versions, so that damage is told from another version."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def file_hashes(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of files in a directory, by their names."""
    return {name: sha256_file(directory / name) for name in names}


def changed_files(directory: Path, hashes: Mapping[str, str]) -> list[str]:
    """Those whose bytes are not what ``file_hashes`` said. Raises OSError: one is missing or cannot be read."""
    return [name for name, found in file_hashes(directory, hashes).items() if found != hashes[name]]


SUMS = "checksums.json"
FORMAT = 1


def seal(directory: Path) -> None:
    """List the files of a directory, which is finished but for this. Of what a later version of this package adds nothing is known here."""
    files = {name: {"bytes": (directory / name).stat().st_size, "xxh3": file_sum(directory / name)} for name in _names(directory)}
    write_sealed(directory / SUMS, {"format": FORMAT, "files": files})


def _names(directory: Path) -> list[str]:
    found = (path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())
    return sorted(name for name in found if name != SUMS and not name.endswith(STAGING_SUFFIX))


def is_sealed(directory: Path) -> bool:
    return (directory / SUMS).exists()


def check_sealed(directory: Path, errors: Errors, *names: str) -> None:
    """Compare files with the list of their directory, if it has one: all, or those of ``names`` and below folders of ``names``.

    Raises RealmError: of ``errors``: the list or a file is missing, cut short or changed, or cannot be read."""
    if not is_sealed(directory):
        return
    for path, problem in _differences(directory, _chosen(_listed(directory, errors), names)):
        if isinstance(problem, OSError):
            raise errors.unreadable(problem, path) from problem
        raise errors.damaged(problem, path=path)


def sealed_problems(directory: Path, errors: Errors) -> list[tuple[Path, str]]:
    """Problems of the files of a directory, all of them read. Raises RealmError: of ``errors``: the list itself is damaged."""
    found = _differences(directory, _listed(directory, errors))
    return [(path, f"could not be read: {problem.strerror}" if isinstance(problem, OSError) else problem) for path, problem in found]


def _listed(directory: Path, errors: Errors) -> dict[str, dict[str, Any]]:
    """File -> bytes and checksum."""
    value = read_sealed(directory / SUMS, errors)
    if value.get("format") != FORMAT:
        raise errors.damaged(f"checksums of format {value.get('format')}, this version reads {FORMAT}", path=directory / SUMS)
    files: dict[str, dict[str, Any]] = value["files"]
    return files


def _chosen(listed: dict[str, dict[str, Any]], names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    if not names:
        return listed
    return {name: facts for name, facts in listed.items() if any(name == wanted or name.startswith(f"{wanted}/") for wanted in names)}


def _differences(directory: Path, listed: dict[str, dict[str, Any]]) -> Iterator[tuple[Path, str | OSError]]:
    for name, facts in listed.items():
        path = directory / name
        try:
            if path.stat().st_size != facts["bytes"]:
                yield path, f"{path.stat().st_size} bytes, published with {facts['bytes']}"
            elif file_sum(path) != facts["xxh3"]:
                yield path, "changed since it was published (checksum differs)"
        except FileNotFoundError:
            yield path, "missing"
        except OSError as error:
            yield path, error
