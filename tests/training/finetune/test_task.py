"""Renaming: a permutation of names among their like that leaves all else, and every span, in its place."""

import numpy as np
import pytest

from realm.answering.reading import rename
from realm.evaluation.places import locate_answers
from realm.models.types import Question, Sequence
from realm.recipe.seeds import generator
from realm.training.finetune.task import Renaming


@pytest.fixture(scope="module")
def renaming(store):
    return Renaming(store)


def test_it_permutes_names_among_their_like_and_only_those(store, renaming):
    renamed = renaming.draw(generator("test"))
    assert sorted(renamed.tolist()) == list(range(store.tokenizer.vocab_size))
    moved = np.flatnonzero(renamed != np.arange(len(renamed)))
    assert len(moved) > 5
    token = store.tokenizer.token
    for wordpiece in moved.tolist():
        was, becomes = token(wordpiece), token(int(renamed[wordpiece]))
        assert was.startswith("##") == becomes.startswith("##")
        assert any(c.isdigit() for c in was) == any(c.isdigit() for c in becomes)
    inside = {}
    for row in range(len(store)):
        spans = store.spans(row).tokens.tolist()
        for at, wordpiece in enumerate(store.token_ids(row).tolist()):
            inside.setdefault(wordpiece, []).append(any(start <= at < end for start, end in spans))
    expected = {wordpiece for wordpiece, flags in inside.items() if 2 * sum(flags) > len(flags)}
    assert set(np.concatenate(renaming.groups).tolist()) == expected
    special = store.tokenizer.special
    assert not expected & {special.cls, special.sep, special.mask, special.pad, special.unk}


def test_the_draw_depends_on_the_generator_and_none_changes_nothing(renaming):
    assert np.array_equal(renaming.draw(generator("a", 1)), renaming.draw(generator("a", 1)))
    assert not np.array_equal(renaming.draw(generator("a", 1)), renaming.draw(generator("a", 2)))
    sequence = Sequence([1, 2, 3], [0, 0, 1])
    assert rename(sequence, None) is sequence


def test_an_answer_stays_where_it_stands(store, inputs, renaming):
    question, answer = store.tokenizer.encode(["What is the money of France?", "euro"])
    ((row, spans),) = locate_answers(store, [Question("", "", ("euro",))])[0].items()
    sequence, renamed = inputs.joint(question, row), renaming.draw(generator("test"))
    other = rename(sequence, renamed)
    assert other.segments == sequence.segments and len(other) == len(sequence)
    start = inputs.featurizer.body_start(question)
    for first, last in spans:
        assert other.ids[start + first : start + last] == renamed[answer].tolist()
    # Equal names are equal afterwards, different ones different: what matched still matches.
    assert len(set(other.ids)) == len(set(sequence.ids))
    assert all(renamed[was] == becomes for was, becomes in zip(sequence.ids, other.ids, strict=True))
