"""Right or wrong as Google's open-QA evaluation says (language/orqa/utils/eval_utils.py), by a judge written from its description."""

import json
import re
import string
import unicodedata
from pathlib import Path

import pytest

from realm.evaluation.measures import is_correct
from realm.models.types import Question

PAIRS = [json.loads(line) for line in (Path(__file__).parent / "official_pairs.jsonl").read_text("utf-8").splitlines()]


def comparable(answer):
    kept = [c for c in unicodedata.normalize("NFD", answer).lower() if c not in string.punctuation]
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", "".join(kept)).split())


def judged_right(prediction, reference, kind):
    if kind == "string":
        return comparable(prediction) == comparable(reference)
    try:
        return re.match(reference, prediction, re.IGNORECASE | re.UNICODE | re.MULTILINE) is not None
    except re.error:
        return False


def test_there_are_enough():
    assert len({json.dumps(pair) for pair in PAIRS}) == len(PAIRS) >= 180
    verdicts = [any(judged_right(pair["prediction"], r, pair["type"]) for r in pair["references"]) for pair in PAIRS]
    assert min(sum(verdicts), len(verdicts) - sum(verdicts)) > 60, "a judge that always says the same agrees with nobody"


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: ascii(pair["prediction"])[1:-1])
def test_pair(pair):
    question = Question("q", "?", tuple(pair["references"]), answer_type=pair["type"])
    expected = max(judged_right(pair["prediction"], reference, pair["type"]) for reference in pair["references"])
    assert is_correct(pair["prediction"], question) == expected
