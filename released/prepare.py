"""Data of the reader of realm-minilm-en: chosen out of public sets, checked against what it is tested on, and written down.

    python released/prepare.py DATA --out runs/reader-data

Out come given-train.jsonl and given-dev.jsonl (questions with their paragraphs; dev is of SQuAD articles of its own), first.jsonl,
second.jsonl and third.jsonl (what the three runs read, the last two with paragraphs that only look as if they answered), few.jsonl
(some paragraphs as documents), open-train.jsonl and open-dev.jsonl (questions without paragraphs), and data.json: each file that was read
with its SHA-256, its licence and how much of it was taken. A question that is also a test question, shares eight words in a row with one,
or is one of the demo's is left out, and so is a paragraph of which more than 30 % of the eight-word sequences occur in a test's paragraphs.
The last line is one JSON object.
"""

import argparse
import json
import lzma
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from realm.evaluation.questions.loading import load_questions, write_questions
from realm.evaluation.questions.rows import QuestionOptions
from realm.models.types import Question
from realm.storage.files import json_lines, sha256_file, write_json
from realm.text.matching.answers import normalize_answer

LICENCES = {
    "squad/train_official.jsonl.xz": "CC BY-SA 4.0 (SQuAD 1.1)",
    "squad/unanswerable_train_part.jsonl.xz": "CC BY-SA 4.0 (SQuAD 2.0)",
    "tydiqa/tydiqa_english_train.jsonl.xz": "Apache-2.0 (TyDi QA), CC BY-SA 3.0 (Wikipedia)",
    "fairytaleqa/fairytaleqa_spans.jsonl.xz": "Apache-2.0 (FairytaleQA)",
    "nq_open/train_part.jsonl.xz": "CC BY-SA 3.0 (Natural Questions)",
    "webquestions/train.jsonl.xz": "CC BY 4.0 (WebQuestions)",
}
GIVEN = tuple(LICENCES)[:4]
OPEN = tuple(LICENCES)[4:]
TESTED = (
    "squad/qa_dev.jsonl.xz",
    "squad/qa_train.jsonl.xz",
    "squad/squad2_dev.jsonl.xz",
    "squad/squad2_former_train.jsonl.xz",
    "squadshifts/squadshifts_new_wiki.jsonl.xz",
    "squadshifts/squadshifts_amazon_reviews.jsonl.xz",
    "squadshifts/squadshifts_reddit.jsonl.xz",
    "tydiqa/tydiqa_english_dev.jsonl.xz",
    "nq_open/dev_visible.jsonl.xz",
    "nq_open/dev_visible_gold_passages.jsonl.xz",
    "nq_open/efficientqa_dev.jsonl.xz",
    "webquestions/dev.jsonl.xz",
    "webquestions/test_visible.jsonl.xz",
    "curatedtrec/dev.jsonl.xz",
    "curatedtrec/test_visible.jsonl.xz",
    "covidqa/qa_train.jsonl.xz",
    "covidqa/qa_dev.jsonl.xz",
    "clapnq/clapnq_dev_evidence.jsonl.xz",
)
ATLAS = Path(__file__).with_name("atlas-questions.txt.xz")
"""Questions on the demo's atlas and on the thirteen tables of facts that once belonged to it."""
TEST_DOCUMENTS = ("squad/corpus_squad_dev.jsonl.xz", "covidqa/corpus.jsonl.xz")
WORDS = 8
"""Words in a row that two questions may not share."""
SHARED = 0.3
"""Share of a paragraph's sequences of ``WORDS`` words that may stand in tests."""
FEW = 200
"""Paragraphs of few.jsonl."""
DEV = 400
"""Questions of each kind that are held out."""
KEPT = QuestionOptions(id_column="no column", unanswerable=True)
"""Questions are numbered: one file uses some ids twice."""
ARTICLES, UNANSWERABLE, TALES = "train_official", "unanswerable_train_part", "fairytaleqa_spans"
FIRST = {UNANSWERABLE: 5500, "tydiqa_english_train": 100_000, TALES: 2000}
"""Questions of other sets than SQuAD that the first run reads."""
A_PARAGRAPH = 2
ANSWERED, BOTH, MISLED = 7000, 2500, 5000
"""Of the second run: SQuAD's questions with their paragraph, how many of these with a misleading one too, and others with that alone."""
THIRD, THIRD_MISLED = {ARTICLES: 100_000, "tydiqa_english_train": 100_000, UNANSWERABLE: 9000, TALES: 4000}, 14_000
"""Questions of each set that the third run reads with their paragraph, and SQuAD's of which it reads a misleading one too."""
BEST, FIRST_SHARE = 8, 0.6
FIRST_SEED, SECOND_SEED, THIRD_SEED = 7, 11, 13


