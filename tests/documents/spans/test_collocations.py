"""Terms of scripts without letter case: planted terms are found in made-up text, and nothing is tagged where case decides."""

import random

import pytest

from realm.documents.spans.collocations import CollocationCounts, CollocationTagger, mostly_caseless

HAN = [chr(code) for code in range(0x4E00, 0x4E00 + 400)]
ARABIC = ["".join(random.Random(number).choices("ابتثجحخدرزسشصضطعغفقكلمنهوي", k=4)) for number in range(300)]


def planted(units, lengths, joint="", seed=3):
    """Sentences of random units with 20 terms planted in them, each about 30 times, and the terms."""
    source = random.Random(seed)
    terms = [joint.join(source.sample(units, lengths[number % len(lengths)])) for number in range(20)]
    sentences = []
    for number in range(600):
        words = [source.choice(units) for _ in range(source.randint(8, 16))]
        words.insert(source.randint(1, len(words) - 1), terms[number % 20])
        sentences.append(joint.join(words) + "。")
    return sentences, terms


def learned(sentences, **options):
    counts = CollocationCounts(**options)
    counts.add(sentences)
    return CollocationTagger(counts.terms())


def marked(tagger, text):
    return [text[span.start : span.end] for span in tagger.tag(text)]


@pytest.mark.parametrize(("units", "lengths", "joint"), [(HAN, (2, 3, 4, 7), ""), (ARABIC, (2, 3, 4), " ")], ids=["zh", "ar"])
def test_planted_terms_are_found_and_little_else(units, lengths, joint):
    sentences, terms = planted(units, lengths, joint)
    tagger = learned(sentences)
    found = [marked(tagger, sentence) for sentence in sentences]
    assert sum(terms[number % 20] in spans for number, spans in enumerate(found)) >= 0.95 * len(sentences)
    assert sum(len(spans) for spans in found) <= 1.1 * len(sentences)
    assert set(terms) <= tagger.terms


def test_pieces_of_terms_and_sentences_with_case_are_not_tagged():
    sentences, terms = planted(HAN, (5,))
    pieces = {term[:stop] for term in terms for stop in range(2, 5)} | {term[start:] for term in terms for start in range(1, 4)}
    assert not pieces & learned(sentences).terms
    tagger = CollocationTagger(["东京", "مدينة القاهرة"])
    assert marked(tagger, "他住在东京。") == ["东京"]
    assert marked(tagger, "زار مدينة القاهرة امس") == ["مدينة القاهرة"]
    assert marked(tagger, "He lives in 东京 and likes it.") == []
    assert marked(tagger, "") == []


def test_the_same_however_it_is_called_and_bounded():
    sentences, terms = planted(HAN, (3, 4))
    once, twice = CollocationCounts(), CollocationCounts()
    once.add(sentences)
    for sentence in sentences:
        twice.add([sentence])
    assert once.terms() == twice.terms()
    small = CollocationCounts(most_entries=10_000)
    small.add(sentences)
    assert sum(map(len, small._counts.values())) <= 10_000
    assert len(set(terms) & set(small.terms())) >= 15


@pytest.mark.parametrize(
    ("text", "caseless"),
    [("他住在东京。", True), ("彼はNHKで働く。", True), ("Он живёт", False), ("plain", False), ("Tokyo (东京)", False), ("१२३", False)],
)
def test_mostly_caseless(text, caseless):
    assert mostly_caseless(text) is caseless


def test_a_run_of_katakana_is_one_word_and_grammar_is_no_term():
    tagger = learned(
        [f"それは{word}です。" for word in ("ベルリン", "ブランデンブルク", "ハウス") for _ in range(5)] + ["それはテレビだ。"]
    )
    assert tagger.terms == {"ベルリン", "ブランデンブルク", "ハウス"}
    assert marked(tagger, "ベルリンとブランデンブルクハウス") == ["ベルリン"]
    sentences, _ = planted(HAN, (3,))
    common = "我们"
    assert common not in learned([common + sentence for sentence in sentences]).terms
