"""The collapse alarm: rings for a fall, not for chance."""

import pytest

from realm.training.pretrain.monitor import has_collapsed


@pytest.mark.parametrize(("history", "rings"), [
    ([0.45], False),
    ([0.45, 0.1], False),  # one refresh may be luck
    ([0.45, 0.1, 0.1], True),
    ([0.45, 0.44, 0.45, 0.425], False),  # one sentence of two hundred is half a percent
    ([0.45, 0.6, 0.3, 0.35], True), ([0.45, 0.1, 0.45, 0.3], False),
    ([0.45, 0.1, 0.2, 0.44], False),  # it has recovered
    ([0.0, 0.0, 0.0], False), ([1.0, 0.99, 0.99], True),
])  # fmt: skip
def test_only_a_clear_fall_that_lasts_is_a_collapse(history, rings):
    assert has_collapsed(history, 200) is rings


def test_the_margin_is_that_of_the_sample():
    assert not has_collapsed([0.5, 0.42, 0.42], 100)
    assert has_collapsed([0.5, 0.42, 0.42], 1000)
