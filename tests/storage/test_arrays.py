"""Arrays that save work are kept with a checksum: a changed byte anywhere means that they are made again."""

import numpy as np
import pytest

from realm.storage.arrays import keep_array, kept_array

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
