"""released/manuals.py: sentences of a manual and the questions that they answer."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

from realm.documents.ingest.builder import build_corpus
from realm.documents.store.blocks import BlockStore

RELEASED = Path(__file__).resolve().parents[2] / "released"
MANUAL = """\
To mute a track, press the red button. If the disk is full, the backup stops at once.
Use the -q option to hide all messages. A snapshot is a picture of the disk at one moment.
The log cannot be read because the daemon owns it. Notes are stored in the home folder.

OPTIONS
  -v, --verbose
         Print each name that is copied.
"""
QUESTIONS = {
    "purpose": {"press the red button"},
    "condition": {"the backup stops at once"},
    "means": {"Use the -q option"},
    "which": {"-q"},
    "definition": {"a picture of the disk at one moment"},
    "reason": {"the daemon owns it"},
    "place": {"the home folder"},
    "does": {"Print each name that is copied"},
    "option": {"-v, --verbose", "-v", "--verbose"},
}


@pytest.fixture(scope="module")
def manuals():
    sys.path.insert(0, str(RELEASED))
    spec = importlib.util.spec_from_file_location("manuals", RELEASED / "manuals.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["manuals"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(RELEASED))


def test_sentences_of_a_manual_become_questions_that_they_answer(manuals, tmp_path):
    (tmp_path / "manual.txt").write_text(MANUAL)
    build_corpus([tmp_path / "manual.txt"], tmp_path / "corpus", vocab_size=300)
    store = BlockStore.open(tmp_path / "corpus")
    made = [one for row in range(len(store)) for one in manuals.block_questions(store, row, {"print"}, random.Random(0))]
    assert {kind: set(question.answers) for kind, question in made} == QUESTIONS
    assert all(question.context[start:end] in question.answers for _, question in made for start, end in question.places)
    asked = {kind: question.text for kind, question in made}
    assert asked["reason"] == "Why can the log not be read?" and "verbose" not in asked["option"]
