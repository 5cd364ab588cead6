"""Work in several processes: order, bounds, a process that dies."""

import os
from collections.abc import Callable, Iterator

import pytest

from realm.corpus.workers import FEW, in_order
from realm.errors import CorpusError


def _square(number: int) -> int:
    return number * number


def _squarer() -> Callable[[int], int]:
    return _square


def _die(number: int) -> int:
    if number == 3:
        os._exit(9)
    return number


def _process(_: int) -> int:
    return os.getpid()


def _processes() -> Callable[[int], int]:
    return _process


def _dier() -> Callable[[int], int]:
    return _die


def test_order_is_kept_and_the_queue_is_bounded() -> None:
    taken = 0

    def numbers() -> Iterator[int]:
        nonlocal taken
        for number in range(40):
            taken += 1
            yield number

    results = (result for _, result in in_order(numbers(), _square, _squarer, (), 2))
    assert next(results) == 0
    assert taken <= 2 * 2 + 2
    assert list(results) == [number * number for number in range(1, 40)]


def test_little_work_is_done_here() -> None:
    here = os.getpid()
    assert [result for _, result in in_order(iter(range(FEW)), _process, _processes, (), 2)] == [here] * FEW
    assert here not in {result for _, result in in_order(iter(range(FEW + 1)), _process, _processes, (), 2)}
    assert {result for _, result in in_order(iter(range(FEW + 1)), _process, _processes, (), 1)} == {here}


def test_a_dead_worker_is_an_error_of_one_line() -> None:
    with pytest.raises(CorpusError, match="worker process died"):
        list(in_order(iter(range(20)), _die, _dier, (), 2))
