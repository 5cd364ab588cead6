"""How much is claimed of an answer."""

import pytest

from realm.answering.levels import held, leveled
from realm.answering.records import Answer, Evidence

PASSAGE = "Our dental insurance is with MetLife; ask Petra for the café card."


def found(question, confidence):
    block = Evidence("d", 1, "Benefits", PASSAGE, 1.0, 0.5, "MetLife", 29, 36, 0)
    return Answer(question, "MetLife", 0.5, (block,), {}, {}, confidence)


@pytest.mark.parametrize(("question", "confidence", "below", "level"), [
    ("Who is our dental insurance with?", 0.9, 0.2, "answer"),
    ("Who is our dental insurance with?", 0.3, 0.2, "probably"),
    ("Who is our dental insurance with?", 0.6, 0.7, "closest"),
    ("Who is our dental insurance with?", 0.1, 0.2, "closest"),
    ("CAFE CARDS", 0.1, 0.2, "closest"),
    ("Which planet has the most moons?", 0.1, 0.2, "nothing"),
    ("Where?", 0.0, 0.0, "probably"),
])  # fmt: skip
def test_levels(question, confidence, below, level):
    answer = leveled(found(question, confidence), below)
    assert answer.level == level and answer.abstained == (confidence < below)
    assert leveled(Answer(question, "", 0.0, (), {}, {}), 0.1).level == "nothing"
    assert leveled(found(question, None), 0.6).abstained and not leveled(found(question, None), 0.4).abstained, (
        "without confidence p counts"
    )


@pytest.mark.parametrize(("question", "text", "share"), [
    ("When is the inspection due?", "The car has its inspection in October.", 0.5),
    ("How old is the porter?", "The porter is in from seven to three.", 0.5),
    ("What did the tickets cost?", "We sing on Wednesdays.", 0.0),
    ("Who is it?", "Ann.", 1.0),
])  # fmt: skip
def test_the_share_of_the_questions_words_that_the_answers_block_holds(question, text, share):
    block = Evidence("d", 0, "", text, 1.0, 0.5, "", 0, 0, 0)
    other = Evidence("e", 1, "", question, 0.0, 0.1, "", 0, 0, 0)
    assert held(Answer(question, "x", 0.5, (block, other), {}, {})) == share
    assert held(Answer(question, "", 0.0, (), {}, {})) == 0.0
