"""How much is claimed of an answer."""

import pytest

from realm.answering.levels import level_of, leveled
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


@pytest.mark.parametrize(("question", "level"), [("What is the bridge made of?", "closest"), ("Who paints the oar?", "nothing")])
def test_a_word_counts_within_a_compound_and_a_short_one_only_whole(question, level):
    assert level_of(question, 0.1, 0.2, ["A footbridge of oak boards spans the Aln."]) == level