def sequences(text: str) -> set[str]:
    """Each ``WORDS`` normalised words in a row."""
    words = normalize_answer(text).split()
    return {" ".join(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1)}


def marks(text: str) -> set[str]:
    """Sequences of words that identify a question: all of its words, and each ``WORDS`` of them in a row."""
    return {" ".join(normalize_answer(text).split())} | sequences(text)


class Tests:
    """What no training question and no training paragraph may share."""

    def __init__(self, data: Path):
        tested = [question for name in TESTED for question in load_questions(data / name, KEPT)]
        atlas = lzma.decompress(ATLAS.read_bytes()).decode("utf-8").splitlines()
        self._questions = {mark for text in (*(q.text for q in tested), *atlas) for mark in marks(text)}
        documents = (str(row["text"]) for name in TEST_DOCUMENTS for _, row in json_lines(data / name, "Fetch the file again."))
        paragraphs = {*documents, *(question.context for question in tested)}
        self._passages = {mark for text in paragraphs for mark in sequences(text)}
        self._judged: dict[str, bool] = {}

    def reason(self, question: Question) -> str:
        """Why a question is left out; "" where it is not."""
        if marks(question.text) & self._questions:
            return "question of a test"
        return "paragraph of a test" if question.context and self._overlaps(question.context) else ""

    def _overlaps(self, context: str) -> bool:
        if context not in self._judged:
            own = sequences(context)
            self._judged[context] = len(own & self._passages) > SHARED * len(own) if own else False
        return self._judged[context]


def chosen_of(data: Path, names: Iterable[str], tests: Tests, facts: dict[str, Any]) -> Iterator[Question]:
    """The questions of some files that no test shares, counted in ``facts``."""
    for name in names:
        questions = load_questions(data / name, KEPT)
        reasons = [tests.reason(question) for question in questions]
        left_out = Counter(filter(None, reasons))
        taken = len(questions) - left_out.total()
        facts[name] = {
            "sha256": sha256_file(data / name),
            "licence": LICENCES[name],
            "questions": len(questions),
            "taken": taken,
            "left_out": dict(left_out),
        }
        kept = (question for question, reason in zip(questions, reasons, strict=True) if not reason)
        yield from (replace(question, id=f"{Path(name).name.split('.')[0]}:{question.id}") for question in kept)


def by_article(questions: list[Question], seed: int) -> tuple[list[Question], list[Question]]:
    """Training and dev questions of different articles: dev has whole articles until it has ``DEV`` questions and more, cut to ``DEV``."""
    titles = sorted({question.title for question in questions if question.id.startswith(ARTICLES)})
    random.Random(seed).shuffle(titles)
    counts, dev_titles, held = Counter(question.title for question in questions), set(), 0
    for title in titles:
        if held >= 2 * DEV:
            break
        dev_titles.add(title.lower())
        held += counts[title]
    train = [question for question in questions if question.title.lower() not in dev_titles]
    dev = [question for question in questions if question.title.lower() in dev_titles]
    random.Random(seed).shuffle(dev)
    return train, dev[:DEV]


def paragraphs_of(questions: Iterable[Question]) -> dict[str, str]:
    """Titles of the distinct paragraphs of SQuAD's questions."""
    return {question.context: question.title for question in questions if question.id.startswith(ARTICLES)}


def write_paragraphs(path: Path, questions: Iterable[Question], most: int) -> None:
    """The first paragraphs as documents."""
    chosen = [*paragraphs_of(questions).items()][:most]
    rows = ({"id": f"p{number}", "title": title, "text": text} for number, (text, title) in enumerate(chosen))
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def first_part(questions: list[Question]) -> list[Question]:
    """At most ``A_PARAGRAPH`` questions of each SQuAD paragraph, and some of the other sets, shuffled."""
    rng, chosen, seen = random.Random(FIRST_SEED), list[Question](), Counter[str]()
    for name, group in by_set(questions).items():
        rng.shuffle(group)
        if name != ARTICLES:
            chosen += group[: FIRST[name]]
            continue
        for question in group:
            if seen[question.context] < A_PARAGRAPH:
                seen[question.context] += 1
                chosen.append(question)
    rng.shuffle(chosen)
    return chosen


