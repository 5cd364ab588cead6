"""Questions made of statements: the span of each sentence stands in square brackets."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from realm.answering.questions.answer_kinds import LANGUAGES, detect_language, kind_of
from realm.answering.questions.templates import EVERYDAY_SHARE, everyday, keywords, mistyped, owned, question_from, without_mark

# language, kind, sentence, question; "|" parts questions of which one is drawn.
TABLE = """
en · person · The tower was built by [Gustave Eiffel] in 1889. · Who in 1889, the tower was built by?
en · date · The tower was built by Gustave Eiffel in [1889]. · When was the tower built by Gustave Eiffel?
en · date · In [1889] the tower opened to the public. · When the tower opened to the public?
en · date · On [31 March 1889], the tower was opened in Paris. · When the tower was opened in Paris?
en · date · The tower was opened on 31 March [1889] by the mayor. · When by the mayor, the tower was opened?
en · year · The Return is a [1937] American film by an unknown director. · What year American film by an unknown director, the Return is?
en · place · The engineer of the tower was born in [Dijon] in 1832. · Where in 1832, the engineer of the tower was born?
en · place · He was born in [Toronto], Ontario, to a family of lawyers. · Where to a family of lawyers, he was born?
en · person · [Marie Curie] discovered radium in 1898. · Who discovered radium in 1898?
en · number · The tower is [324 metres] tall. · How many metres tall, the tower is?
en · number · The city has about [5,200] people. · How many people, the city has?
en · amount · The final score of the match was [24]. · How many was the final score of the match?
en · money · The company paid [$3.5 million] for the land. · How much for the land, the company paid?
en · percent · About [45 %] of the people speak it. · What percentage of the people speak it?|How much of the people speak it?
en · person · However, [Chopin]'s first concert was given in Warsaw. · Whose first concert was given in Warsaw?
en · person · President Lyndon [Johnson] signed the law in Washington. · Who signed the law in Washington?
en · person · [Zhang Ye] (born 9 February 1989) is a Chinese footballer. · Who is a Chinese footballer?
en · institution · He studied at the [University of Göttingen]. · What organization he studied at?|What he studied at?
en · name · The duke divided the duchies of [Schleswig] and Holstein. · What the duke divided the duchies of?
en · name · The Ministries gave a foreign image in the [Yuan] administration. · What administration, the Ministries gave a foreign image in?
en · other · The process is called [photosynthesis]. · What is the process called?
de · person · Der Turm wurde von [Gustave Eiffel] gebaut. · Von wem wurde der Turm gebaut?
de · date · Im Jahr [1889] wurde der Turm in Paris eröffnet. · Wann wurde der Turm in Paris eröffnet?
de · date · Goethe wurde am [28. August 1749] in Frankfurt geboren. · Wann wurde Goethe in Frankfurt geboren?
de · place · Goethe wurde in [Frankfurt] am Main geboren. · Wo wurde Goethe am Main geboren?
de · number · Die Stadt hat etwa [3400] Einwohner. · Wie viele Einwohner hat die Stadt?
es · person · La torre fue construida por [Gustave Eiffel] en París. · ¿Por quién fue la torre construida en París?
es · date · En [1889] se abrió la torre al público. · ¿Cuándo se abrió la torre al público?
es · place · Frida Kahlo nació en [Coyoacán] en una casa azul. · ¿Dónde Frida Kahlo nació en una casa azul?
es · number · La ciudad tiene [3400] habitantes. · ¿Cuántos habitantes la ciudad tiene?
fr · person · La tour a été construite par [Gustave Eiffel] à Paris. · Par qui la tour a été construite à Paris ?
fr · date · En [1889], la tour fut ouverte au public. · Quand la tour fut ouverte au public ?
fr · place · Victor Hugo est né à [Besançon] en 1802. · Où Victor Hugo est né en 1802 ?
fr · number · La ville compte [3400] habitants. · Combien d'habitants la ville compte ?
fr · other · Le procédé est fondé sur la [photosynthèse]. · Sur quoi le procédé est fondé ?
zh · date · 埃菲尔铁塔于[1889年]建成。 · 埃菲尔铁塔于什么时候建成？
zh · person · 铁塔由[古斯塔夫·埃菲尔]设计。 · 铁塔由谁设计？
zh · place · 这座铁塔位于[巴黎]。 · 这座铁塔位于哪里？
zh · number · 这座塔高[324米]。 · 这座塔高多少米？
zh · institution · 但是，他毕业于[北京大学]。 · 他毕业于什么机构？
ko · date · 에펠탑은 [1889년]에 완공되었다. · 에펠탑은 언제 완공되었는가?
ko · person · 훈민정음은 [세종대왕]이 만들었다. · 훈민정음은 누가 만들었는가?
ko · person · [이순신]은 임진왜란에서 싸웠다. · 누가 임진왜란에서 싸웠는가?
ko · place · 그 작가는 [서울]에서 태어났다. · 그 작가는 어디에서 태어났는가?
ko · number · 이 탑의 높이는 [324미터]이다. · 이 탑의 높이는 몇 미터인가?
ko · institution · 그 작가는 [서울대학교]를 졸업했다. · 그 작가는 어느 기관을 졸업했는가?
ko · name · 그는 [붉은 깃발을] 들었다. · 그는 무엇을 들었는가?
ko · name · 그 책은 [BBK의] 이야기를 낸다. · 그 책은 무엇의 이야기를 내는가?
ko · date · 그 그림은 [1889년]에 팔렸다. · 그 그림은 언제 팔렸는가?
"""
ROWS = [tuple(line.split(" · ")) for line in TABLE.strip().splitlines()]
UNKNOWN = [
    "La torre fu costruita da Gustave Eiffel nel 1889 e non è la più alta della città.",
    "De toren werd gebouwd door een ingenieur en is het symbool van de stad.", "Башня была построена в 1889 году.",
    "この塔は1889年に建てられました。", "1889, 1890, 1891", "",
]  # fmt: skip


def parts(marked):
    start, end = marked.index("["), marked.index("]") - 1
    return marked.replace("[", "", 1).replace("]", "", 1), start, end


def asked(language, marked, seeds=range(8)):
    text, start, end = parts(marked)
    return {question_from(text, start, end, language, np.random.default_rng(seed)) for seed in seeds}


@pytest.mark.parametrize(("language", "kind", "marked", "questions"), ROWS, ids=[row[2] for row in ROWS])
def test_statements_become_questions(language, kind, marked, questions):
    assert asked(language, marked) == set(questions.split("|"))


@pytest.mark.parametrize(("language", "kind", "marked", "questions"), [row for row in ROWS if "31 March [" not in row[2]])
def test_kinds_are_told_by_shape_and_neighbours(language, kind, marked, questions):
    text, start, end = parts(marked)
    if language == "en" and "Lyndon" in text:
        start = 0  # the whole name
    assert kind_of(text[start:end], text[:start], text[end:], language) == kind


def test_every_language_has_a_word_for_every_kind():
    kinds = set(LANGUAGES["en"].ask)
    assert {name: set(language.ask) for name, language in LANGUAGES.items()} == dict.fromkeys(("en", "de", "es", "fr", "zh", "ko"), kinds)


@pytest.mark.parametrize(("language", "kind", "marked", "questions"), ROWS)
def test_the_language_of_a_text_is_told(language, kind, marked, questions):
    assert detect_language(" ".join(parts(row[2])[0] for row in ROWS if row[0] == language)) == language
    assert detect_language(parts(marked)[0]) in (language, None)


@pytest.mark.parametrize("text", UNKNOWN)
def test_of_other_languages_none_is_guessed(text):
    assert detect_language(text) is None


def test_the_same_draws_give_the_same_question_and_brackets_hold_nothing_that_is_asked():
    assert asked("en", "Gustave Eiffel ([1832] – 1923) was a famous engineer.") == {"When was a famous engineer, Gustave Eiffel?"}
    assert asked("en", "The tower (see the list of towers) was opened in [1889] [5].") == {"When was the tower opened?"}
    marked = "About [45 %] of the people speak it."
    assert len(asked("en", marked, [3, 3, 3])) == 1
    assert len(asked("en", marked, range(16))) == 2


@pytest.mark.parametrize("marked", [
    "He left [Paris].",  # too little to ask about
    "The duchy of Saxe-[Eisenach] was divided by the brothers.",  # a part of a word
    "The [NP]-complete problems are solved by nobody.", "The fight against [HIV]/ AIDS was led by the old doctor.",
    "He made many films such as Omkara (2006), Golmaal Returns (2008) and Singham ([2011]).",  # one of a list
    f"In [1889] the tower was opened{'(' * 2000}.",
    "The river [Loire] is the longest of France, and the Loire valley is famous.",  # the answer stands in the question
])  # fmt: skip
def test_no_question_is_better_than_a_useless_one(marked):
    assert asked("en", marked) == {None}


def test_of_a_long_sentence_the_clauses_around_the_span_are_asked_about():
    marked = (
        "Built for a fair that nobody in the city had wanted at all, the tower was opened by the mayor in [1889], and of the crowd that "
        "came to see it on that day most had never been in the capital before, nor would they ever come back to it again (so it was said)."
    )
    (question,) = asked("en", marked)
    assert question is not None and len(question.split()) <= 27
    assert "opened by the mayor" in question and "again" not in question
    words = " ".join(f"w{number}" for number in range(60))
    (question,) = asked("en", f"{words} in [1889] {words}.")
    assert question is not None and 20 <= len(question.split()) <= 27
    assert question.startswith("When w0 w1") and question.endswith("w58 w59?")


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("rule", "question", "forms"), [
    (without_mark, "When was it built ?", {"When was it built"}), (without_mark, "谁建的？", {"谁建的"}),
    (owned, "Who is the dental insurer?", {"Who is our dental insurer?", "Who is my dental insurer?"}),
    (owned, "Who founded the United Nations?", {"Who founded the United Nations?"}), (owned, "What is it?", {"What is it?"}),
    (keywords, "Who is the founder of the company in Oslo?", {"Who founder company Oslo"}),
    (keywords, "Who is it?", {"Who is it?"}), (mistyped, "How big?", {"How big?"}),
    (mistyped, "boiler", {"bioler", "bolier", "boielr", "boilre", "boler", "boier", "boilr", "boile"}),
])  # fmt: skip
def test_forms(rule, question, forms):
    assert {rule(question, rng(seed)) for seed in range(40)} <= forms, question


@given(st.text(max_size=60), st.integers(0, 2**32 - 1))
def test_any_text_has_a_form(text, seed):
    said = everyday(text, rng(seed))
    assert isinstance(said, str) and (said or not text.strip(" ?？") or not text)


def test_most_questions_stay_as_they_are():
    drawn = [everyday("Who is the dental insurer of the company?", rng(seed)) for seed in range(2000)]
    changed = sum(form != "Who is the dental insurer of the company?" for form in drawn) / len(drawn)
    assert 0.8 * EVERYDAY_SHARE < changed <= 1.1 * EVERYDAY_SHARE
    assert len(set(drawn)) > 8
