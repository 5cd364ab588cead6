"""Answers in a corpus against plain search in every block: strings, patterns, Chinese and Korean."""

import itertools
import json
import re
import shutil
import time
from collections import Counter

import numpy as np
import pytest
from small import corpus_of
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from realm.documents.change.updates import remove_documents
from realm.documents.store.blocks import BlockStore
from realm.errors import DataError
from realm.evaluation.measures import Relevance, f1_of, is_correct
from realm.evaluation.places import (
    NO_SPAN,
    Spans,
    answer_wordpieces,
    characters_of_wordpieces,
    locate_answers,
    locate_patterns,
    require_readable,
    touched,
)
from realm.models.types import Question
from realm.text.matching.answers import normalised_ranges, normalize_answer, regex_match
from realm.text.matching.patterns import PatternSearch
from realm.training.masking.kinds import RecurringSpans

QUESTIONS = [
    Question("money", "?", ("the Pound-Sterling", "Pound sterling!", "pound sterling")),
    Question("part", "?", ("ames",)),  # characters of Thames, no word
    Question("case", "?", ("PARIS", "paris")), Question("accent", "?", ("Besanc\u0327on", "Besançon")),
    Question("nothing", "?", ("the", "?")), Question("nowhere", "?", ("Atlantis",)),
    Question("both", "?", ("London", "France")), Question("pattern", "?", ("1[0-9]{3}",), answer_type="regex"),
]  # fmt: skip


def doc_ids(store, rows):
    return {store.doc_id(row) for row in rows}


def test_rows_and_spans_are_those_of_a_search_in_every_block(store):
    texts = {row: store.block(row).text for row in range(len(store))}
    for question, found in zip(QUESTIONS, locate_answers(store, QUESTIONS), strict=True):
        if question.answer_type == "regex":
            assert set(found) == {row for row, text in texts.items() if PatternSearch().found(text, question.answers)}
        else:
            assert set(found) == {row for row, text in texts.items() if normalised_ranges(text, question.answers)}
            needles = [f" {normalize_answer(answer)} " for answer in question.answers]
            padded = {row: f" {normalize_answer(text)} " for row, text in texts.items()}
            assert set(found) == {row for row, text in padded.items() if any(needle.strip() and needle in text for needle in needles)}
    for found in locate_answers(store, QUESTIONS[:1] + QUESTIONS[6:7]):
        assert found and all(found.values()), "whole words stand in wordpieces"
        for row, spans in found.items():
            words = {store.tokenizer.decode(store.token_ids(row)[start:end].tolist()).lower() for start, end in spans}
            assert words <= {"pound sterling", "london", "france"} and len(spans) == len(set(spans)), "two spellings mark a span once"
    assert answer_wordpieces(store, QUESTIONS[-1]) == []


def test_words_are_compared_without_case_accents_composed_and_no_part_of_one(store):
    rows = dict(zip((q.id for q in QUESTIONS), locate_answers(store, QUESTIONS), strict=True))
    assert not rows["part"] and not rows["nothing"] and not rows["nowhere"]
    assert doc_ids(store, rows["case"]) == {"france", "london"} and doc_ids(store, rows["accent"]) == {"france"}
    assert doc_ids(store, rows["money"]) == {"uk", "pound"} and doc_ids(store, rows["pattern"]) == {"pound", "france", "london"}


WRITTEN = [
    "The art of the party: art, (Art). The artist's art-nouveau is no art's.",
    "Rock-n-roll, 1,000 of the “Beatles” and the Lord of the Rings! Lord of Rings; café, cafe, CAFÉ.",
    "In New York-based New York, N.Y., a/an U.S. firm paid $5 (5.0 ~ 5) to J. R. R. Tolkien\u00a0today.",
    "東京 is Tokyo. Ωmega ᚠᚢ art ᚠ. '' -- art",
    "Tesla’s Wardenclyffe–Shoreham line, pre-1990-based, 10-15 d'or; Côte-d'Or's é-é--é'x.",
]
ASKED = [
    "art", "arts", "Art!", "rocknroll", "1000", "Beatles", "lord of rings", "café", "cafe", "New York", "ny", "US", "5", "j r r tolkien",
]  # fmt: skip
ASKED += ["j r r tolkien", "Tolkien today", "Tokyo", "東京", "--", "nowhere at all", "ᚠ", "“Beatles” and lord"]
ASKED += ["Tesla", "Wardenclyffe", "Shoreham line", "1990", "10", "or", "é", "x", "Côte d'Or"]


