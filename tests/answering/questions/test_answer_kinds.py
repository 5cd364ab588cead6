"""What a question asks for, in six languages, and which spans are of that kind."""

import pytest

from realm.answering.questions.answer_kinds import asked_for


@pytest.mark.parametrize(("question", "language", "sort"), [
    ("When was Tesla born?", "en", "time"), ("In what year did the war end?", "en", "time"),
    ("How many touchdowns did Stewart have in 13 games?", "en", "count"), ("In 2011, who was the first player to be chosen?", "en", "who"),
    ("What city hosted Super Bowl 50?", "en", "where"), ("In welchem Jahr wurde sie gebaut und wo?", "de", "time"),
    ("Wie viele Einwohner hat die Stadt?", "de", "count"), ("¿Cuándo nació el rey de España?", "es", "time"),
    ("¿Quién pintó el cuadro?", "es", "who"), ("En quelle année est-il né ?", "fr", "time"),
    ("Où se trouve le musée ?", "fr", "where"), ("这座桥是什么时候建成的？", "zh", "time"), ("谁是市长？", "zh", "who"),
    ("서울의 시장은 누구인가?", "ko", "who"), ("그는 몇 년에 태어났는가?", "ko", "time"),
])  # fmt: skip
def test_it_asks_for(question, language, sort):
    asked = asked_for(question)
    assert asked is not None and (asked.language, asked.sort) == (language, f"asks_{sort}")


@pytest.mark.parametrize("question", [
    "What is the capital of Peru?", "What did he do when it rained?", "When it rained, what did he do?",
    "How does it work?", "Wie heißt der Turm?", "capital of Peru", "", "誰が市長ですか。いつから？",
])  # fmt: skip
def test_it_asks_for_anything(question):
    assert asked_for(question) is None


@pytest.mark.parametrize(("question", "text", "yes", "no"), [
    ("When did it open?", "The Toller Bridge opened in May 1911 with two lanes.", "May 1911", "Toller Bridge"),
    ("How many lanes has it?", "The Toller Bridge opened in May 1911 with two lanes.", "two lanes", "Toller Bridge"),
    ("How many lanes has it?", "The bridge opened in May with 4 lanes.", "4 lanes", "bridge"),
    ("Wann ist es offen?", "Die Brücke von Toller ist montags offen.", "montags", "Toller"),
    ("When was it planned?", "Toller planned it in the early 1960s.", "early 1960s", "Toller"),
    ("Who opened it?", "It was opened by Sofia Moretti in 1911.", "Sofia Moretti", "1911"),
    ("Where is it?", "It was built in 1911 near Warsaw, of stone.", "Warsaw", "1911"),
    ("这座桥是什么时候建成的？", "托勒桥于1911年建成。", "1911年", "托勒桥"),
])  # fmt: skip
def test_spans_of_that_kind(question, text, yes, no):
    asked = asked_for(question)
    assert [asked.answered_by(text, text.index(span), text.index(span) + len(span)) for span in (yes, no)] == [True, False]
