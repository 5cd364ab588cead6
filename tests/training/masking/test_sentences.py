"""Masked sentences and inverse cloze examples over a real corpus directory."""

import dataclasses

import numpy as np
import pytest
from small import corpus_of, features

from realm.documents.store.blocks import BlockStore
from realm.recipe.seeds import generator
from realm.training.masking.sentences import MaskedSentences, hide_more
from realm.training.warm import InverseCloze


class Chosen:
    """Stands for a generator that draws what it is told."""

    def __init__(self, value):
        self.value = value

    def integers(self, high):
        assert 0 <= self.value < high
        return self.value


def all_queries(sentences):
    places = [(item, span) for item in range(len(sentences)) for span in range(len(sentences.spans_of(item)))]
    return [sentences.query(item, Chosen(span)) for item, span in places]


def test_the_targets_are_names_and_dates_and_restore_the_sentence(store, featurizer):
    sentences = MaskedSentences(store, featurizer)
    assert len(sentences) >= 6 and sentences.spans >= len(sentences)
    queries = all_queries(sentences) + [sentences.query(item, generator("test", item)) for item in range(len(sentences))]
    for query in queries:
        assert len(query.positions) == len(query.targets) > 0
        assert query.positions == list(range(query.positions[0], query.positions[-1] + 1))
        assert {p for p, token in enumerate(query.ids) if token == featurizer.mask} == set(query.positions)
        row = int(store.rows_of(np.array([query.origin]))[0])
        table, body = store.sentences(row), store.token_ids(row).tolist()
        assert query.whole == body[slice(*table.tokens[query.sentence].tolist())]
    masked = {store.tokenizer.decode(query.targets).lower() for query in all_queries(MaskedSentences(store, featurizer))}
    assert {"1802", "1666", "1694"} <= masked and any("kingdom" in text for text in masked)


def test_origin_and_verbatim_twins_are_excluded(store, featurizer):
    twins = {store.block(row).block_id for row in range(len(store)) if "pound sterling is the money" in store.block(row).text}
    assert len(twins) == 2
    seen = 0
    for query in all_queries(MaskedSentences(store, featurizer)):
        excluded = set(query.excluded.tolist())
        assert query.origin in excluded and query.excluded.dtype == np.int64
        if excluded == twins:
            seen += 1
        else:
            assert excluded == {query.origin}
    assert seen >= 2


@pytest.mark.parametrize("length", [6, 8, 10])
def test_a_span_is_never_cut(store, featurizer, length):
    short = dataclasses.replace(featurizer, query_length=length)
    sentences, everything = MaskedSentences(store, short), MaskedSentences(store, featurizer)
    for query in all_queries(sentences):
        assert len(query.ids) <= length - 2 and query.positions[-1] < length - 2
        assert short.query(query.ids).ids[1:-1] == query.ids
        assert all(query.ids[p] == featurizer.mask for p in query.positions) and len(query.targets) == len(query.positions)
    assert sentences.spans + sentences.dropped["beyond the query length"] == everything.spans
    assert sentences.dropped["beyond the query length"] > 0


def test_a_span_that_is_the_whole_sentence_is_dropped(tmp_path, featurizer):
    text = "1802\n\nThe poet Victor Hugo was born in 1802 in a town in France."
    store = BlockStore.open(corpus_of(tmp_path, [("0", "", text)], vocab_size=300))
    sentences = MaskedSentences(store, features(store))
    assert sentences.dropped["the whole sentence"] == 1
    for query in all_queries(sentences):
        assert len(query.targets) < len(query.ids)


def test_the_other_spans_of_the_sentence_are_named(store, featurizer):
    several = 0
    for query in all_queries(MaskedSentences(store, featurizer)):
        row = int(store.rows_of(np.array([query.origin]))[0])
        body, table = store.token_ids(row).tolist(), store.spans(row)
        here = [
            tuple(body[start:end])
            for (start, end), at in zip(table.tokens.tolist(), table.sentence.tolist(), strict=True)
            if at == query.sentence
        ]
        assert sorted([tuple(query.targets), *query.others]) == sorted(here)
        several += len(query.others) > 0
    assert several >= 4


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_more_is_hidden_at_its_rate(store, featurizer, rate):
    """Every [MASK] has its target, the sentence can be restored, the span stays hidden, and nothing else of the query changes."""
    shown = hidden = 0
    for item, query in enumerate(all_queries(MaskedSentences(store, featurizer))):
        whole = query.whole
        for draw in range(20):
            more, again = (hide_more(query, rate, featurizer.mask, generator("hide", item, draw)) for _ in range(2))
            assert more.positions == again.positions, "drawn by its generator alone"
            assert more.whole == whole and more.positions == sorted(set(more.positions)) and set(query.positions) <= set(more.positions)
            assert [p for p, token in enumerate(more.ids) if token == featurizer.mask] == more.positions
            assert dataclasses.replace(more, ids=query.ids, positions=query.positions, targets=query.targets) == query
            shown += len(whole) - len(query.positions)
            hidden += len(more.positions) - len(query.positions)
    assert hidden / shown == pytest.approx(rate, abs=0.02)


def test_inverse_cloze_takes_the_sentence_out_at_its_rate(store):
    cloze = InverseCloze(store, keep_rate=0.0)
    multiple = [row for row in range(len(store)) if len(store.sentences(row).tokens) > 1]
    assert len(cloze) == len(multiple) == len(store) - 1
    for item, row in enumerate(multiple):
        body, spans, drawn = store.token_ids(row).tolist(), store.sentences(row).tokens.tolist(), set()
        for n in range(30):
            example = cloze.example(item, generator(n))
            start, end = next((s, e) for s, e in spans if body[s:e] == example.query)
            assert example.body == body[:start] + body[end:] and example.body
            assert example.title == store.title_ids(row).tolist() and example.block_id == store.block_ids[row]
            drawn.add((start, end))
        assert len(drawn) == len(spans)
    assert all(InverseCloze(store, keep_rate=1.0).example(0, generator(n)).body == store.token_ids(0).tolist() for n in range(10))
    cloze, whole = InverseCloze(store, keep_rate=0.1), store.token_ids(0).tolist()
    assert 70 <= sum(cloze.example(0, generator("rate", n)).body == whole for n in range(1000)) <= 130
    assert cloze.example(0, generator(7)) == cloze.example(0, generator(7))