@pytest.fixture(scope="module", params=["spaces", "bytes", "tiny"])
def written(request, tmp_path_factory):
    """Corpora of texts that are hard to take apart: by BERT's tokenizer, by one whose tokens cross words, with hardly a wordpiece known."""
    root = tmp_path_factory.mktemp(request.param)
    tokenizer = None
    if request.param != "spaces":
        backend = Tokenizer(models.BPE(unk_token="<unk>") if request.param == "bytes" else models.WordPiece(unk_token="<unk>"))
        special = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
        if request.param == "bytes":
            backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
            trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
        else:
            backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
            trainer = trainers.WordPieceTrainer(vocab_size=60, limit_alphabet=20, special_tokens=special, show_progress=False)
        backend.train_from_iterator(WRITTEN, trainer)
        backend.save(str(root / "tokenizer.json"))
        tokenizer = str(root / "tokenizer.json")
    rows = [(str(n), f"Title {n}", text) for n, text in enumerate(WRITTEN * 2)]
    return BlockStore.open(corpus_of(root, rows, tokenizer=tokenizer, vocab_size=400))


@pytest.mark.parametrize("portion", [3, 256])
def test_words_are_marked_where_they_stand_and_nowhere_else(written, portion, monkeypatch):
    """Against a search by characters, row by row: "art" stands in a row that has "party", too, and is marked once."""
    monkeypatch.setattr("realm.evaluation.places.BATCH", portion)
    told = []
    questions = [Question(answer, "?", (answer,)) for answer in ASKED] + [Question("several", "?", tuple(ASKED))]
    located = locate_answers(written, questions, counting=lambda done, total: told.append(done))
    texts = {row: written.block(row).text for row in range(len(written))}
    wordpieces = characters_of_wordpieces(written, texts)
    assert told == list(range(portion, len(written), portion))
    for question, found in zip(questions, located, strict=True):
        expected = set()
        for row, text in texts.items():
            for begin, end in normalised_ranges(text, question.answers):
                first, last = (int(at[0]) for at in touched(wordpieces[row], np.array([begin]), np.array([end])))
                expected.add((row, first, last) if first < last else (row, *NO_SPAN))
        assert set(map(tuple, found.table.tolist())) == expected, question.id


def test_recall_finds_what_training_finds(written):
    relevance, rows = Relevance(written), np.append(np.arange(len(written)), -1)
    questions = [Question(answer, "?", (answer,)) for answer in ASKED] + [Question("several", "?", tuple(ASKED))]
    for question, found in zip(questions, locate_answers(written, questions), strict=True):
        assert rows[relevance.by_answer(question, rows)].tolist() == found.rows.tolist(), question.id


def test_answers_longer_than_a_block_are_named_by_line(store, tmp_path):
    short, long = {"question": "?", "answers": ["Paris"]}, {"question": "?", "answers": ["pound " * 400]}
    (tmp_path / "qa.jsonl").write_text(json.dumps(short) + "\n\n" + json.dumps(long) + "\n", "utf-8")
    with pytest.raises(DataError, match=r"qa.jsonl:3: the answer of '3' has .* wordpieces, a block holds 285"):
        require_readable(tmp_path / "qa.jsonl", store)
    (tmp_path / "qa.csv").write_text('question,answers\n"a\nb",Paris\nc,' + "pound " * 400 + "\n", "utf-8")
    with pytest.raises(DataError, match=r"qa.csv:4: "):
        require_readable(tmp_path / "qa.csv", store)


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


