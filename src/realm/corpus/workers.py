"""One function applied to many items, in order, by this process or by several.

Processes are started afresh (``spawn``): a fork would copy the locks of threads that torch, pyarrow or the tokenizer hold. A script that
calls this at its top level therefore needs the usual ``if __name__ == "__main__":``.
"""

import gc
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing import connection, get_context, parent_process
from typing import Any, TypeVar

from realm.errors import CorpusError

Item = TypeVar("Item")
Result = TypeVar("Result")

# So few items are done here: starting processes takes about as long as they do (an item is about a million characters).
FEW = 3


class Interrupted(CorpusError):
    """Work that stopped for a reason outside the documents; what is staged can be taken up again."""


def usable_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    items: Iterable[Item],
    here: Callable[[Item], Result],
    elsewhere: Callable[..., Callable[[Item], Result]],
    arguments: tuple[Any, ...],
    workers: int,
) -> Generator[tuple[Item, Result], None, None]:
    """Yield (item, result) in the order of ``items``. Close the generator to stop the processes (``contextlib.closing``).

    At most ``workers`` + 2 items are held (and never fewer than ``FEW`` + 1 read): those at work, and those that wait for their turn.

    Args:
        items: read as they are needed.
        here: does an item in this process: all of them if ``workers`` is 1 or there are no more than ``FEW``.
        elsewhere: called once in every other process with ``arguments``; returns what does an item there. A module's function.
        arguments: plain values.
        workers: processes.

    Raises:
        Interrupted: a process died.
    """
    items = iter(items)
    first = list(islice(items, FEW + 1)) if workers > 1 else []
    if len(first) > FEW:
        yield from _in_processes(chain(first, items), elsewhere, arguments, workers)
    else:
        for item in chain(first, items):
            yield item, _uncollected(here, item)


def _in_processes(
    items: Iterator[Item], elsewhere: Callable[..., Any], arguments: tuple[Any, ...], workers: int
) -> Iterator[tuple[Item, Any]]:
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start, initargs=(elsewhere, arguments))
    pending: deque[tuple[Item, Future[Any]]] = deque()
    try:
        for item in items:
            pending.append((item, pool.submit(_do, item)))
            if len(pending) >= workers + 2:
                done, future = pending.popleft()
                yield done, future.result()
        while pending:
            done, future = pending.popleft()
            yield done, future.result()
    except BrokenProcessPool as error:
        cure = "If memory ran out, take fewer --workers; the same command goes on where this one stopped"
        raise Interrupted("a worker process died", cure=cure) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_work: Callable[[Any], Any]


def _start(elsewhere: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Make a new process ready. Ctrl-C is the parent's to answer; a process whose parent has died ends."""
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work = elsewhere(*arguments)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _do(item: Any) -> Any:
    return _uncollected(_work, item)


def _uncollected(work: Callable[[Item], Result], item: Item) -> Result:
    """``work(item)`` without the cycle collector, which would look through hundreds of thousands of lists again and again (a third of
    the time) and find nothing: reference counts free them.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return work(item)
    finally:
        if collecting:
            gc.enable()
