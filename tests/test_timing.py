"""The stopwatch charges every moment to exactly one kind of work."""

import threading

import pytest

from realm import timing
from realm.timing import Stopwatch, charged, running


class Clock:
    """A clock that a test turns on."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_every_moment_belongs_to_one_kind():
    clock = Clock()
    watch = Stopwatch("outside", clock=clock)
    clock.now += 1
    with watch("forward"):
        clock.now += 2
        with watch("data"):
            clock.now += 4
        clock.now += 8
    clock.now += 16
    with pytest.raises(KeyError), watch("data"):
        clock.now += 32
        raise KeyError
    assert watch.seconds() == {"outside": 17, "forward": 10, "data": 36}
    with watch("forward"):  # looked at in the middle of a block
        clock.now += 64
        assert watch.seconds()["forward"] == 74
        clock.now += 128
    assert watch.seconds() == {"outside": 17, "forward": 202, "data": 36}


def test_a_whole_block_keeps_what_inner_ones_take():
    clock = Clock()
    watch = Stopwatch("outside", clock=clock)
    with watch("evaluation", whole=True):
        with watch("search"), watch("data", whole=True):
            clock.now += 1
        clock.now += 2
    with watch("search"):
        clock.now += 4
    assert watch.seconds() == {"outside": 0, "evaluation": 3, "search": 4}


def test_work_is_charged_to_the_stopwatch_that_runs_in_this_thread():
    clock = Clock()
    with charged("search"):
        assert timing.seconds() == {}  # none runs
    with running(Stopwatch("other", clock=clock)) as outer:
        with charged("search"):
            clock.now += 1
        before = timing.seconds()
        with running(Stopwatch("other", clock=clock)) as inner:
            with charged("data"):
                clock.now += 2
            assert inner.seconds() == {"other": 0, "data": 2}
        elsewhere = threading.Thread(target=lambda: charged("forward").__enter__())
        elsewhere.start()
        elsewhere.join()
        clock.now += 4
        assert timing.since(before) == {"search": 0, "other": 6}
    assert outer.seconds() == {"search": 1, "other": 6}


def test_an_accelerator_is_waited_for_before_each_look_at_the_clock():
    clock = Clock()

    def finish():
        clock.now += pending.pop() if pending else 0

    pending, watch = [], Stopwatch("outside", clock=clock, settle=finish)
    with watch("forward"):
        pending.append(8)  # asked for here, done when it is waited for
    assert watch.seconds() == {"outside": 0, "forward": 8}
