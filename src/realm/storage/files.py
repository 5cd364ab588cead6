"""Files: text, JSON and TOML read, and files published: write, fsync, rename; errors of the disk, with what is still whole.

A killed process leaves the old file or the new one, never half of one. Whatever is wrong with JSON or TOML is a ValueError, nesting that
Python cannot follow included. Nothing here knows what the files mean."""

import errno
import gzip
import hashlib
import json
import lzma
import os
import shutil
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from xxhash import xxh3_64

from realm.errors import DataError, Interrupted, SnapshotError

if TYPE_CHECKING:
    import numpy as np

TOO_DEEP = "nested too deeply"


def json_value(text: str | bytes) -> Any:
    """The value of JSON. Raises ValueError: it is none, is not UTF-8, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def toml_values(text: str) -> dict[str, Any]:
    """The values of TOML. Raises tomllib.TOMLDecodeError (a ValueError): it is none, or is nested too deeply."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError(TOO_DEEP) from None


@contextmanager
def open_text(path: Path) -> Iterator[Iterator[str]]:
    """Lines of a UTF-8 text file, plain or compressed (.gz, .xz). Raises DataError: the file is missing, unreadable, truncated or not
    UTF-8."""
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        with opener(path, "rt", encoding="utf-8-sig") as file:
            yield file
    except FileNotFoundError:
        raise DataError("no such file", path=path, cure="Check the path.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 ({error.reason})", path=path, cure="Convert it to UTF-8.") from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"cannot be read ({error})", path=path, cure="Check the file and its permissions.") from error


def json_lines(path: Path, cure: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of each line that is not blank; of a value that is no object, an empty one. Raises DataError: as ``open_text``, or a
    line that is not JSON, with ``cure``."""
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = json_value(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"not JSON ({error})", path=path, line=number, cure=cure) from error
            yield number, value if isinstance(value, dict) else {}


Listener = Callable[[str, Path], None]
listener: Listener | None = None
"""Called with (point, path); set by tests alone."""


def reached(point: str, path: Path) -> None:
    """Say that a write of ``path`` has come to ``point`` (points.toml): tests stop the process or fill the disk there."""
    if listener is not None:
        listener(point, path)


STAGING_SUFFIX = ".staging"


def fsync_file(path: Path) -> None:
    """Make what was written to ``path`` durable."""
    fd = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_directory(path: Path) -> None:
    """Make a rename in ``path`` durable."""
    with suppress(PermissionError):  # Windows opens no directory
        fsync_file(path)


def make_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing, durably: what is published in it later is not lost with its name. Raises
    OSError: it cannot be made, or a file is in its place."""
    if path.is_dir():
        return
    if path.parent != path:
        make_directory(path.parent)
    path.mkdir(exist_ok=True)
    fsync_directory(path.parent)


def fsync_tree(path: Path) -> None:
    """Make every file and directory below ``path`` durable."""
    for directory, _, names in os.walk(path):
        for name in names:
            fsync_file(Path(directory, name))
        fsync_directory(Path(directory))


@contextmanager
def publish_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that replaces ``path`` in one step when the block ends without an error, which leaves nothing behind. Readers see the
    old bytes or the new ones."""
    make_directory(path.parent)
    staging = path.with_name(f"{path.name}{STAGING_SUFFIX}")
    try:
        with open(staging, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        reached("file: staged", path)
        os.replace(staging, path)
    except BaseException:  # Ctrl-C is one
        staging.unlink(missing_ok=True)
        raise
    reached("file: renamed", path)
    fsync_directory(path.parent)


def write_atomic(path: Path, data: bytes | str) -> None:
    """Replace ``path`` by ``data`` in one step."""
    with publish_file(path) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


def write_json(path: Path, value: Any) -> None:
    """Publish ``value`` as JSON. NaN and infinity are refused, as other readers do."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """A JSON file's value; None where there is none or a damaged one. Raises OSError: descriptors or memory ran out."""
    try:
        return json_value(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if is_transient(error):
            raise
        return None


@contextmanager
def publish_directory(final: Path) -> Iterator[Path]:
    """Yield a staging directory that becomes ``final`` when the block ends without an error; after one (or Ctrl-C) nothing is left. Raises
    FileExistsError: ``final`` exists; generations and checkpoints are never rewritten."""
    if final.exists():
        raise FileExistsError(final)
    make_directory(final.parent)
    staging = final.with_name(f"{final.name}{STAGING_SUFFIX}")
    _remove(staging)
    try:
        staging.mkdir()
        yield staging
        rename_durably(staging, final)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def rename_durably(staging: Path, final: Path) -> None:
    """Publish a finished directory under its name: sync all that is in it, rename it, sync the rename."""
    reached("directory: staged", final)
    fsync_tree(staging)
    reached("directory: synced", final)
    os.rename(staging, final)
    reached("directory: renamed", final)
    fsync_directory(final.parent)


def remove_staging(directory: Path) -> None:
    """Delete what a killed process left half-written directly below ``directory``; another process may be at the same."""
    for path in directory.glob(f"*{STAGING_SUFFIX}"):
        _remove(path)


def _remove(path: Path) -> None:
    while os.path.lexists(path):
        with suppress(FileNotFoundError):  # each of two that remove it may find a file gone before the other has ended
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def bytes_below(directory: Path) -> int:
    """Bytes of all files in a directory and those below it."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def sha256_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_sha256(paths: Iterable[str | Path]) -> str:
    """Tells any number of files by their bytes, in their order."""
    return " ".join(sha256_file(Path(path)) for path in paths)


CHUNK = 1 << 20


def bytes_sum(*parts: Any) -> str:
    """The checksum of objects with a buffer, one after the other."""
    found = xxh3_64()
    for part in parts:
        found.update(part)
    return found.hexdigest()


def array_sum(array: "np.ndarray") -> str:
    """The checksum of an array's numbers in C order. With type and shape known, it stands for the whole ``.npy`` file."""
    import numpy as np

    return bytes_sum(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def file_sum(path: Path) -> str:
    """The checksum of a file. Raises OSError: it is missing or cannot be read."""
    found, chunk = xxh3_64(), memoryview(bytearray(CHUNK))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(chunk):
            found.update(chunk[:count])
    return found.hexdigest()


DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def is_transient(error: BaseException) -> bool:
    """Return whether a file could not be read for want of descriptors or memory: it may be whole, and must be left alone."""
    found = error if isinstance(error, OSError) else error.__cause__
    return isinstance(found, MemoryError) or (isinstance(found, OSError) and found.errno in TRANSIENT)


@contextmanager
def full_disk_ends_cleanly(path: Path) -> Iterator[None]:
    """Turn the operating system's error into ours, around work that can be continued. Raises Interrupted: there is no room left."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise Interrupted("the disk is full", path=path, cure="Make room and run the same command again; nothing was published") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into a SnapshotError that names the generation ``path``; what was published before is intact."""
    try:
        yield
    except FileExistsError:
        raise SnapshotError("this generation exists and is never rewritten", path=path, cure="Publish it under the next number") from None
    except OSError as error:
        cure = "Free space or make the directory writable; everything published before is intact"
        raise SnapshotError(f"could not be written: {error.strerror or error}", path=path, cure=cure) from error
