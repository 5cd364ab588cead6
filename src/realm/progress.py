"""Progress of long commands on standard error: a bar for each stage on a terminal, plain lines elsewhere; rich is imported only there."""

import atexit
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

Counting = Callable[[str, int, int], None]
"""Told (what, done, total) by what may take long."""
Advance = Callable[[int, int], None]
"""Told (done, total) of one thing that may take long."""
EVERY_SECONDS = 5.0
QUIET = "REALM_QUIET"
"""Variable of the environment, set by ``--quiet``, that keeps notes and progress back here and in child processes."""
MAX_SHOWN_METRICS = 4
STAGE_METRICS = {
    "ict": ("loss", "accuracy"),
    "warm": ("loss", "span_log_prob", "filled_with_block", "filled_without"),
    "pretrain": ("loss", "marginal_utility", "p_null", "distinct"),
    "finetune": ("reader_loss", "found", "dev_em", "dev_recall"),
}
"""The numbers of a stage that say whether it learns, at most ``MAX_SHOWN_METRICS`` of them."""
HIDDEN_METRICS = ("lr", "grad_norm", "skipped", "valid", "time")


@dataclass
class _Stage:
    """State of one stage: how far it is, its newest numbers, when this process first heard of it."""

    name: str
    first: int
    started: float
    done: int = 0
    total: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    printed: float = float("-inf")
    pending: bool = False
    bar: Any = None

    @property
    def finished(self) -> bool:
        return self.total is not None and self.done >= self.total

    def left(self, now: float) -> float | None:
        """Seconds to go at the speed since the first report; None until there is a speed. A resumed stage starts at its own step."""
        made = self.done - self.first
        return None if self.total is None or made <= 0 else (now - self.started) / made * (self.total - self.done)

    def position(self) -> str:
        return f"{self.done:,}" if self.total is None else f"{self.done:,}/{self.total:,}"

    def numbers(self) -> str:
        names = [name for name in STAGE_METRICS.get(self.name, self.metrics) if name in self.metrics and name not in HIDDEN_METRICS]
        return "  ".join(f"{name} {_short(self.metrics[name])}" for name in names[:MAX_SHOWN_METRICS])

    def times(self, now: float) -> str:
        left = self.left(now)
        return _clock(now - self.started) + ("" if left is None or self.finished else f", {_clock(left)} left")


class Progress:
    """Shows stages, counts and messages; every method is cheap enough to call at each step.

    Args:
        quiet: show nothing at all.
        says: show messages; False: bars and counts alone.
        stream: where to write; standard error by default. A terminal gets bars, anything else plain lines.
        every: seconds between two plain lines of one stage. The last line of a stage is always written.

    Works as a context manager; :meth:`close` gives the terminal back and is called at exit in any case."""

    def __init__(self, *, quiet: bool = False, says: bool = True, stream: TextIO | None = None, every: float = EVERY_SECONDS):
        self._quiet = quiet or bool(os.environ.get(QUIET))
        self._says = says
        self._stream = sys.stderr if stream is None else stream
        self._every = every
        self._stages: dict[str, _Stage] = {}
        self._live: Any = None
        self._terminal = not self._quiet and self._stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def report(self, stage: str, step: int, steps: int, metrics: dict[str, float]) -> None:
        """A stage of training did ``step`` of ``steps``; ``metrics`` are its newest numbers (others keep their last value)."""
        self._show(stage, step, steps, metrics)

    def count(self, stage: str, done: int, total: int | None = None, *, after: float = 0.0) -> None:
        """Show ``done`` things of ``total`` (None: unknown) with their rate, once ``after`` seconds of it have passed."""
        known = self._stages.get(stage)
        seconds = time.monotonic() - known.started if known is not None else 0.0
        rate = {"per second": (done - known.first) / seconds} if known is not None and done > known.first and seconds > 0 else {}
        self._show(stage, done, total, rate, after)

    def counting(self, whole: str) -> Callable[[str, int, int | None], None]:
        """:meth:`count` for the parts of something: "corpus: documents", "corpus: blocks"."""
        return lambda part, done, total: self.count(f"{whole}: {part}", done, total)

    def count_long(self, stage: str, done: int, total: int | None = None) -> None:
        """:meth:`count` for what is often over at once: nothing is shown before ``every`` seconds of it have passed."""
        self.count(stage, done, total, after=self._every)

    def say(self, text: str) -> None:
        """A plain message on a line of its own, as it is: no markup is read in it."""
        if self._quiet or not self._says:
            return
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        self._flush()
        self._write(text)

    def close(self) -> None:
        """Write what is still to be said and give the terminal back. May be called twice; reporting after it starts again."""
        self._flush()
        if self._live is not None:
            self._live.stop()
            self._live = None
            atexit.unregister(self.close)
        self._stages.clear()

    def _show(self, name: str, done: int, total: int | None, metrics: dict[str, float], after: float = 0.0) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        stage = self._stages.get(name)
        if stage is None or done < stage.done:  # a new stage, or the same one over again (the index is embedded at every refresh)
            bar = None if stage is None else stage.bar
            stage = self._stages[name] = _Stage(name, done, now, bar=bar)
        stage.done, stage.total = done, total
        stage.metrics.update(metrics)
        if now - stage.started < after:
            return
        stage.pending = True
        if self._terminal:
            self._draw(stage, now)
            return
        self._flush(but=stage)
        if stage.finished or now - stage.printed >= self._every:
            self._print(stage, now)

    def _flush(self, but: _Stage | None = None) -> None:
        """Write the held-back last line of every other stage: stages follow one another, and one may end before its last step."""
        if not self._terminal:
            for stage in self._stages.values():
                if stage.pending and stage is not but:
                    self._print(stage, time.monotonic())

    def _print(self, stage: _Stage, now: float) -> None:
        stage.printed, stage.pending = now, False
        self._write("  ".join(part for part in (stage.name, stage.position(), stage.numbers(), stage.times(now)) if part))

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    def _draw(self, stage: _Stage, now: float) -> None:
        if self._live is None:
            self._live = _live_bars(self._stream)
            self._live.start()
            atexit.register(self.close)  # an error that escapes must not leave the cursor hidden
        shown = {"position": stage.position(), "numbers": stage.numbers(), "times": stage.times(now)}
        if stage.bar is None:
            stage.bar = self._live.add_task(stage.name, total=stage.total, completed=stage.done, **shown)
        else:
            self._live.update(stage.bar, total=stage.total, completed=stage.done, **shown)
        if stage.finished:
            self._live.refresh()


def _live_bars(stream: TextIO) -> Any:
    """rich's live display on ``stream``. Standard output is left alone: it carries results, and may be a pipe."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress as Bars, TextColumn
    from rich.table import Column

    def column(field: str, **options: Any) -> TextColumn:
        return TextColumn("{task." + field + "}", markup=False, table_column=Column(no_wrap=True, **options))

    return Bars(
        column("description", style="bold"),
        BarColumn(bar_width=12),
        column("fields[position]", justify="right"),
        column("fields[numbers]", style="cyan", overflow="ellipsis", ratio=1),
        column("fields[times]", justify="right"),
        console=Console(file=stream, force_terminal=True),
        expand=True,
        refresh_per_second=2,  # drawing must not take time from training on two cores
        redirect_stdout=False,
    )


def _short(value: float) -> str:
    """Three decimals at most; thousands without any."""
    if value != value:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}".rstrip("0").rstrip(".")


def _clock(seconds: float) -> str:
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
