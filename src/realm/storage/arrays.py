"""``.npy`` files: published whole, mapped where they are large, checked when they are read. Never with pickles."""

import io
import math
import threading
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any, Literal

from realm.storage.files import bytes_sum, file_sum, publish_file, sha256_file
from realm.storage.manifests import Errors, read_note, write_note

if TYPE_CHECKING:
    import numpy as np

MIN_MAPPED_BYTES = 1 << 20
"""Smallest file in bytes that is memory-mapped. Each holds a file descriptor, of which a process has a thousand or so: what grew by single
documents has more files than that, and they are small."""

_PARSING = threading.Lock()


def load_array(path: Path, mmap_mode: Literal["r", "c"] | None = None) -> "np.ndarray":
    """``np.load`` of a ``.npy`` file, for any number of threads at a time, never with pickles. numpy reads the header with ``ast``, and
    CPython 3.11 counts the depth of that for all threads together: now and then one of two that load at the same moment ends in a
    SystemError. Raises OSError, ValueError: as np.load does; MemoryError: there is too little for what the file holds."""
    import numpy as np

    with _PARSING:
        try:
            array: np.ndarray = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        except MemoryError as error:
            if _is_whole(path):
                raise
            raise ValueError("it is shorter than its header says") from error
        except (TokenError, SyntaxError, OverflowError, TypeError) as error:
            raise ValueError(f"its header cannot be read: {error}") from error  # a damaged one is no Python literal, or a huge shape
    return array


def _is_whole(path: Path) -> bool:
    """Return whether a file holds as many bytes as its header says: then it is memory that ran out."""
    import numpy as np

    with open(path, "rb") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            return False
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        return file.tell() + math.prod(shape) * dtype.itemsize <= path.stat().st_size


def worth_mapping(size: int) -> bool:
    return size >= MIN_MAPPED_BYTES


def read_array(
    path: Path,
    shape: "tuple[int | None, ...]",
    dtype: "np.dtype",
    errors: Errors,
    *,
    sha256: str | None = None,
    mode: Literal["r", "c"] = "c",
) -> "np.ndarray":
    """An array that was published: what its manifest says of it must be so.

    In ``shape`` None stands for any number. The file is read for its ``sha256`` if that is given. ``mode`` "c" is copy-on-write: pages are
    shared with other processes, and torch gets an array that it may treat as writable. Raises RealmError, of ``errors``: missing, cut
    short, changed, of another shape or type; or the disk refuses."""
    try:
        if sha256 is not None and sha256_file(path) != sha256:
            raise errors.damaged("changed since it was published (SHA-256 differs)", path=path)
        array = load_array(path, mode if worth_mapping(path.stat().st_size) else None)
    except FileNotFoundError:
        raise errors.damaged("missing", path=path) from None
    except OSError as error:
        raise errors.unreadable(error, path) from error
    except (ValueError, EOFError) as error:
        raise errors.damaged(f"not a complete .npy file ({error})", path=path) from None
    fits = len(shape) == array.ndim and all(wanted in (None, found) for wanted, found in zip(shape, array.shape, strict=True))
    if not fits or array.dtype != dtype:
        wanted = ",".join("n" if size is None else str(size) for size in shape)
        raise errors.damaged(f"holds {array.dtype} {list(array.shape)}, the manifest says {dtype} [{wanted}]", path=path)
    return array


def array_header(dtype: "np.dtype", shape: tuple[int, ...]) -> bytes:
    """The header of a ``.npy`` file, for files that are written part by part."""
    import numpy as np

    head = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, described)
    return head.getvalue()


def write_array(file: IO[bytes], array: "np.ndarray") -> None:
    """Write an array as ``np.save`` does, which says of a full disk only how much was written, without the error's number. Raises OSError:
    with its number, as the operating system gave it."""
    import numpy as np

    array = np.asarray(array, order="C")
    file.write(array_header(array.dtype, array.shape))
    file.write(array.reshape(-1).view(np.uint8).data)


def publish_array(path: Path, array: "np.ndarray") -> str:
    """Write, fsync, rename; an error leaves nothing behind. Returns the SHA-256 of the file."""
    with publish_file(path) as file:
        write_array(file, array)
    return sha256_file(path)


def keep_array(path: Path, array: "np.ndarray", **facts: Any) -> None:
    """Publish an array that saves work and can be rebuilt, after a note beside it: the file's checksum, and ``facts``."""
    import numpy as np

    array = np.asarray(array, order="C")
    written = bytes_sum(array_header(array.dtype, array.shape), array.reshape(-1).view(np.uint8).data)
    write_note(path.with_suffix(".json"), facts | {"xxh3": written})
    with publish_file(path) as file:
        write_array(file, array)


def kept_array(path: Path) -> "tuple[np.ndarray, dict[str, Any]] | None":
    """Array and facts that :func:`keep_array` was given; None where they are not there, or not whole: the caller makes them again."""
    facts = read_note(path.with_suffix(".json"))
    try:
        return (load_array(path), facts) if isinstance(facts, dict) and facts.get("xxh3") == file_sum(path) else None
    except OSError:
        return None
