"""Chinese and Korean documents: where answers stand in their blocks, and which runs of characters recur."""

from collections import Counter

import numpy as np
import pytest
from small import corpus_of

from realm.documents.store.blocks import BlockStore
from realm.evaluation.measures import Relevance, f1_of, is_correct
from realm.evaluation.places import characters_of_wordpieces, locate_answers
from realm.models.types import Question
from realm.text.matching.answers import normalised_ranges
from realm.training.masking.recurring import RecurringSpans

DOCUMENTS = [
    ("广茂", "广茂铁路", "广茂铁路是中国广东省一条铁路，由三茂铁路股份有限公司管理，全长364.6公里。它在2004年2月29日接管了“广三铁路”。"),
    ("三茂", "三茂公司", "三茂铁路股份有限公司管理广茂铁路。公司在2004年成立，前称《广东三茂》。"),
    ("임종석", "임종석", "임종석은 1989년 2월 15일 여의도 농민 시위를 주도하였다. 그는 경희대학교 학생회관에서 체포되었다."),
    ("여의도", "여의도", "여의도는 서울의 섬이다. 1989년 여의도 농민 시위가 있었고 KBS가 보도하였다."),
    ("english", "Railway", "The Guangmao Railway (广茂铁路) was run by the Sanmao company since 2004."),
]
QUESTIONS = [
    Question("company", "广茂铁路由谁管理？", ("三茂铁路股份有限公司",)),
    Question("day", "什么时候接管？", ("2004年2月29日",)), Question("title", "前称什么？", ("《广东三茂》。",)),
    Question("railway", "什么铁路？", ("广茂铁路",)), Question("person", "주도한 사람은?", ("임종석",)),
    Question("place", "어디에서?", ("여의도", "경희대학교 학생회관")), Question("kbs", "누가 보도하였는가?", ("KBS",)),
    Question("nowhere", "谁？", ("北京大学",)), Question("year", "Since when?", ("2004",)),
]  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return BlockStore.open(corpus_of(tmp_path_factory.mktemp("scripts"), DOCUMENTS, vocab_size=600))


def marked(store, row, spans):
    text = store.block(row).text
    (pieces,) = characters_of_wordpieces(store, {row: text})
    return [text[pieces[start][0] : pieces[end - 1][1]] for start, end in spans]


def test_answers_are_found_character_by_character_as_recall_finds_them(store):
    texts = {row: store.block(row).text for row in range(len(store))}
    for question, found in zip(QUESTIONS, locate_answers(store, QUESTIONS), strict=True):
        wanted = {row: [text[a:b] for a, b in normalised_ranges(text, question.answers)] for row, text in texts.items()}
        assert {row: marked(store, row, spans) for row, spans in found.items()} == {row: there for row, there in wanted.items() if there}
    relevance, rows = Relevance(store), np.arange(len(store))
    for question, found in zip(QUESTIONS, locate_answers(store, QUESTIONS), strict=True):
        assert rows[relevance.by_answer(question, rows)].tolist() == sorted(found)


def test_what_is_found_where(store):
    found = dict(zip((q.id for q in QUESTIONS), locate_answers(store, QUESTIONS), strict=True))
    where = {name: {store.doc_id(row) for row in spans} for name, spans in found.items()}
    assert where["company"] == {"广茂", "三茂"} and where["day"] == {"广茂"} and where["title"] == {"三茂"}
    assert where["railway"] == {"广茂", "三茂", "english"}, "in brackets of an English text, too"
    assert where["person"] == {"임종석"} and where["place"] == {"임종석", "여의도"} and where["kbs"] == {"여의도"}
    assert where["year"] == {"广茂", "三茂", "english"} and not where["nowhere"]
    (row,) = [row for row in found["person"] if store.doc_id(row) == "임종석"]
    assert marked(store, row, found["person"][row]) == ["임종석"], "without the particle glued to it"


def test_answers_are_scored_as_their_question_is_written():
    question = QUESTIONS[2]
    assert is_correct("广东三茂", question) and not is_correct("广东", question)
    assert f1_of("广东", question) == pytest.approx(2 * 2 / (2 + 4))
    assert f1_of("임종석은", QUESTIONS[4]) == pytest.approx(2 * 3 / (4 + 3))


def test_runs_of_characters_recur(store):
    """What two documents share is hidden as a run of characters, never as a single one."""
    spans, hidden = RecurringSpans(store, store, shown=60, unsalient=1.0), set()
    for row in range(len(store)):
        (pieces,) = characters_of_wordpieces(store, {row: store.block(row).text})
        starts = store.sentences(row).tokens[:, 0]
        for number, found in spans.maskable(row, 60, Counter()):
            first = int(starts[number])
            hidden |= {store.block(row).text[pieces[first + min(a, b)][0] : pieces[first + max(a, b) - 1][1]] for a, b in found}
    assert hidden and all(len(one) > 1 for one in hidden)
    assert any("铁路" in one for one in hidden) and any("농민" in one or "여의도" in one for one in hidden)
