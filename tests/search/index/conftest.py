"""The native kernel for tests: the one built with the package, or built now; skipped where no compiler is."""

import pytest

from realm.search.index.native.build import build, find_compiler, library_path
from realm.search.index.native.kernel import Kernel


@pytest.fixture(scope="session")
def kernel_library(tmp_path_factory):
    if library_path().exists():
        return library_path()
    if find_compiler() is None:
        pytest.skip("no C compiler")
    built = build(tmp_path_factory.mktemp("kernel"))
    assert built is not None
    return built


@pytest.fixture(scope="session")
def kernel(kernel_library):
    """Level of LEVELS (and a number of threads) -> kernel; skips where this processor does not run it."""

    def at(level, threads=2):
        try:
            return Kernel(kernel_library, level, threads)
        except ValueError:
            pytest.skip(f"this processor does not run {level}")

    return at
