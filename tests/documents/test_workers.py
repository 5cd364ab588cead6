"""Work in several processes: order, bounds, a process that dies."""

import os

import pytest

from realm.documents.workers import FEW, Workers
from realm.errors import CorpusError


def _square(number):
    return number * number


def _die(number):
    if number == 3:
        os._exit(9)
    return number


def _process(_):
    return os.getpid()


def _find(name):
    return globals()[name]


def test_order_is_kept_by_one_step_and_by_two_that_share_the_processes():
    taken = 0

    def numbers():
        nonlocal taken
        for number in range(40):
            taken += 1
            yield number

    with Workers(2) as workers:
        results = (result for _, result in workers.in_order(numbers(), _square, _find, ("_square",)))
        assert next(results) == 0
        assert taken <= 2 * 2 + 2
        assert list(results) == [number * number for number in range(1, 40)]
    # One step reads what the other makes, as the intake reads what the cleaning of a dump makes.
    with Workers(2) as workers:
        squares = (result for _, result in workers.in_order(range(30), _square, _find, ("_square",)))
        assert [result for _, result in workers.in_order(squares, _square, _find, ("_square",))] == [number**4 for number in range(30)]


def test_little_work_is_done_here_and_more_by_the_same_processes():
    here = os.getpid()
    with Workers(2) as workers:
        assert [result for _, result in workers.in_order(range(FEW), _process, _find, ("_process",))] == [here] * FEW
        first, second = ({result for _, result in workers.in_order(range(20), _process, _find, ("_process",))} for _ in range(2))
        assert here not in first | second
        assert len(first | second) <= 2
    assert {result for _, result in Workers(1).in_order(range(FEW + 1), _process, _find, ("_process",))} == {here}


def test_a_dead_worker_is_an_error_of_one_line():
    with pytest.raises(CorpusError, match="worker process died"), Workers(2) as workers:
        list(workers.in_order(range(20), _die, _find, ("_die",)))
