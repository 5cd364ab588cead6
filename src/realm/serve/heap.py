"""Memory that is free inside the process, given back to the system."""

import ctypes
import functools
from collections.abc import Callable


def give_back() -> None:
    """Let the C library return the pages that hold nothing: a millisecond or two. Where it cannot, nothing happens.

    Each change of what is served makes large pieces of memory and frees others, in whichever thread the change came, and glibc keeps what
    is free for that thread: without this the process of a server grows for hours, though what it holds does not.
    """
    if (trim := _trim()) is not None:
        trim(0)


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """glibc's ``malloc_trim``; None with other C libraries."""
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    trim: Callable[[int], int] = found
    return trim
