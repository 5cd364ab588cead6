"""Questions of several requests in one pass of the model: a bounded queue, one thread that computes, and a class for each kind of question.

No request waits for a batch to fill: while one is computed, the next gathers."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from realm.answering.opening import OpenRun
from realm.serve.shapes import ExplainRequest, Refusal, queue_full

Compute = Callable[[Hashable, list[Any]], list[Any]]
"""From a key and payloads that share it to one result for each."""


@dataclass(frozen=True, eq=False)
class _Job:
    """One payload on its way, and the result that a request waits for."""

    key: Hashable
    payload: Any
    deadline: float
    result: Future[Any] = field(default_factory=Future)


class Batcher:
    """Computes what is submitted, in order, at most ``most`` payloads of one key together; if ``compute`` fails for several, each is
    computed alone. ``waiting`` payloads may wait."""

    def __init__(self, compute: Compute, *, waiting: int, most: int):
        self._compute = compute
        self._waiting = waiting
        self._most = most
        self._jobs: deque[_Job] = deque()
        self._between: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="realm-model", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        return len(self._jobs)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._closed

    async def submit(self, key: Hashable, payloads: Sequence[Any], seconds: float) -> list[Any]:
        """The results of ``payloads``, in order. Raises Refusal: 503 if there is no room for all of them, 504 if they are not done after
        ``seconds``; Exception: whatever ``compute`` raised."""
        deadline = time.monotonic() + seconds
        jobs = [_Job(key, payload, deadline) for payload in payloads]
        with self._changed:
            if self._closed:
                raise Refusal(503, "stopping", "the server is being stopped", retry_after=5)
            if len(self._jobs) + len(jobs) > self._waiting:
                self._jobs = deque(job for job in self._jobs if not job.result.done())  # nobody waits for these any more
            if len(self._jobs) + len(jobs) > self._waiting:
                raise queue_full("questions")
            self._jobs.extend(jobs)
            self._changed.notify()
        try:
            async with asyncio.timeout(seconds):
                return list(await asyncio.gather(*(asyncio.wrap_future(job.result) for job in jobs)))
        except TimeoutError:
            raise Refusal(504, "deadline", "there was no answer in the time that the request gives (timeout_ms)") from None

    def between(self, action: Callable[[], None]) -> None:
        """Do something while no batch is computed, before all that waits. Returns when it is done."""
        done: Future[None] = Future()
        with self._changed:
            if self._closed:
                return
            self._between.append((action, done))
            self._changed.notify()
        done.result()

    def close(self) -> None:
        """Compute what was submitted, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._between or self._closed)
                actions = list(self._between)
                self._between.clear()
                batch = self._next_batch() if not actions else []
                if not (actions or batch or self._jobs) and self._closed:
                    return
            for action, done in actions:
                try:
                    done.set_result(action())
                except Exception as error:
                    done.set_exception(error)
            if batch:
                self._answer(batch)

    def _next_batch(self) -> list[_Job]:
        """The oldest jobs of one key that a request still waits for; jobs of other keys keep their places."""
        batch: list[_Job] = []
        others: list[_Job] = []
        now = time.monotonic()
        while self._jobs and len(batch) < self._most:
            job = self._jobs.popleft()
            if job.result.done() or job.deadline < now:
                continue
            (batch if not batch or job.key == batch[0].key else others).append(job)
        self._jobs.extendleft(reversed(others))
        return batch

    def _answer(self, batch: list[_Job]) -> None:
        results = self._results(batch)
        for job, result in zip(batch, results, strict=True):
            if not job.result.set_running_or_notify_cancel():
                continue  # nobody wants it any more
            if isinstance(result, Exception):
                job.result.set_exception(result)
            else:
                job.result.set_result(result)

    def _results(self, batch: list[_Job]) -> list[Any]:
        try:
            return self._compute(batch[0].key, [job.payload for job in batch])
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [result for job in batch for result in self._results([job])]


Result = tuple[Any, dict[str, int]]
"""The result of one payload, and the versions that it was computed with."""


@dataclass(frozen=True)
class Answers:
    """Answers to questions from k blocks each, none of them of the documents left out."""

    k: int
    exclude_documents: tuple[str, ...] = ()

    def __call__(self, opened: OpenRun, questions: list[str]) -> list[Result]:
        found = opened.answerer_without(self.exclude_documents).answer(questions, k=opened.require_k(self.k))
        return [(answer, opened.versions) for answer in found]


@dataclass(frozen=True)
class Search:
    """The k blocks nearest to each text."""

    k: int

    def __call__(self, opened: OpenRun, texts: list[str]) -> list[Result]:
        return [(hits, opened.versions) for hits in opened.search_all(texts, self.k)]


@dataclass(frozen=True)
class Explain:
    """Explanations of masked sentences, each as its request asks."""

    def __call__(self, opened: OpenRun, sentences: list[ExplainRequest]) -> list[Result]:
        found = [opened.explain(one.text, targets=one.targets, k=one.k, exclude_documents=one.exclude_documents) for one in sentences]
        return [(explanation, opened.versions) for explanation in found]


Question = Answers | Search | Explain
