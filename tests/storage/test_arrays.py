"""Arrays are read by one thread at a time; those that save work are kept with a checksum, and made again where a byte of them changed."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from realm.storage.arrays import keep_array, kept_array, load_array

ARRAYS = [np.arange(12, dtype=np.int32).reshape(3, 4), np.empty((0, 4), np.int32), np.ones((2, 2), np.float32), np.array(7)]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{list(array.shape)}")
def test_what_was_kept_comes_back_unless_a_byte_of_it_changed(array, tmp_path):
    keep_array(tmp_path / "kept.npy", array, slow=["a+"])
    found, facts = kept_array(tmp_path / "kept.npy")
    assert np.array_equal(found, array) and found.dtype == array.dtype and facts["slow"] == ["a+"]
    for file in (tmp_path / "kept.npy", tmp_path / "kept.json"):
        whole = file.read_bytes()
        for harmed in (*(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))), b"", whole[:-9], whole + b"0"):
            file.write_bytes(harmed)
            assert kept_array(tmp_path / "kept.npy") is None
        file.write_bytes(whole)
    keep_array(tmp_path / "other.npy", array + 1 if array.size else array.T)
    (tmp_path / "other.npy").replace(tmp_path / "kept.npy")
    assert kept_array(tmp_path / "kept.npy") is None and kept_array(tmp_path / "other.npy") is None


def test_threads_load_one_after_the_other(tmp_path, monkeypatch):
    """numpy's reader of headers is not safe in several threads (see ``load_array``)."""
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
