"""What a stretch of work takes of memory beyond what was resident before it. Needs nothing but Linux's /proc; elsewhere it says None."""

import contextlib
import ctypes
from pathlib import Path


def _status(name: str) -> int | None:
    """One line of /proc/self/status in MiB."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith(f"{name}:")), None)


class Extra:
    """``Extra()`` at the start of the work, ``mib()`` at its end."""

    def __init__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # what earlier work freed and glibc kept would be used again unseen
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the kernel forgets the peak so far
        self.before = _status("VmRSS")

    def mib(self) -> int | None:
        peak = _status("VmHWM")
        return None if peak is None or self.before is None else peak - self.before
