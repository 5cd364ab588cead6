"""Questions and the form of their answers; what of a text is shown for a span."""

import pytest

from realm.answering.questions.forms import LONGEST_SHOWN, form_of, shown

QUESTIONS = {
    "span": """Who founded Debian?|how many eggs|Is it red or blue?|What is the default port?|What is the capital of France?
    |When was it built?|Who is our dental insurance with?|dental insurance provider|How long is the lease?|combien de jours
    |Wie viele Tage Urlaub habe ich?""",
    "yes_no": """Is smoking allowed?|Can I bring my dog?|does it run on Windows|Ist Rauchen erlaubt?|Est-ce que je peux fumer ?
    |¿Se puede fumar?|可以吸烟吗？""",
    "sentence": """How do I renew a lease?|Why does it fail?|What is systemd?|What is a virtual machine?|Which option prints the version?
    |What happens if I miss a payment?|What is a default on a loan?|What is net book value?|What does bcrypt do?
    |Warum ist das so?|¿Cómo pago?|为什么?|What is the difference between a and b?""",
    "list": "What are the opening hours?|list the members|Which steps come first?|quelles sont les heures ?|有哪些文件？",
}
ITEMS = "Bring:\n- a towel\n- soap\n- shoes"
RULES = (
    f"Rules. Smoking is not allowed in the house. Dogs are allowed in the garden. No, not even on Sundays.\n{ITEMS}\nThen go. {'x' * 2000}"
)


@pytest.mark.parametrize(("form", "question"), [(form, one.strip()) for form, all_ in QUESTIONS.items() for one in all_.split("|")])
def test_the_opening_of_a_question_says_the_form(form, question):
    assert form_of(question) == form


@pytest.mark.parametrize(("question", "words", "kind", "said", "expected"), [
    ("Where is smoking not allowed?", "the house", "span", "", "the house"),
    ("Is smoking allowed in the house?", "not allowed", "yes_no", "no", "Smoking is not allowed in the house."),
    ("Are dogs allowed in the garden?", "Dogs", "yes_no", "yes", "Dogs are allowed in the garden."),
    ("Is swimming forbidden on Sundays?", "Dogs", "yes_no", "", "Dogs are allowed in the garden."),
    ("Can I smoke there?", "on Sundays", "yes_no", "no", "No, not even on Sundays."),
    ("Why must smokers leave?", "Smoking", "sentence", "", "Smoking is not allowed in the house."),
    ("What are the things to bring?", "soap", "list", "", ITEMS),
    ("What are the rules?", "Dogs", "sentence", "", "Dogs are allowed in the garden."), ("How do I prepare?", "soap", "list", "", ITEMS),
])  # fmt: skip
def test_what_is_shown_holds_the_span(question, words, kind, said, expected):
    start = RULES.index(words)
    found = shown(question, RULES, start, start + len(words))
    assert (found.kind, found.said, RULES[found.start : found.end]) == (kind, said, expected)


def test_what_is_shown_is_bounded_and_an_empty_span_stays_one():
    start = RULES.index("x" * 2000) + 700
    found = shown("Why so?", RULES, start, start + 5)
    assert found.start <= start and found.end >= start + 5 and found.end - found.start <= LONGEST_SHOWN + 5
    assert shown("Why so?", "", 0, 0).kind == "span"
