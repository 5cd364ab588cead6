"""One small corpus and one changed run for all examples, and two notes with a cache of their own."""

import shutil
from pathlib import Path

import pytest

from realm.cli import main
from realm.documents.change.updates import add_documents, remove_documents

from .examples import corpus_of, examples


@pytest.fixture(scope="session")
def published(tiny_run, tmp_path_factory):
    run = Path(shutil.copytree(tiny_run, tmp_path_factory.mktemp("changed") / "run"))
    add_documents(run / "corpus", [tiny_run.parent / "more.jsonl"])
    assert main(["index", "build", str(run)]) == 0
    remove_documents(run / "corpus", ["Belmor/0"])
    return examples(corpus_of(tmp_path_factory.mktemp("small")), run)


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """A folder of two notes; what is indexed of it is kept below ``tmp_path``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "arvad.txt").write_text("People in Arvad pay with the Tirel. The winters are long.")
    (folder / "belmor.txt").write_text("The currency of Belmor is the crown.")
    return folder
