"""Signs of life of the ranks of a job: a process that was stopped, or whose machine has gone, ends the job in bounded time.

A thread of each rank writes a counter into the job's store and reads the others'. It sees what no collective sees while one rank works
alone and the others wait for it for hours. A rank whose own thread still beats but that does not get on is found by the time limit of
the collectives.
"""

import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

LOST = 1
"""Exit code of a rank that ends because another gave no sign."""


class Heartbeat:
    """Beats from now until :meth:`stop`, and ends this process when another rank's beat stands still."""

    def __init__(self, rank: int, world: int, timeout: float):
        self._rank = rank
        self._others = [other for other in range(world) if other != rank]
        self._timeout = timeout
        self._every = max(0.1, min(5.0, timeout / 4))
        self._ended = threading.Event()
        store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(seconds=timeout))
        self._store: Any = PrefixStore(f"realm/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        self._store.set(f"beat/{rank}", "0")
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat")
        self._thread.start()

    def stop(self) -> None:
        """No more beats, and no more looking at others'."""
        self._ended.set()
        self._thread.join(self._every)

    def _run(self) -> None:
        count, seen = 0, dict.fromkeys(self._others, ("", time.monotonic()))
        while not self._ended.wait(self._every):
            count += 1
            try:
                self._store.set(f"beat/{self._rank}", "ended" if self._ended.is_set() else str(count))
                for other in self._others:
                    beat = self._store.get(f"beat/{other}").decode()
                    if beat != seen[other][0]:
                        seen[other] = (beat, time.monotonic())
            except RuntimeError:
                self._end("the store of the job, which the first rank or torchrun holds, has gone")
                return
            silent = [other for other, (beat, heard) in seen.items() if beat != "ended" and time.monotonic() - heard > self._timeout]
            if silent:
                self._end(f"rank {silent[0]} has given no sign for {self._timeout:.0f} s")
                return
        try:
            self._store.set(f"beat/{self._rank}", "ended")
        except RuntimeError:
            return  # the job has ended

    def _end(self, problem: str) -> None:
        """End the process where it stands: its main thread waits in a collective that cannot be interrupted."""
        if self._ended.is_set():
            return
        cure = "Start the same command again: the stage continues from its newest checkpoint."
        print(f"error: {problem}, and rank {self._rank} ends. {cure}", file=sys.stderr, flush=True)
        os._exit(LOST)
