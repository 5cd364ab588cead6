"""Tests in processes of their own, and what those who watch them wait for."""

import os
import time
import traceback
from pathlib import Path


def forked(work):
    """``work`` in a process of its own, which ends with the code that it returns; 1 where it raises. Its number."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def until(what, seconds=120.0):
    """The first result that counts as true."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)
    return found


def alive(pid):
    """Whether a process is there and not just waiting to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
