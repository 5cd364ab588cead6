"""One small corpus for all examples."""

from pathlib import Path

import pytest

from .publishing import Example, corpus_of, examples


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus_of(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def published(small_corpus: Path) -> dict[str, Example]:
    """What is published, by its name."""
    return examples(small_corpus)
