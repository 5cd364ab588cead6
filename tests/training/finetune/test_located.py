"""Of which blocks a reader is told whether they hold an answer: a question without a name is judged within its own documents' titles."""

import numpy as np
import pytest
from small import corpus_of

from realm.documents.store.blocks import BlockStore
from realm.models.types import Question
from realm.training.finetune.located import Subjects, names_subject


@pytest.fixture(scope="module")
def bridges(tmp_path_factory):
    rows = [
        ("harrow/1", "Harrow bridge", "The bridge was built in 1911 by an engineer from Leeds."),
        ("harrow/2", "Harrow bridge", "A flood carried away the northern pier of the bridge in 1978."),
        ("mill", "Mill bridge", "The bridge was built in 1850 by a mason from York."),
        ("note", "", "The bridge is closed on Sundays."),
    ]
    return BlockStore.open(corpus_of(tmp_path_factory.mktemp("bridges"), rows, vocab_size=200))


@pytest.mark.parametrize(("text", "positive", "told"), [
    ("when was it built?", ("harrow/1",), ["harrow/1", "harrow/2"]),  # a block of the same title does not say it
    ("when was it built?", ("harrow/1", "mill"), ["harrow/1", "harrow/2", "mill"]),
    ("when was the bridge built?", ("harrow/1",), ["harrow/1", "harrow/2"]),  # half of the title fits other bridges
    ("when was harrow bridge built?", ("harrow/1",), ["harrow/1", "harrow/2", "mill", "note"]),
    ("which engineer from Leeds built it?", ("harrow/1",), ["harrow/1", "harrow/2", "mill", "note"]),
    ("when was it built?", (), ["harrow/1", "harrow/2", "mill", "note"]),
    ("when is it closed?", ("note",), ["harrow/1", "harrow/2", "mill", "note"]),  # without a title nothing tells
    ("when was it built?", ("nowhere",), ["harrow/1", "harrow/2", "mill", "note"]),
])  # fmt: skip
def test_blocks_that_a_question_is_judged_in(bridges, text, positive, told):
    rows = np.array([[*range(len(bridges)), -1]])
    known = Subjects(bridges, [Question("0", text, ("1911",), positive_ids=positive)]).known([0], rows)
    assert known.shape == rows.shape and not known[0, -1], "what is no block is neither"
    assert sorted(bridges.block(int(row)).doc_id for row in rows[known]) == told


@pytest.mark.parametrize(("text", "names"), [
    ("Who built it?", False),  # the first word is no name
    ("Who built it in 1911?", True), ("Who was “Marsh”?", True), ("what is the harrow bridge?", True),
    ("what is the bridge made of?", False), ("what is the pier made of?", False), ("", False),
])  # fmt: skip
def test_what_names_a_subject(text, names):
    assert names_subject(text, frozenset({"The Harrow bridge"})) is names
