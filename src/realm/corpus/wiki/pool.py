"""Order-keeping work on chunks in several processes, with a bounded queue, as one iterator."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from typing import TypeVar

from realm.errors import CorpusError

In = TypeVar("In")
Out = TypeVar("Out")

# Chunks that wait per worker: enough that none is idle, few enough that memory stays small.
_AHEAD = 2


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_order(function: Callable[[In], Out], chunks: Iterable[In], workers: int) -> Iterator[Out]:
    """``function`` of each chunk, in order; at most ``workers * 2`` chunks are under way.

    With one worker, or one chunk, everything happens in this process. Processes are started afresh, not forked, for this one may have
    threads; they end with the iterator, and with this process however that ends.

    Raises:
        CorpusError: a worker process died.
    """
    source = iter(chunks)
    head = list(_first(source, 2))
    if workers < 2 or len(head) < 2:
        for chunk in head:
            yield function(chunk)
        for chunk in source:
            yield function(chunk)
        return
    executor = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin_worker)
    waiting: deque[Future[Out]] = deque()
    try:
        waiting.extend(executor.submit(function, chunk) for chunk in head)
        for chunk in source:
            waiting.append(executor.submit(function, chunk))
            if len(waiting) > workers * _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        cure = "Free memory, or build with fewer workers, and start again"
        raise CorpusError("a worker process died, perhaps for lack of memory", cure=cure) from None
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _first(source: Iterator[In], count: int) -> Iterator[In]:
    for _, chunk in zip(range(count), source, strict=False):
        yield chunk


def _begin_worker() -> None:
    """Leave Ctrl-C to the parent, which ends the workers; end when the parent is gone without having done so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
