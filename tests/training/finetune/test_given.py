"""Questions with their paragraphs: how rows bring them, where answers are marked, how long paragraphs are cut, what is refused."""

import json
from itertools import pairwise

import numpy as np
import pytest

from realm.errors import DataError
from realm.evaluation.questions.loading import load_questions, read_questions, write_questions
from realm.evaluation.questions.rows import QuestionOptions
from realm.models.featurize import Featurizer
from realm.models.types import Question
from realm.text.tokenizer import train_wordpiece
from realm.training.finetune.given import GivenParagraphs, answer_places

PARAGRAPH = "The boiler was replaced on 14 March 2024 by Hartmann Heating. Hartmann Heating also fitted a pump in 2024."
ROWS = {
    "every occurrence": ({"answers": ["Hartmann Heating"]}, ()),
    "marked": ({"answers": ["Hartmann Heating"], "starts": [44]}, ((44, 60),)),
    "Hugging Face": ({"answers": {"text": ["2024", "2024"], "answer_start": [36, 101]}}, ((36, 40), (101, 105))),
    "starts that are not the answers'": ({"answers": ["2024", "in 2024"], "starts": [36]}, ()),
}


def write(path, *rows):
    path.write_text("".join(json.dumps({"question": "Who?", "context": PARAGRAPH, **row}) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ROWS)
def test_rows_bring_their_paragraph(name, tmp_path):
    row, places = ROWS[name]
    (question,) = load_questions(write(tmp_path / "q.jsonl", row | {"title": "Notes"}))
    assert (question.context, question.title, question.places) == (PARAGRAPH, "Notes", places)
    write_questions(tmp_path / "again.jsonl", [question])
    assert load_questions(tmp_path / "again.jsonl") == [question]


@pytest.mark.parametrize("start", [0, 45, -1, "44"])
def test_an_offset_that_does_not_fit_is_named(start, tmp_path):
    with pytest.raises(DataError, match=r"does not have 'Hartmann Heating' at .*answer_start") as caught:
        load_questions(
            write(
                tmp_path / "q.jsonl",
                {"answers": {"text": ["2024"], "answer_start": [36]}},
                {"answers": ["Hartmann Heating"], "starts": [start]},
            )
        )
    assert caught.value.line == 2


def test_unanswerable_questions_are_kept_where_they_are_wanted(tmp_path):
    path = write(tmp_path / "q.jsonl", {"answers": []}, {"answers": ["2024"]})
    assert sum(read_questions(path).skipped.values()) == 1 and len(load_questions(path)) == 1
    assert [question.answers for question in load_questions(path, QuestionOptions(unanswerable=True))] == [(), ("2024",)]
    (tmp_path / "q.jsonl").write_text('{"question": "Who?", "answers": []}\n')
    with pytest.raises(DataError, match="no answers"):
        load_questions(tmp_path / "q.jsonl", QuestionOptions(unanswerable=True))


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece([PARAGRAPH * 3], 200)


def given(tokenizer, question, block_length=288, max_span=10):
    special = tokenizer.special
    features = Featurizer(special.cls, special.sep, special.mask, special.pad, 32, block_length)
    return GivenParagraphs([question], tokenizer, features, max_span)


@pytest.mark.parametrize(("answers", "places", "said"), [
    (("Hartmann Heating",), (), ["Hartmann Heating", "Hartmann Heating"]), (("2024",), ((101, 105),), ["2024"]),
    (("hartmann heating", "pump"), (), ["Hartmann Heating", "Hartmann Heating", "pump"]),
    (("Hartmann Cooling",), (), []), ((), (), []), (("14 March 2024 by",), (), ["14 March 2024 by"]), (("(",), (), []),
])  # fmt: skip
def test_answers_are_spans_of_wordpieces(tokenizer, answers, places, said):
    found = given(tokenizer, Question("1", "Who?", answers, context=PARAGRAPH, places=places))
    (window,) = found.windows_of(0)
    offsets = found.paragraph(0).offsets
    assert [PARAGRAPH[offsets[start, 0] : offsets[end - 1, 1]] for start, end in window.gold.tolist()] == said
    assert len(found.windows) == (1 if said or not answers else 0), "what has an answer that is not there teaches nothing"


def test_punctuation_alone_is_found_as_it_is_written():
    assert answer_places(Question("1", "?", ("%",), context="90 % of it")) == [(3, 4)]


@pytest.mark.parametrize("title", ["", "House notes"])
@pytest.mark.parametrize("block_length", [20, 24, 31, 40])
def test_windows_cover_a_paragraph_and_fit_into_an_input(tokenizer, block_length, title):
    found = given(tokenizer, Question("1", "Who?", ("pump",), context=PARAGRAPH, title=title), block_length)
    windows, length = found.windows_of(0), len(found.paragraph(0).ids)
    assert {at for window in windows for at in range(window.first, window.last)} == set(range(length))
    assert windows[-1].last == length and all(after.first < before.last for before, after in pairwise(windows))
    assert any(len(window.gold) for window in windows)
    for window in windows:
        body = found.paragraph(0).ids[window.first : window.last].tolist()
        sequence, start = found.features.titled([7] * 40, found.title(0), body)
        assert sequence.ids[start:-1] == body and len(sequence) <= found.features.joint_length


def test_windows_of_long_answers_and_of_empty_paragraphs(tokenizer):
    question = Question("1", "When?", ("14 March 2024 by Hartmann Heating",), context=PARAGRAPH)
    assert len(given(tokenizer, question, max_span=30).windows) == 1 and not given(tokenizer, question, max_span=3).windows
    (window,) = given(tokenizer, Question("1", "Who?", (), context=" ")).windows_of(0)
    assert len(window) == 0 and window.gold.shape == (0, 2) and window.gold.dtype == np.int32
