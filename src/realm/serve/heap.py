"""Memory that is free inside the process, given back to the system."""

import contextlib
import ctypes


def give_back() -> None:
    """Let the C library return the pages that hold nothing: a millisecond or two. Where it cannot, nothing happens.

    Each change of what is served makes large pieces of memory and frees others, in whichever thread the change came, and glibc keeps what
    is free for that thread: without this the process of a server grows for hours, though what it holds does not.
    """
    with contextlib.suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
