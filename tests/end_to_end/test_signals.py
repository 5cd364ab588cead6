"""Signals find a command anywhere: in finalisers, in what catches everything, while it cleans up."""

import ctypes
import gc
import signal
import time
import weakref

import pytest

import realm.cli

NUMBERS = {signal.SIGTERM: 143, signal.SIGINT: 130}


class Thing:
    """May be referred to weakly, and acts when it goes."""

    def __init__(self, act=lambda: None):
        self.act = act

    def __del__(self):
        self.act()


def in_a_weak_reference(send):
    thing = Thing()
    kept = weakref.ref(thing, lambda _: send())
    del thing
    assert kept() is None


def in_the_collector(send):
    def act(phase, info):
        gc.callbacks.remove(act)
        send()

    gc.callbacks.append(act)
    gc.collect()


def in_a_generator(send):
    def generator():
        try:
            yield 1
        finally:
            send()

    next(generator())


SWALLOWING = {
    "a finaliser": Thing,
    "a long finaliser": lambda send: Thing(lambda: (send(), time.sleep(0.1))),
    "two finalisers": lambda send: (Thing(send), Thing(send)),
    "a weak reference": in_a_weak_reference,
    "weakref.finalize": lambda send: weakref.finalize(Thing(), send),
    "the collector": in_the_collector,
    "a generator": in_a_generator,
    "a callback of C": lambda send: ctypes.CFUNCTYPE(None)(send)(),
}


@pytest.fixture
def ends(monkeypatch):
    """Returns the exit code of a command that does some work, then waits; it must not wait to its end."""

    def run(work):
        def dispatch(arguments):
            work()
            for _ in range(300):
                time.sleep(0.01)

        monkeypatch.setattr(realm.cli, "_dispatch", dispatch)
        return realm.cli.main(["work"])

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker of pytest ignores it
    yield run
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("swallowing", SWALLOWING)
def test_a_finaliser_swallows_no_signal(swallowing, number, ends, capsys):
    assert ends(lambda: SWALLOWING[swallowing](lambda: signal.raise_signal(number))) == NUMBERS[number]
    said = capsys.readouterr().err
    assert said.endswith("run the same command again to continue\n") and said.count("\n") == 1


def test_a_second_signal_ends_what_caught_the_first(ends):
    def work():
        with pytest.raises(BaseException):  # noqa: B017  as libraries do
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)

    assert ends(work) == 143


def test_a_second_signal_lets_a_command_clean_up(ends):
    done = []

    def work():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            for _ in range(3):
                signal.raise_signal(signal.SIGTERM)
            Thing(lambda: signal.raise_signal(signal.SIGTERM))
            done.append("cleaned up")

    assert ends(work) == 143 and done == ["cleaned up"]


def test_other_errors_of_finalisers_are_reported(ends, monkeypatch):
    told = []
    monkeypatch.setattr("sys.unraisablehook", lambda lost: told.append(type(lost.exc_value)))
    assert ends(lambda: (Thing(lambda: 1 // 0), signal.raise_signal(signal.SIGINT))) == 130
    assert told == [ZeroDivisionError] and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
