"""One small corpus and one changed run for all examples."""

import shutil
from pathlib import Path

import pytest
from changes import changed_corpus

from realm.cli import main
from realm.documents.change.updates import add_documents, remove_documents

from .examples import examples


@pytest.fixture(scope="session")
def published(tiny_run, tmp_path_factory):
    run = Path(shutil.copytree(tiny_run, tmp_path_factory.mktemp("changed") / "run"))
    add_documents(run / "corpus", [tiny_run.parent / "more.jsonl"])
    assert main(["index", "build", str(run)]) == 0
    remove_documents(run / "corpus", ["Belmor/0"])
    return examples(changed_corpus(tmp_path_factory.mktemp("small")), run)
