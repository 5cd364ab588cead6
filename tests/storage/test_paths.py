"""Arrays are read by one thread at a time: numpy's reader of headers is not safe in several (see ``load_array``)."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from realm.storage.arrays import load_array


def test_threads_load_one_after_the_other(tmp_path, monkeypatch):
    path = tmp_path / "array.npy"
    np.save(path, np.arange(6).reshape(2, 3))
    load, inside, most = np.load, 0, 0

    def watched(*given, **named):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.005)  # long enough for another thread to come in
        found = load(*given, **named)
        inside -= 1
        return found

    monkeypatch.setattr(np, "load", watched)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda number: load_array(path, "r" if number % 2 else None), range(12)))
    assert most == 1
    assert all((array == [[0, 1, 2], [3, 4, 5]]).all() for array in found)
    assert [isinstance(array, np.memmap) for array in found] == [False, True] * 6


def test_pickles_are_not_read(tmp_path):
    path = tmp_path / "objects.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_array(path)
