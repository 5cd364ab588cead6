"""Windows want every token exactly once, survive the disk, and refuse what was damaged."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from realm.errors import ConfigError, DataError, SnapshotError
from realm.knn.texts import TextOptions
from realm.knn.windows import Window, WindowSet, sliding_windows, write_windows


@given(st.integers(0, 90), st.integers(1, 20), st.integers(1, 20))
def test_every_token_but_the_first_is_wanted_once(length: int, context: int, stride: int) -> None:
    stride = min(stride, context)
    ids = np.arange(100, 100 + length, dtype=np.int32)
    windows = list(sliding_windows(ids, context, stride))
    assert [token for window in windows for token in window.targets.tolist()] == ids[1:].tolist()
    for number, window in enumerate(windows):
        assert len(window.ids) <= context and (window.ids[window.places] + 1 == window.targets).all()
        before = window.places[0] + 1  # tokens that its first prediction sees
        assert before >= min(context - stride + 1, int(window.targets[0]) - 100)
        assert number == 0 or len(window.places) <= stride


@pytest.mark.parametrize(("context", "stride"), [(4, 5), (4, 0)])
def test_a_stride_fits_its_context(context: int, stride: int) -> None:
    with pytest.raises(ValueError, match="stride"):
        list(sliding_windows(np.arange(5), context, stride))


def some_windows() -> list[Window]:
    rng = np.random.default_rng(0)
    windows = []
    for length in rng.integers(1, 30, 50).tolist():
        ids = rng.integers(0, 99, length).astype(np.int32)
        windows.append(Window(ids, np.arange(length // 2, length, dtype=np.int32), ids[length // 2 :] + 1, ids[: length % 3]))
    return windows


def test_round_trip(tmp_path: Path) -> None:
    windows = some_windows()
    written = write_windows(tmp_path / "w", windows, lambda: {"words": 7})
    found = WindowSet(tmp_path / "w", verify=True)
    assert found.facts == {"words": 7} and found.sha256 == written.sha256 and len(found) == 50
    for number, window in enumerate(windows):
        again = found.window(number)
        for name in ("ids", "places", "targets", "source"):
            np.testing.assert_array_equal(getattr(again, name), getattr(window, name))
    assert write_windows(tmp_path / "again", windows, dict).sha256 == found.sha256
    assert write_windows(tmp_path / "other", windows[::-1], dict).sha256 != found.sha256


@pytest.mark.usefixtures("small_parts")
def test_parts_and_batches_cover_all_rows_once(tmp_path: Path) -> None:
    found = write_windows(tmp_path / "w", some_windows(), dict)
    parts = list(found.parts())
    assert len(parts) > 3 and [first for first, _ in parts] == [0, *(stop for _, stop in parts[:-1])] and parts[-1][1] == 50
    for first, stop in parts:
        rows = found.rows(first, stop)
        assert list(found.parts(rows.start)) == [part for part in parts if part[0] >= first]
        seen = np.full(rows.stop - rows.start, -1, np.int32)
        for at, batch in found.batches(first, stop):
            seen[at] = np.concatenate([window.targets for window in batch])
        np.testing.assert_array_equal(seen, found.targets[rows])
    with pytest.raises(ValueError, match="no part begins"):
        list(found.parts(1))


def test_nothing_to_predict(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no text to predict"):
        write_windows(tmp_path / "w", sliding_windows(np.array([3]), 4, 2), dict)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", ["ids.npy", "targets.npy", "windows.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_damage_is_found(tmp_path: Path, file: str, damage: str) -> None:
    write_windows(tmp_path / "w", some_windows(), dict)
    path = tmp_path / "w" / file
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(data) if damage == "changed" else bytes(data[:-3]))
    with pytest.raises(SnapshotError, match="knn build"):
        WindowSet(tmp_path / "w", verify=True)


def test_context_and_stride_by_default() -> None:
    assert TextOptions().fitted(1024) == (512, 256) and TextOptions().fitted(64) == (64, 32) and TextOptions().fitted(None) == (512, 256)
    with pytest.raises(ConfigError, match="reads at most 32"):
        TextOptions(context=33).fitted(32)
    with pytest.raises(ConfigError, match="stride = 9 is outside"):
        TextOptions(context=8, stride=9).fitted(32)
