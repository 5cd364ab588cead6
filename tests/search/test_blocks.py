"""Where a hidden span stands in a block: as answers are compared, against the slow way through the text."""

import math
from itertools import pairwise

import numpy as np
import pytest
from corpus_with_twins import DOCUMENTS
from small import corpus_of

from realm.documents.store.blocks import BlockStore
from realm.search.blocks import SMOOTHING, SpanPlaces
from realm.text.matching.answers import normalize_answer
from realm.text.wordpieces import word_table


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return BlockStore.open(corpus_of(tmp_path_factory.mktemp("twins"), DOCUMENTS, vocab_size=400))


@pytest.fixture(scope="module")
def places(store):
    return SpanPlaces(store)


def row_of(store, document):
    return int(store.live_rows_of_document(document)[0])


def test_places_are_whole_words_whatever_their_case_and_punctuation(store, places):
    row = row_of(store, "france")
    body = store.token_ids(row).tolist()
    spelled = [store.tokenizer.encode([text])[0] for text in ("Paris", "paris,", "the Paris.", "  PARIS ")]
    found = [places.places(row, ids) for ids in spelled]
    assert found[0] and all(other == found[0] for other in found)
    assert [store.tokenizer.decode(body[a:b]).strip().lower() for a, b in found[0]] == ["paris"]
    assert places.places(row, store.tokenizer.encode(["the"])[0]) == [] == places.places(row, store.tokenizer.encode(["."])[0])
    row = row_of(store, "london")
    assert places.places(row, store.tokenizer.encode(["Lon"])[0]) == []
    assert places.places(row, store.tokenizer.encode(["don"])[0]) == []
    assert len(places.places(row, store.tokenizer.encode(["London"])[0])) == 3


def test_all_spans_of_whole_words_are_found_where_their_text_is(store, places):
    """Every span of one to three words of every block, looked up in every block: against the decoded words, one by one."""
    starts = word_table(store.tokenizer).starts
    for row in range(len(store)):
        body = store.token_ids(row).tolist()
        borders = [at for at in range(len(body)) if starts[body[at]]] + [len(body)]
        words = [normalize_answer(store.tokenizer.decode(body[a:b])) for a, b in pairwise(borders)]
        for width in (1, 2, 3):
            for first in range(len(words) - width + 1):
                if not words[first] or not words[first + width - 1]:
                    continue
                key = "".join(words[first : first + width])
                wanted = {
                    (borders[a], borders[b])
                    for a in range(len(words))
                    for b in range(a + 1, len(words) + 1)
                    if words[a] and words[b - 1] and "".join(words[a:b]) == key
                }
                assert set(places.places(row, body[borders[first] : borders[first + width]])) == wanted


def test_the_prior_is_the_smoothed_share_of_salient_spans(store, places):
    keys = [places.key(store.token_ids(row)[a:b].tolist()) for row in range(len(store)) for a, b in store.spans(row).tokens.tolist()]
    keys, paris = [key for key in keys if key], store.tokenizer.encode(["Paris"])[0]
    total = len(keys) + SMOOTHING * (len(set(keys)) + 1)
    assert places.log_prior(paris) == pytest.approx(math.log((keys.count("paris") + SMOOTHING) / total))
    assert places.log_prior(store.tokenizer.encode(["zebra crossing"])[0]) == pytest.approx(math.log(SMOOTHING / total))
    assert keys.count(places.likeliest) == max(np.unique(keys, return_counts=True)[1])
