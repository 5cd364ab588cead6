"""Model inputs have the released formats (realm_facts 1.3), null document included, and padding is only padding."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from realm.documents.store.blocks import NULL_BLOCK
from realm.models.bodies.body import pad_batch
from realm.models.encoder import mask_slots
from realm.models.featurize import MARKED_SEGMENTS, SHARED_PAIR_SEGMENT, SHARED_SEGMENT, Featurizer, length_buckets, marked
from realm.models.types import Sequence
from realm.search.blocks import NULL_ROW, BlockInputs

CLS, SEP, MASK, PAD = 2, 3, 4, 0
IDS = st.lists(st.integers(5, 99), max_size=40)


@pytest.fixture
def f():
    return Featurizer(cls=CLS, sep=SEP, mask=MASK, pad=PAD, query_length=8, block_length=12)


def test_layouts_of_queries_readers_and_the_null_document(f):
    assert f.query([5, 6]) == Sequence([CLS, 5, 6, SEP], [0, 0, 0, 0])
    assert f.block([5], [6, 7]) == Sequence([CLS, 5, SEP, 6, 7, SEP], [0, 0, 0, 1, 1, 1])
    assert f.joint([5], [6, 7]) == Sequence([CLS, 5, SEP, 6, 7, SEP], [0, 0, 0, 1, 1, 1])
    # A masked sentence has one, a question gets one at its end, which is never what is cut off.
    assert f.with_mask([5, MASK, 6]) == [5, MASK, 6] and f.with_mask([5, 6]) == [5, 6, MASK] and f.with_mask([]) == [MASK]
    assert f.with_mask(list(range(10, 30))) == [10, 11, 12, 13, 14, MASK]
    assert len(f.query(f.with_mask(list(range(10, 30))))) == f.query_length
    assert f.block([], []) == Sequence([CLS, SEP, SEP], [0, 0, 1])
    assert f.joint([5, 6], []) == Sequence([CLS, 5, 6, SEP, SEP], [0, 0, 0, 0, 1])


@given(IDS, IDS)
def test_any_input_fits_and_keeps_what_it_can(first, second):
    f = Featurizer(cls=CLS, sep=SEP, mask=MASK, pad=PAD, query_length=8, block_length=12)
    query, block, joint = f.query(first), f.block(first, second), f.joint(first, second)
    assert query.ids == [CLS, *first[:6], SEP] and len(query) <= 8
    title = first[:9]
    assert block.ids == [CLS, *title, SEP, *second[: 9 - len(title)], SEP] and len(block) <= 12
    assert joint.ids == [CLS, *first[:6], SEP, *second[:10], SEP] and len(joint) <= f.joint_length
    for s in (query, block, joint):
        assert len(s.ids) == len(s.segments) and s.ids[-1] == SEP
    for s in (block, joint):
        assert s.segments == [0] * (s.ids.index(SEP) + 1) + [1] * (len(s) - s.ids.index(SEP) - 1)
    start = f.body_start(first)
    assert joint.ids[start - 1] == SEP and joint.ids[start:-1] == second[:10]
    # The query stands at the same places in its own input and before every candidate.
    assert joint.ids[: len(query)] == query.ids


@given(IDS, IDS)
def test_marks_against_a_loop(question, body):
    f = Featurizer(cls=CLS, sep=SEP, mask=MASK, pad=PAD, query_length=20, block_length=30)
    start, joint = f.body_start(question), f.joint(question, body)
    asked, read, found = joint.ids[1 : start - 1], joint.ids[start:-1], marked(joint, start)
    for at, wordpiece in enumerate(read):
        pairs = [tuple(read[i : i + 2]) for i in (at - 1, at) if i >= 0 and i + 2 <= len(read)]
        together = any(pair == tuple(asked[i : i + 2]) for pair in pairs for i in range(len(asked) - 1))
        assert found.segments[start + at] == (SHARED_PAIR_SEGMENT if together else SHARED_SEGMENT if wordpiece in asked else 1)
    assert max(found.segments) < MARKED_SEGMENTS


@given(st.lists(IDS.filter(bool), min_size=1, max_size=6), st.integers(0, 4))
def test_padding_adds_nothing(rows, pad):
    sequences = [Sequence(ids, [i % 2 for i in range(len(ids))]) for ids in rows]
    batch = pad_batch(sequences, pad)
    assert batch.ids.shape == batch.mask.shape == batch.segments.shape == (len(rows), max(map(len, rows)))
    assert batch.ids.dtype == batch.segments.dtype == torch.long and batch.mask.dtype == torch.bool
    for i, s in enumerate(sequences):
        assert batch.ids[i][batch.mask[i]].tolist() == s.ids and batch.segments[i][batch.mask[i]].tolist() == s.segments
        assert batch.mask[i].tolist() == [j < len(s) for j in range(batch.mask.shape[1])]
        assert (batch.ids[i][~batch.mask[i]] == pad).all() and (batch.segments[i][~batch.mask[i]] == 0).all()


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200), st.integers(0, 40))
def test_buckets_hold_everything_once_within_their_size(lengths, size, cut):
    groups = list(length_buckets(lengths, size, cut))
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        assert group and (len(group) == 1 or len(group) * max(lengths[i] for i in group) <= size)
    flat = [lengths[i] for group in groups for i in group]
    assert flat == sorted(flat) and groups == list(length_buckets(lengths, size, cut))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=7), st.integers(1, 200), st.integers(0, 40))
def test_no_other_buckets_cost_less(lengths, size, cut):
    ordered = sorted(lengths)

    def cost(groups):
        return sum(len(group) * group[-1] + cut for group in groups)

    ways = []
    for places in itertools.product([False, True], repeat=len(ordered) - 1):
        ends = [i + 1 for i, here in enumerate(places) if here]
        groups = [ordered[a:b] for a, b in itertools.pairwise([0, *ends, len(ordered)])]
        if all(len(group) == 1 or len(group) * group[-1] <= size for group in groups):
            ways.append(cost(groups))
    found = [[lengths[i] for i in group] for group in length_buckets(lengths, size, cut)]
    assert cost(found) == min(ways)


@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(5, 99)), min_size=1, max_size=5), min_size=1, max_size=5))
def test_slots_are_shifted_by_the_first_token(rows):
    positions, targets = [[p for p, _ in row] for row in rows], [[t for _, t in row] for row in rows]
    where, what, slots = mask_slots(positions, targets)
    assert where.shape == what.shape == slots.shape == (len(rows), max(map(len, rows)))
    for i in range(len(rows)):
        assert (where[i][slots[i]] - 1).tolist() == positions[i] and what[i][slots[i]].tolist() == targets[i]
        assert slots[i].sum() == len(rows[i])


def test_block_inputs_read_the_store_and_its_lengths(inputs, store, featurizer):
    for row in range(len(store)):
        block, title, body = store.block(row), store.title_ids(row).tolist(), store.token_ids(row).tolist()
        assert inputs.block(row) == featurizer.block(title, body) and inputs.joint([9], row) == featurizer.joint([9], body)
        assert store.tokenizer.decode(title).lower() == block.title.lower()
    null = featurizer.block([], [])
    assert inputs.block(NULL_ROW) == null and inputs.joint([9], NULL_ROW) == featurizer.joint([9], [])
    assert inputs.blocks([NULL_ROW, 0]) == [null, inputs.block(0)]
    ids = np.array([[NULL_BLOCK, int(store.block_ids[2])], [int(store.block_ids[0]), NULL_BLOCK]])
    assert inputs.rows(ids).tolist() == [[NULL_ROW, 2], [0, NULL_ROW]]
    assert inputs.rows(np.full((2, 2), NULL_BLOCK)).tolist() == [[NULL_ROW] * 2] * 2
    rows = np.arange(len(store))
    assert inputs.lengths(rows).tolist() == [len(inputs.block(row)) for row in range(len(store))]
    short = BlockInputs(store, Featurizer(cls=CLS, sep=SEP, mask=MASK, pad=PAD, block_length=16))
    assert short.lengths(rows).tolist() == [len(short.block(row)) for row in range(len(store))]
