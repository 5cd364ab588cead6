"""Partners: blocks that hold the hidden span and a neighbour of it, against one loop over everything."""

import numpy as np
import pytest

import realm.training.masking.evidence
from realm.documents.store.blocks import BlockStore
from realm.recipe.seeds import generator
from realm.training.masking.evidence import Partners
from realm.training.masking.sentences import MaskedSentences


def spans_of(store, row):
    body = store.token_ids(row).tolist()
    return {tuple(body[start:end]) for start, end in store.spans(row).tokens.tolist()}


def naive(store, hidden, others, excluded, too_common):
    """What :meth:`Partners.rows` gives, read from every row each time."""
    held = {int(row): spans_of(store, int(row)) for row in np.flatnonzero(store.live)}

    def common(span):
        return sum(span in spans for spans in held.values()) > too_common

    beside = [span for span in others if span != hidden and not common(span)]
    if common(hidden):
        return []
    return [row for row, spans in sorted(held.items()) if row not in excluded and hidden in spans and any(s in spans for s in beside)]


def queries(store, featurizer):
    sentences = MaskedSentences(store, featurizer)
    return [sentences.query(item, generator("partners", item, n)) for item in range(len(sentences)) for n in range(6)]


def own_rows(store, query):
    return set(store.rows_of(query.excluded).tolist())


@pytest.mark.parametrize("too_common", [1, 2, 200])
def test_as_a_loop_over_everything(store, featurizer, too_common, monkeypatch):
    monkeypatch.setattr(realm.training.masking.evidence, "TOO_COMMON", too_common)
    partners, found = Partners(store), 0
    for query in queries(store, featurizer):
        for excluded in (set(), own_rows(store, query)):
            rows = partners.rows(query.targets, query.others, excluded)
            assert rows == naive(store, tuple(query.targets), list(query.others), excluded, too_common)
            found += len(rows)
    assert found > 0


def test_pairs_of_any_spans(store):
    """Also spans that no sentence has side by side, spans that are nowhere, and a span given as its own neighbour."""
    everything = sorted(set().union(*(spans_of(store, row) for row in range(len(store)))))
    partners = Partners(store)
    for hidden in [*everything, (1, 2, 3)]:
        for other in [*everything, (1, 2, 3)]:
            assert partners.rows(list(hidden), [list(other)], set()) == naive(store, hidden, [other], set(), 200)
        assert partners.rows(hidden, [hidden], set()) == partners.rows(hidden, [], set()) == []


def test_excluded_rows_are_never_partners(store, featurizer):
    partners, left = Partners(store), 0
    for query in queries(store, featurizer):
        everywhere, excluded = partners.rows(query.targets, query.others, set()), own_rows(store, query)
        if query.others:
            assert int(store.rows_of(np.array([query.origin]))[0]) in everywhere, "a block holds the spans of its own sentence"
        assert partners.rows(query.targets, query.others, excluded) == [row for row in everywhere if row not in excluded]
        assert partners.rows(query.targets, query.others, set(everywhere)) == []
        left += len(everywhere) > 0
    assert left > 0


def test_a_partner_says_the_same_in_other_words(store):
    """London and Thames stand in two documents, in different sentences: each is the other's partner."""
    london, thames = (tuple(store.tokenizer.encode([text])[0]) for text in ("London", "Thames"))
    assert [store.block(row).doc_id for row in Partners(store).rows(london, [thames], set())] == ["london", "one"]


def test_removed_blocks_are_no_partners(store, featurizer):
    london, thames = (store.tokenizer.encode([text])[0] for text in ("London", "Thames"))
    before, fewer = Partners(store).rows(london, [thames], set()), BlockStore.open(store.path)
    fewer.__dict__["live"] = np.arange(len(store)) != before[0]  # a tombstone
    assert Partners(fewer).rows(london, [thames], set()) == before[1:]
