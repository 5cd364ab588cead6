"""Tests in processes of their own."""

import os
import traceback


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
