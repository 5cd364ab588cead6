"""Everyday forms of questions: each rule by a table, and none of them takes away what is asked."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from realm.answering.questions.everyday import CHANGED, everyday, keywords, mistyped, owned, without_mark


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("rule", "question", "forms"),
    [
        (without_mark, "When was it built ?", {"When was it built"}),
        (without_mark, "谁建的？", {"谁建的"}),
        (owned, "Who is the dental insurer?", {"Who is our dental insurer?", "Who is my dental insurer?"}),
        (owned, "Who founded the United Nations?", {"Who founded the United Nations?"}),
        (owned, "What is it?", {"What is it?"}),
        (keywords, "Who is the founder of the company in Oslo?", {"Who founder company Oslo"}),
        (keywords, "Who is it?", {"Who is it?"}),
        (mistyped, "How big?", {"How big?"}),
        (mistyped, "boiler", {"bioler", "bolier", "boielr", "boilre", "boler", "boier", "boilr", "boile"}),
    ],
)
def test_forms(rule: object, question: str, forms: set[str]) -> None:
    assert {rule(question, rng(seed)) for seed in range(40)} <= forms, question  # type: ignore[operator]


@given(st.text(max_size=60), st.integers(0, 2**32 - 1))
def test_any_text_has_a_form(text: str, seed: int) -> None:
    said = everyday(text, rng(seed))
    assert isinstance(said, str) and (said or not text.strip(" ?？") or not text)


def test_most_questions_stay_as_they_are() -> None:
    drawn = [everyday("Who is the dental insurer of the company?", rng(seed)) for seed in range(2000)]
    changed = sum(form != "Who is the dental insurer of the company?" for form in drawn) / len(drawn)
    assert 0.8 * CHANGED < changed <= 1.1 * CHANGED
    assert len(set(drawn)) > 8
