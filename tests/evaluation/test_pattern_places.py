"""Where patterns match, as wordpieces: against the standard library's engine and every span of every block; hostile patterns."""

import itertools
import re
import shutil
import time

import numpy as np
import pytest
from small import corpus_of

from realm.documents.change.updates import remove_documents
from realm.documents.store.blocks import BlockStore
from realm.evaluation.places import NO_SPAN, Spans, locate_answers, locate_patterns
from realm.models.types import Question
from realm.text.matching.answers import regex_match
from realm.text.matching.patterns import PatternSearch

PATTERNS = [
    "1[0-9]{3}", "pound\\s+sterling", "\\s?euro", "Besan\\w+",
    "ames",  # begins inside of a wordpiece: in a text, and no answer
    "t.*n", "the", "Paris and|Paris", "x*",
    "|London",  # the empty string comes first everywhere, and London after it
    "London|",
    "\\bof\\b(?= France)",  # right in the text, and not by itself
    "^The", "[.]", "\\s", "(", "nowhere",
]  # fmt: skip
HOSTILE = "([\\w ]|\\w)+\\d{9}"


def slow_places(store, pattern):
    """Every match of the standard library's engine in every block, every span of wordpieces tried for each."""
    found = {}
    for row in range(len(store)):
        text = store.block(row).text
        ids, offsets = store.tokenizer.encode_offsets(text)
        assert ids == store.token_ids(row).tolist()
        for match in re.finditer(pattern, text, re.IGNORECASE | re.UNICODE | re.MULTILINE):
            if not match.group():
                continue
            touched = [at for at, (start, end) in enumerate(offsets) if start < match.end() and end > match.start()]
            spans = found.setdefault(row, [])
            for first in range(len(ids)):
                for last in range(first, len(ids)):
                    right = regex_match(text[offsets[first][0] : offsets[last][1]], [pattern])
                    if right and touched == list(range(first, last + 1)) and (first, last + 1) not in spans:
                        spans.append((first, last + 1))
    return {row: sorted(spans) for row, spans in found.items()}


def test_places_are_those_of_a_slow_search(store):
    found = locate_patterns(store, PATTERNS, PatternSearch())
    assert set(found) == set(PATTERNS) - {"("}
    for pattern, table in found.items():
        assert Spans(table) == slow_places(store, pattern), pattern
    assert Spans(found["pound\\s+sterling"]) and not Spans(found["x*"]) and found["|London"].tolist() == found["London|"].tolist()
    inside = Spans(found["ames"])
    assert inside and not any(inside.values()), "the block holds it, and nothing can be marked"


def test_a_question_has_the_places_of_all_its_patterns(store):
    patterns = ("Paris", "(", "1666|Paris", "ames")
    (found,) = locate_answers(store, [Question("q", "?", patterns, answer_type="regex")])
    expected = {}
    for pattern in ("Paris", "1666|Paris", "ames"):
        for row, spans in slow_places(store, pattern).items():
            expected[row] = expected.get(row, set()) | set(spans)
    assert {row: set(spans) for row, spans in found.items()} == expected
    assert all(len(spans) == len(set(spans)) for spans in found.values())
    again = locate_answers(store, [Question("q", "?", patterns, answer_type="regex"), Question("s", "?", ("Paris",))])
    assert again[0] == found and again[1], "strings and patterns side by side"


def test_several_sentences_and_batches(tmp_path, monkeypatch):
    """A match over the end of a sentence; blocks tokenised a few at a time; a document that was removed."""
    monkeypatch.setattr("realm.evaluation.places.BATCH", 2)
    texts = [f"Town {at} stands here.  It was\u00a0built in {1800 + at}. Nobody knows Zürich's {at}th mayor." for at in range(5)]
    documents = [(str(at), "T", text) for at, text in enumerate(texts)]
    store, told = BlockStore.open(corpus_of(tmp_path, documents, vocab_size=300)), []
    patterns = ["here\\.\\s+It", "\\d+", "zürich.s", "180[0-9]\\."]
    found = locate_patterns(store, patterns, PatternSearch(), lambda done, total: told.append((done, total)))
    for pattern in patterns:
        assert len(Spans(found[pattern])) == 5 and Spans(found[pattern]) == slow_places(store, pattern)
    assert told == [(0, 5), (2, 5), (4, 5), (5, 5)]
    shutil.copytree(tmp_path / "corpus", tmp_path / "less")
    remove_documents(tmp_path / "less", ["3"])
    less = BlockStore.open(tmp_path / "less")
    assert {less.doc_id(row) for row in Spans(locate_patterns(less, ["\\d+"], PatternSearch())["\\d+"])} == {"0", "1", "2", "4"}


def test_a_pattern_that_never_ends_is_given_up(store):
    search, began = PatternSearch(timeout_s=0.1), time.process_time()
    found = locate_patterns(store, [HOSTILE, "Paris"], search)
    assert list(found) == ["Paris"] and search.gave_up(HOSTILE) and search.too_slow == [HOSTILE]
    assert time.process_time() - began < 20, "not its time limit in every block, let alone for ever"


@pytest.mark.parametrize(("seconds", "tries"), [(0.1, 11), (1e-4, 100)])
def test_a_pattern_that_is_slow_everywhere_is_given_up(monkeypatch, seconds, tries):
    """It keeps within its limit in each text, and not within its share over all of them."""
    search, ticks = PatternSearch(grace_s=1.0), itertools.count()
    monkeypatch.setattr("realm.text.matching.patterns.time.thread_time", lambda: next(ticks) * seconds)
    tried = next((tried for tried in range(100) if search.gave_up("a") or not search.ranges("banana", "a")), 100)
    assert tried == tries


def test_ranges_beginnings_and_spans_as_a_mapping():
    search = PatternSearch()
    assert search.ranges("In 1969 and 1970", "19\\d\\d") == [(3, 7), (12, 16)] and search.ranges("aaa", "b*") == []
    assert search.ranges("x", "(") == [] and not search.begins("x", "(")
    assert search.begins("1969 or so", "19\\d\\d") and not search.begins("in 1969", "19\\d\\d")
    spans = Spans.union([np.array([(7, 4, 5), (7, 1, 2), (7, 1, 2), (3, *NO_SPAN), (900_000, 0, 9)], np.int32)])
    assert spans == {3: [], 7: [(1, 2), (4, 5)], 900_000: [(0, 9)]} and spans.rows.tolist() == [3, 7, 900_000]
    assert spans.get(5, []) == spans.get(1_000_000, []) == [] and 7 in spans and 8 not in spans
    with pytest.raises(KeyError):
        spans[4]
    assert Spans.union([spans.table, np.array([(3, *NO_SPAN), (3, 2, 4), (8, 0, 1)], np.int32)]) == {**spans, 3: [(2, 4)], 8: [(0, 1)]}
    assert not Spans.union([]) and Spans.union([]).rows.tolist() == []
