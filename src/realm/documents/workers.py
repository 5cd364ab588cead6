"""One function applied to many items, in order, by this process or by several that all steps of a build share.

Processes are started afresh (``spawn``): a fork would copy the locks of threads that torch, pyarrow or the tokenizer hold. A script that
calls this at its top level therefore needs the usual ``if __name__ == "__main__":``."""

import gc
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from itertools import chain, islice
from multiprocessing import connection, get_context, parent_process
from typing import Any, TypeVar

from realm.errors import ConfigError, Interrupted
from realm.storage.processes import safely, usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

# So few items are done here: starting processes takes about as long as they do (an item is about a million characters).
FEW = 3


def in_portions(items: Iterable[Item], size: Callable[[Item], int], full: int, most: int | None = None) -> Iterator[list[Item]]:
    """Lists of items in order, each of a total ``size`` that reaches ``full``, or of ``most`` items; the last of what is left."""
    portion: list[Item] = []
    total = 0
    for item in items:
        portion.append(item)
        total += size(item)
        if total >= full or len(portion) == most:
            yield portion
            portion, total = [], 0
    if portion:
        yield portion


def started(count: int | None) -> "Workers":
    """``count`` processes; None means as many as cores may be used. Raises ConfigError: ``count`` is below 1."""
    if count is not None and count < 1:
        raise ConfigError(f"workers = {count} is below 1")
    return Workers(usable_cores() if count is None else count)


class Workers:
    """Processes that start when needed and stay until the end; one does all here. A context manager; without ``with``, ``close`` it."""

    def __init__(self, count: int):
        self.count = count
        self._pool: ProcessPoolExecutor | None = None
        self._stop: Any = None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None and self._stop is not None:
            self._stop.set()  # nobody waits for their results any more, and one may take minutes
        self.close()

    def close(self) -> None:
        """End the processes; what waits for them is not done any more."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def in_order(
        self,
        items: Iterable[Item],
        here: Callable[[Item], Result],
        elsewhere: Callable[..., Callable[[Item], Any]],
        arguments: tuple[Hashable, ...],
    ) -> Iterator[tuple[Item, Result]]:
        """Yield (item, result) in the order of ``items``, which are read as they are needed: ``count`` + 2 wait at most, or ``FEW`` + 1.

        ``here`` does an item in this process: all of them if ``count`` is 1 or there are no more than ``FEW``. ``elsewhere``, a module's
        function, is called in every other process with ``arguments``, small plain values, and returns what does an item there. Raises
        Interrupted: a process died."""
        items = iter(items)
        first = list(islice(items, FEW + 1)) if self.count > 1 else []
        if len(first) > FEW:
            yield from self._in_processes(chain(first, items), elsewhere, arguments)
        else:
            for item in chain(first, items):
                yield item, _uncollected(here, item)

    def apart(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Call ``work``, a module's function, in another process and return its result. Raises BrokenProcessPool: the process died."""
        return self._submitted(work, *arguments).result()

    def _submitted(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        with safely():  # the first lock starts a process that counts them; a process that is missing starts, too
            if self._pool is None:
                context = get_context("spawn")
                self._stop = context.Event()
                self._pool = ProcessPoolExecutor(self.count, mp_context=context, initializer=_start, initargs=(self._stop,))
            return self._pool.submit(work, *arguments)

    def _in_processes(
        self, items: Iterator[Item], elsewhere: Callable[..., Any], arguments: tuple[Hashable, ...]
    ) -> Iterator[tuple[Item, Any]]:
        pending: deque[tuple[Item, Future[Any]]] = deque()
        try:
            for item in items:
                pending.append((item, self._submitted(_do, elsewhere, arguments, item)))
                if len(pending) >= self.count + 2:
                    yield _waited(*pending.popleft())
            while pending:
                yield _waited(*pending.popleft())
        except BrokenProcessPool as error:
            self._stop = None  # nobody hears it any more, and it would wait to be heard
            cure = "If memory ran out, take fewer --workers; run the same command again"
            raise Interrupted("a worker process died", cure=cure) from error
        finally:
            for _, future in pending:
                future.cancel()


def _waited(item: Item, future: Future[Any]) -> tuple[Item, Any]:
    return item, future.result()


def _start(stop: Any) -> None:
    """Make a new process ready. Ctrl-C is the parent's to answer; a process whose parent has died, or does not wait any more, ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    threading.Thread(target=_end_with_parent, daemon=True).start()
    threading.Thread(target=_end_when_told, args=(stop,), daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _end_when_told(stop: Any) -> None:
    stop.wait()
    os._exit(1)


def _do(elsewhere: Callable[..., Any], arguments: tuple[Hashable, ...], item: Any) -> Any:
    return _uncollected(_made(elsewhere, arguments), item)


@lru_cache(maxsize=2)  # a step, and the reader of sources that feeds it
def _made(elsewhere: Callable[..., Any], arguments: tuple[Hashable, ...]) -> Callable[[Any], Any]:
    return elsewhere(*arguments)


def _uncollected(work: Callable[[Item], Result], item: Item) -> Result:
    """``work(item)`` without the cycle collector, which would look through hundreds of thousands of lists again and again (a third of
    the time) and find nothing: reference counts free them."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return work(item)
    finally:
        if collecting:
            gc.enable()
