"""Windows want every token exactly once, and come back as they were."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from realm.errors import ConfigError, DataError
from realm.knn.network import Window
from realm.knn.windows import TextOptions, WindowSet, sliding_windows


@given(st.integers(0, 90), st.integers(1, 20), st.integers(1, 20))
def test_every_token_but_the_first_is_wanted_once(length, context, stride):
    stride, ids = min(stride, context), np.arange(100, 100 + length, dtype=np.int32)
    windows = list(sliding_windows(ids, context, stride))
    assert [token for window in windows for token in window.targets.tolist()] == ids[1:].tolist()
    for number, window in enumerate(windows):
        assert len(window.ids) <= context and (window.ids[window.places] + 1 == window.targets).all()
        before = window.places[0] + 1  # tokens that its first prediction sees
        assert before >= min(context - stride + 1, int(window.targets[0]) - 100)
        assert number == 0 or len(window.places) <= stride


def some_windows():
    rng, windows = np.random.default_rng(0), []
    for length in rng.integers(1, 30, 50).tolist():
        ids = rng.integers(0, 99, length).astype(np.int32)
        windows.append(Window(ids, np.arange(length // 2, length, dtype=np.int32), ids[length // 2 :] + 1, ids[: length % 3]))
    return windows


@pytest.mark.usefixtures("small_parts")
def test_windows_come_back_and_need_something_to_predict():
    windows = some_windows()
    found = WindowSet(windows)
    assert len(found) == 50
    for number, window in enumerate(windows):
        again = found.window(number)
        for name in ("ids", "places", "targets", "source"):
            np.testing.assert_array_equal(getattr(again, name), getattr(window, name))
    assert WindowSet(windows).sha256 == found.sha256 != WindowSet(windows[::-1]).sha256
    with pytest.raises(ValueError, match="no part begins"):
        list(found.parts(1))
    with pytest.raises(DataError, match="no text to predict"):
        WindowSet(sliding_windows(np.array([3]), 4, 2))


def test_context_and_stride_by_default():
    assert TextOptions().fitted(1024) == (512, 256) and TextOptions().fitted(64) == (64, 32) and TextOptions().fitted(None) == (512, 256)
    with pytest.raises(ConfigError, match="reads at most 32"):
        TextOptions(context=33).fitted(32)
    with pytest.raises(ConfigError, match="stride = 9 is outside"):
        TextOptions(context=8, stride=9).fitted(32)
