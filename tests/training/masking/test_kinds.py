"""Every kind of masking over a real corpus: spans are whole, something stays to be seen, and everything is drawn by the generator alone."""

from collections import Counter

import numpy as np
import pytest
from small import corpus_of, features

from realm.documents.store.blocks import BlockStore
from realm.recipe.seeds import generator
from realm.text.wordpieces import word_table
from realm.training.masking.kinds import LENGTH_SHARES, MOST_WORDS, RandomSpans, UniformTokens, salient_spans
from realm.training.masking.sentences import MaskedSentences

WORDS = ["wind", "rain", "snow", "stone", "river", "field", "house", "garden", "window", "table", "apple", "bread", "water", "fire"]
NAMES = ["Arvad", "Belmor", "Carsin Dulwen", "Estrag", "Faldor", "Gantor Hestia"]


def texts():
    """Sentences of words in any order, with names, years and two terms that keep together among ever other neighbours."""
    rng, found = generator("texts"), []
    for number in range(60):
        sentences = []
        for term in ("northern light", "old sailors", ""):
            words = rng.permutation(WORDS).tolist()
            name, year = NAMES[int(rng.integers(len(NAMES)))], 1900 + int(rng.integers(100))
            parts = [*words[:3], *term.split(), *words[3:5], f"{name},", words[5], "in", str(year), *words[6 : 6 + number % 4]]
            sentences.append("The " + " ".join(parts) + ".")
        found.append(" ".join(sentences) + " No.")
    return found


@pytest.fixture(scope="module")
def terms_store(tmp_path_factory):
    """Documents that repeat "northern light" and "old sailors", and sentences of one word."""
    documents = [(str(n), f"t{n}", text) for n, text in enumerate(texts())]
    return BlockStore.open(corpus_of(tmp_path_factory.mktemp("terms"), documents, vocab_size=250))


def kinds(store):
    words = word_table(store.tokenizer)
    return {"salient": salient_spans(store), "spans": RandomSpans(store, words), "tokens": UniformTokens(store)}


def sentence_of(store, query):
    row = int(store.rows_of(np.array([query.origin]))[0])
    first, last = store.sentences(row).tokens[query.sentence].tolist()
    return store.token_ids(row)[first:last].tolist()


def stretches(positions):
    found = []
    for p in positions:
        if found and p == found[-1][1]:
            found[-1][1] += 1
        else:
            found.append([p, p + 1])
    return [(a, b) for a, b in found]


@pytest.mark.parametrize("length", [12, 64])
@pytest.mark.parametrize("name", ["salient", "spans", "tokens"])
def test_whatever_is_hidden_can_be_put_back(terms_store, name, length):
    """Targets restore the sentence, no target is cut by the query's end, some of the sentence is seen, and the draw is repeatable."""
    sentences = MaskedSentences(terms_store, features(terms_store, length), kinds(terms_store)[name])
    assert len(sentences) > 20
    varied = set()
    for item in range(0, len(sentences), max(1, len(sentences) // 20)):
        for draw in range(5):
            query = sentences.query(item, generator("m", item, draw))
            assert query.whole == sentence_of(terms_store, query)[: length - 2]
            assert query.positions == sorted(set(query.positions)) and 0 < len(query.positions) == len(query.targets) < len(query.ids)
            assert [p for p, token in enumerate(query.ids) if token == sentences.featurizer.mask] == query.positions
            assert query.origin in query.excluded
            again = sentences.query(item, generator("m", item, draw))
            assert (again.ids, again.positions, again.targets) == (query.ids, query.positions, query.targets)
            varied.add(tuple(query.positions))
    assert len(varied) > 1


def test_random_tokens_are_fifteen_percent_and_uniform(terms_store):
    sentences = MaskedSentences(terms_store, features(terms_store), UniformTokens(terms_store))
    item = max(range(len(sentences)), key=lambda i: sentences.spans_of(i)[0][1])
    length = sentences.spans_of(item)[0][1]
    draws = [sentences.query(item, generator("u", n)).positions for n in range(1000)]
    assert {len(positions) for positions in draws} == {round(0.15 * length)}
    hits = Counter(p for positions in draws for p in positions)
    assert set(hits) == set(range(length))
    expected = 1000 * round(0.15 * length) / length
    assert max(abs(count - expected) for count in hits.values()) < 5 * np.sqrt(expected)


def test_random_spans_are_whole_words_of_geometric_lengths(terms_store):
    words = word_table(terms_store.tokenizer)
    sentences = MaskedSentences(terms_store, features(terms_store), RandomSpans(terms_store, words, max_masks=10**6))
    item, lengths = max(range(len(sentences)), key=lambda i: sentences.spans_of(i)[0][1]), Counter()
    for n in range(1500):
        query = sentences.query(item, generator("g", n))
        ((start, end),) = stretches(query.positions)
        whole = query.whole
        assert words.starts[whole[start]] and (end == len(whole) or words.starts[whole[end]])
        lengths[int(words.starts[whole[start:end]].sum())] += 1
    shares = LENGTH_SHARES / LENGTH_SHARES.sum()
    assert set(lengths) == set(range(1, MOST_WORDS + 1))
    for length, count in lengths.items():
        assert count / 1500 == pytest.approx(shares[length - 1], abs=0.03)
    assert np.average(np.arange(1, MOST_WORDS + 1), weights=shares) == pytest.approx(3.8, abs=0.01)


def test_words_that_the_query_cuts_and_other_drops_are_counted(terms_store):
    words = word_table(terms_store.tokenizer)
    whole = MaskedSentences(terms_store, features(terms_store), RandomSpans(terms_store, words))
    for length in range(8, 20):
        cut = MaskedSentences(terms_store, features(terms_store, length), RandomSpans(terms_store, words))
        for item in range(0, len(cut), 11):
            query = cut.query(item, generator(item))
            full = sentence_of(terms_store, query)
            for _, end in stretches(query.positions):
                assert end == len(full) or words.starts[full[end]]
    assert len(whole) > 50
    words, live = word_table(terms_store.tokenizer), np.flatnonzero(terms_store.live)
    total = sum(len(terms_store.sentences(int(row)).tokens) for row in live)
    tokens = MaskedSentences(terms_store, features(terms_store), UniformTokens(terms_store))
    assert len(tokens) + tokens.dropped["fewer than two wordpieces"] == total
    spans = MaskedSentences(terms_store, features(terms_store), RandomSpans(terms_store, words, max_masks=1))
    assert len(spans) + spans.dropped["no word that can be hidden"] == total
    short = MaskedSentences(terms_store, features(terms_store, 12), salient_spans(terms_store, max_masks=1))
    assert short.spans + sum(short.dropped.values()) == sum(len(terms_store.spans(int(row)).tokens) for row in live)
    assert {"beyond the query length", "longer than max_masks"} <= set(short.dropped)
    assert all(f"{count:,} {reason}" in short.summary for reason, count in short.dropped.items())
