"""Questions of masked sentences, from blocks that state their spans in other words, and thinned sentences."""

from itertools import pairwise

import numpy as np
import pytest
from small import corpus_of, features

from realm.documents.store.blocks import BlockStore
from realm.models.types import MaskedQuery
from realm.training.masking.statements import WORD_DROP_RATE, WORDS_BESIDE_MASK, Statements, stating_sentence, thinned, thinned_cloze

SAID = "The old bridge of Arvad was finished in 1932 by masons."
DOCUMENTS = {
    "bridge": f"It is known to all. {SAID}",
    "same": f"The winter of 1932 was cold. {SAID}",
    "paper": "Nothing was missing here. In 1932 the old bridge of Arvad was opened, says the newspaper. Nobody was in doubt of it.",
    "guide": "It is a small town. The bridge near the town of Arvad was opened to all in 1932.",
    "rain": "It rained in Gantor for most of 1932.",
    "rome": "La torre e il ponte di Arvad nel 1932: old bridge finished, che non è la più bella del mondo e della città.",
}
PAPER = "When the old bridge of Arvad was opened, says the newspaper?"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    documents = [(key, "", text) for key, text in DOCUMENTS.items()]
    return BlockStore.open(corpus_of(tmp_path_factory.mktemp("statements"), documents, vocab_size=400))


@pytest.fixture(scope="module")
def statements(corpus):
    return Statements(corpus, corpus, features(corpus, 32))


def row_of(corpus, document):
    return int(corpus.rows_of_document(document)[0])


def span(corpus, text="1932"):
    return corpus.tokenizer.encode([text])[0]


def places(corpus, row, wanted):
    body = corpus.token_ids(row).tolist()
    return [(at, at + len(wanted)) for at in range(len(body)) if body[at : at + len(wanted)] == wanted]


def masked(corpus, document="bridge", sentence=1):
    row, wanted = row_of(corpus, document), span(corpus)
    first, last = corpus.sentences(row).tokens[sentence].tolist()
    ids = corpus.token_ids(row)[first:last].tolist()
    start = next(at for at in range(len(ids)) if ids[at : at + len(wanted)] == wanted)
    positions = list(range(start, start + len(wanted)))
    ids[start : start + len(wanted)] = [corpus.tokenizer.special.mask] * len(wanted)
    return MaskedQuery(ids, positions, wanted, int(corpus.block_ids[row]), sentence)


def found(corpus, *documents):
    rows = [row_of(corpus, document) for document in documents]
    return rows, [places(corpus, row, span(corpus)) for row in rows]


def test_the_statement_that_shares_most_is_found_and_asked(corpus, statements):
    for document in DOCUMENTS:
        rows, ((place, *_),) = found(corpus, document)
        statement = stating_sentence(corpus, rows[0], place)
        assert statement is not None and statement.text[statement.start : statement.end] == "1932"
        assert statement.text in DOCUMENTS[document]
    assert stating_sentence(corpus, row_of(corpus, "paper"), (0, 12)) is None  # more than a sentence
    rows, spans = found(corpus, "rain", "guide", "paper")
    for seed in range(4):
        assert statements.as_question(masked(corpus), rows, spans, np.random.default_rng(seed)).text == PAPER


def test_what_states_something_else_gives_no_question(corpus, statements):
    for documents in [
        ("rain",),
        ("rome",),
        ("bridge",),
        (),
    ]:  # another fact; a language without a table; the sentence's own document; nothing
        rows, spans = found(corpus, *documents)
        assert statements.as_question(masked(corpus), rows, spans, np.random.default_rng(0)) is None
    assert statements.as_question(masked(corpus), [-1, row_of(corpus, "paper")], [[], []], np.random.default_rng(0)) is None


def test_the_statement_s_blocks_are_excluded_and_the_sentence_s_own_allowed(corpus, statements):
    query = masked(corpus, "paper", 1)
    asked = statements.as_question(query, *found(corpus, "bridge"), np.random.default_rng(0))
    holding = {int(corpus.block_ids[row_of(corpus, document)]) for document in ("bridge", "same")}
    assert set(asked.excluded.tolist()) == holding and query.origin not in holding
    assert asked.origin == int(corpus.block_ids[row_of(corpus, "bridge")])
    assert asked.targets == span(corpus)
    assert asked.text == "When by masons, the old bridge of Arvad was finished?"
    assert asked.ids == corpus.tokenizer.encode([asked.text])[0][:30]


WORDS = 40
STARTS = np.arange(1000) % 3 != 2
"""Every third wordpiece goes on with a word: words of one wordpiece and of two, by turns."""
SENTENCE = list(range(3 * WORDS // 2))
MASK = 999


def words_of(ids):
    found = []
    for wordpiece in ids:
        if STARTS[wordpiece] or not found:
            found.append([])
        found[-1].append(wordpiece)
    return [tuple(word) for word in found]


def test_words_are_left_out_and_moved_but_something_is_left():
    before, kept, moved = words_of(SENTENCE), 0, 0
    assert len(before) == WORDS
    for seed in range(200):
        after = words_of(thinned(SENTENCE, STARTS, np.random.default_rng(seed)))
        assert set(after) <= set(before) and len(set(after)) == len(after)
        places = [before.index(word) for word in after]
        kept += len(after)
        moved += sum(a > b for a, b in pairwise(places))
    assert kept / (200 * WORDS) == pytest.approx(1 - WORD_DROP_RATE, abs=0.02) and 0.15 < moved / kept < 0.6
    assert thinned(SENTENCE, STARTS, np.random.default_rng(3)) == thinned(SENTENCE, STARTS, np.random.default_rng(3))
    assert all(thinned([3], STARTS, np.random.default_rng(seed)) == [3] for seed in range(50))
    assert thinned([], STARTS, np.random.default_rng(0)) == []


@pytest.mark.parametrize("place", [0, 21, 57])
def test_a_cloze_keeps_the_words_around_one_mask(place):
    ids = [*SENTENCE[:place], MASK, MASK, *SENTENCE[place + 2 :]]
    query, sizes = MaskedQuery(ids, [place, place + 1], SENTENCE[place : place + 2], origin=0), set()
    for seed in range(100):
        cloze = thinned_cloze(query, MASK, STARTS, np.random.default_rng(seed))
        at = cloze.index(MASK)
        assert cloze.count(MASK) == 1 and set(cloze[:at]) <= set(ids[:place]) and set(cloze[at + 1 :]) <= set(ids[place + 2 :])
        sizes.add(max(len(words_of(cloze[:at])), len(words_of(cloze[at + 1 :]))))
    assert max(sizes) < WORDS_BESIDE_MASK[1] + 1 and len(sizes) > 3
