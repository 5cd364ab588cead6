"""Directories that are published whole, each with a list of its files: ``checksums.json`` has the bytes and the checksum of every one.

The list has a checksum over itself. A directory without one, such as a network from elsewhere, passes unchecked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from realm.storage.files import STAGING_SUFFIX, file_sum
from realm.storage.manifests import Errors, read_sealed, write_sealed

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
        raise errors.unreadable(problem, path) if isinstance(problem, OSError) else errors.damaged(problem, path=path)


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
