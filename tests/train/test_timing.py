"""The stopwatch charges every moment to exactly one part."""

import pytest

from realm.train.timing import Stopwatch


def test_every_moment_belongs_to_one_part() -> None:
    now = [0.0]
    watch = Stopwatch("outside", clock=lambda: now[0])

    def pass_time(seconds: float) -> None:
        now[0] += seconds

    pass_time(1)
    with watch("forward"):
        pass_time(2)
        with watch("data"):
            pass_time(4)
        pass_time(8)
    pass_time(16)
    with pytest.raises(KeyError), watch("data"):
        pass_time(32)
        raise KeyError
    assert watch.take() == {"outside": 17, "forward": 10, "data": 36}
    pass_time(64)
    assert watch.take() == {"outside": 64}
    with watch("forward"):  # taken in the middle of a part: the rest of it comes with the next look
        pass_time(128)
        assert watch.take()["forward"] == 128
        pass_time(256)
    assert watch.take()["forward"] == 256