def second_part(questions: list[Question], first: list[Question]) -> list[Question]:
    """Questions that the first part has not; of some, only a paragraph that BM25 finds for them and that does not answer."""
    rng, used = random.Random(SECOND_SEED), {question.id for question in first}
    sets = by_set([question for question in questions if question.id not in used])
    squad, none, tales = (sets[name] for name in (ARTICLES, UNANSWERABLE, TALES))
    for group in (squad, none, tales):
        rng.shuffle(group)
    asked = squad[:BOTH] + squad[ANSWERED : ANSWERED + MISLED]
    chosen = squad[:ANSWERED] + misleading(asked, paragraphs_of(questions), rng) + none[:2000] + tales[:800]
    rng.shuffle(chosen)
    return chosen


def third_part(questions: list[Question]) -> list[Question]:
    """All of SQuAD's questions and some of the other sets, with misleading paragraphs for a part of SQuAD's."""
    rng, sets = random.Random(THIRD_SEED), by_set(questions)
    for group in sets.values():
        rng.shuffle(group)
    chosen = [question for name, group in sets.items() for question in group[: THIRD[name]]]
    chosen += misleading(sets[ARTICLES][:THIRD_MISLED], paragraphs_of(questions), rng)
    rng.shuffle(chosen)
    return chosen


def misleading(asked: list[Question], titles: dict[str, str], rng: random.Random) -> list[Question]:
    """Each question with a paragraph among BM25's best that holds none of its answers."""
    import bm25s

    def words(texts: list[str]) -> Any:
        return bm25s.tokenize(texts, stopwords="en", show_progress=False)

    def plain(text: str) -> str:
        return " " + " ".join(re.findall(r"\w+", text.lower())) + " "

    texts = list(titles)
    folded, index, found = [plain(text) for text in texts], bm25s.BM25(), []
    index.index(words([f"{titles[text]} {text}" for text in texts]), show_progress=False)
    rows, _ = index.retrieve(words([question.text for question in asked]), k=BEST, show_progress=False)
    for question, best in zip(asked, rows.tolist(), strict=True):
        answers = [plain(answer) for answer in question.answers if plain(answer).strip()]
        silent = [row for row in best if not any(answer in folded[row] for answer in answers) and texts[row] != question.context]
        if silent:
            row = silent[0] if rng.random() < FIRST_SHARE else rng.choice(silent)
            found.append(replace(question, id=f"{question.id}n", answers=(), context=texts[row], title=titles[texts[row]], places=()))
    return found


def by_set(questions: Iterable[Question]) -> dict[str, list[Question]]:
    """Questions by the name of their file."""
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.id.partition(":")[0], []).append(question)
    return groups


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the directory of public data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    tests, facts = Tests(arguments.data), {}
    train, dev = by_article(list(chosen_of(arguments.data, GIVEN, tests, facts)), arguments.seed)
    write_questions(arguments.out / "given-train.jsonl", train)
    write_questions(arguments.out / "given-dev.jsonl", dev)
    first = first_part(train)
    write_questions(arguments.out / "first.jsonl", first)
    write_questions(arguments.out / "second.jsonl", second_part(train, first))
    write_questions(arguments.out / "third.jsonl", third_part(train))
    write_paragraphs(arguments.out / "few.jsonl", train, FEW)
    asked = list(chosen_of(arguments.data, OPEN, tests, facts))
    random.Random(arguments.seed).shuffle(asked)
    write_questions(arguments.out / "open-train.jsonl", asked[DEV:])
    write_questions(arguments.out / "open-dev.jsonl", asked[:DEV])
    outputs = {path.name: sha256_file(path) for path in sorted(arguments.out.glob("*.jsonl"))}
    found = {"read": facts, "left_out_of": list(TESTED), "words_in_a_row": WORDS, "given": [len(train), len(dev)], "sha256": outputs}
    write_json(arguments.out / "data.json", found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
