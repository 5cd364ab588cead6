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


def test_removed_blocks_are_no_partners(store, featurizer):
    london, thames = (store.tokenizer.encode([text])[0] for text in ("London", "Thames"))
    before, fewer = Partners(store).rows(london, [thames], set()), BlockStore.open(store.path)
    fewer.__dict__["live"] = np.arange(len(store)) != before[0]  # a tombstone
    assert Partners(fewer).rows(london, [thames], set()) == before[1:]