DOCUMENTS = [
    ("广茂", "广茂铁路", "广茂铁路是中国广东省一条铁路，由三茂铁路股份有限公司管理，全长364.6公里。它在2004年2月29日接管了“广三铁路”。"),
    ("三茂", "三茂公司", "三茂铁路股份有限公司管理广茂铁路。公司在2004年成立，前称《广东三茂》。"),
    ("임종석", "임종석", "임종석은 1989년 2월 15일 여의도 농민 시위를 주도하였다. 그는 경희대학교 학생회관에서 체포되었다."),
    ("여의도", "여의도", "여의도는 서울의 섬이다. 1989년 여의도 농민 시위가 있었고 KBS가 보도하였다."),
    ("english", "Railway", "The Guangmao Railway (广茂铁路) was run by the Sanmao company since 2004."),
]
SCRIPT_QUESTIONS = [
    Question("company", "广茂铁路由谁管理？", ("三茂铁路股份有限公司",)),
    Question("day", "什么时候接管？", ("2004年2月29日",)), Question("title", "前称什么？", ("《广东三茂》。",)),
    Question("railway", "什么铁路？", ("广茂铁路",)), Question("person", "주도한 사람은?", ("임종석",)),
    Question("place", "어디에서?", ("여의도", "경희대학교 학생회관")), Question("kbs", "누가 보도하였는가?", ("KBS",)),
    Question("nowhere", "谁？", ("北京大学",)), Question("year", "Since when?", ("2004",)),
]  # fmt: skip


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    return BlockStore.open(corpus_of(tmp_path_factory.mktemp("scripts"), DOCUMENTS, vocab_size=600))


def marked(store, row, spans):
    text = store.block(row).text
    (pieces,) = characters_of_wordpieces(store, {row: text})
    return [text[pieces[start][0] : pieces[end - 1][1]] for start, end in spans]


def test_answers_are_found_character_by_character_as_recall_finds_them(scripts):
    texts = {row: scripts.block(row).text for row in range(len(scripts))}
    for question, found in zip(SCRIPT_QUESTIONS, locate_answers(scripts, SCRIPT_QUESTIONS), strict=True):
        wanted = {row: [text[a:b] for a, b in normalised_ranges(text, question.answers)] for row, text in texts.items()}
        assert {row: marked(scripts, row, spans) for row, spans in found.items()} == {row: there for row, there in wanted.items() if there}
    relevance, rows = Relevance(scripts), np.arange(len(scripts))
    for question, found in zip(SCRIPT_QUESTIONS, locate_answers(scripts, SCRIPT_QUESTIONS), strict=True):
        assert rows[relevance.by_answer(question, rows)].tolist() == sorted(found)


def test_what_is_found_where(scripts):
    found = dict(zip((q.id for q in SCRIPT_QUESTIONS), locate_answers(scripts, SCRIPT_QUESTIONS), strict=True))
    where = {name: {scripts.doc_id(row) for row in spans} for name, spans in found.items()}
    assert where["company"] == {"广茂", "三茂"} and where["day"] == {"广茂"} and where["title"] == {"三茂"}
    assert where["railway"] == {"广茂", "三茂", "english"}, "in brackets of an English text, too"
    assert where["person"] == {"임종석"} and where["place"] == {"임종석", "여의도"} and where["kbs"] == {"여의도"}
    assert where["year"] == {"广茂", "三茂", "english"} and not where["nowhere"]
    (row,) = [row for row in found["person"] if scripts.doc_id(row) == "임종석"]
    assert marked(scripts, row, found["person"][row]) == ["임종석"], "without the particle glued to it"


def test_answers_are_scored_as_their_question_is_written():
    question = SCRIPT_QUESTIONS[2]
    assert is_correct("广东三茂", question) and not is_correct("广东", question)
    assert f1_of("广东", question) == pytest.approx(2 * 2 / (2 + 4))
    assert f1_of("임종석은", SCRIPT_QUESTIONS[4]) == pytest.approx(2 * 3 / (4 + 3))


def test_runs_of_characters_recur(scripts):
    """What two documents share is hidden as a run of characters, never as a single one."""
    spans, hidden = RecurringSpans(scripts, scripts, shown=60, unsalient=1.0), set()
    for row in range(len(scripts)):
        (pieces,) = characters_of_wordpieces(scripts, {row: scripts.block(row).text})
        starts = scripts.sentences(row).tokens[:, 0]
        for number, found in spans.maskable(row, 60, Counter()):
            first = int(starts[number])
            hidden |= {scripts.block(row).text[pieces[first + min(a, b)][0] : pieces[first + max(a, b) - 1][1]] for a, b in found}
    assert hidden and all(len(one) > 1 for one in hidden)
    assert any("铁路" in one for one in hidden) and any("농민" in one or "여의도" in one for one in hidden)
