"""One small corpus for all examples, and two notes with a cache of their own."""

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


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two notes; what is indexed of it is kept below ``tmp_path``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "arvad.txt").write_text("People in Arvad pay with the Tirel. The winters are long.")
    (folder / "belmor.txt").write_text("The currency of Belmor is the crown.")
    return folder
