"""Free pages go back to the system where the C library can do that, and nothing happens where it cannot."""

import ctypes

import numpy as np
import pytest

from realm.serve import serving


def test_free_memory_goes_back(monkeypatch):
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        pytest.skip("another C library than glibc")
    pieces = [np.ones(1000) for _ in range(1000)]
    del pieces
    said = []
    trim = library.malloc_trim
    library.malloc_trim = lambda keep: said.append(trim(keep))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    serving.give_back()
    assert len(said) == 1 and said[0] in (0, 1), "whether memory was released, in the words of the C library"


@pytest.mark.parametrize("error", [OSError, TypeError, AttributeError])
def test_another_c_library(monkeypatch, error):
    asked = []

    def refuse(name):
        asked.append(name)
        raise error("no malloc_trim here")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    serving.give_back()
    assert asked == [None]
