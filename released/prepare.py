"""What realm-minilm-en learns from: chosen out of public data, checked against what it is tested on, and written down.

    python released/prepare.py DATA --out runs/realm-minilm-en-data

Out come paragraphs.jsonl (of the SQuAD articles that questions are learnt from), train.jsonl and dev.jsonl (pooled questions; dev is held
out of the same files), documents-train.jsonl and documents-dev.jsonl (those of them that name the paragraph they were asked of), and
data.json: each file that was read with its SHA-256, its licence and how much of it was taken. A question that
is also a test or dev question, or shares eight words in a row with one, is left out, and so is one of the demo's. The last line is one
JSON object.
"""

import argparse
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from realm.evaluation.questions.loading import load_questions, write_questions
from realm.experiments.world.atlas import build_atlas
from realm.storage.files import sha256_file, write_json
from realm.text.files import json_lines
from realm.text.matching.answers import normalize_answer

LICENCES = {
    "corpus/simplewiki_2021.jsonl.xz": "CC BY-SA 3.0 (Wikipedia)",
    "corpus/2wiki_paragraphs.jsonl.xz": "Apache-2.0 (2WikiMultihopQA), CC BY-SA 3.0 (Wikipedia)",
    "squad/corpus_squad_dev.jsonl.xz": "CC BY-SA 4.0 (SQuAD 1.1)",
    "squad/qa_train.jsonl.xz": "CC BY-SA 4.0 (SQuAD 1.1)",
    "nq_open/train_part.jsonl.xz": "CC BY-SA 3.0 (Natural Questions)",
    "webquestions/train.jsonl.xz": "CC BY 4.0 (WebQuestions)",
}
TAUGHT = tuple(name for name in LICENCES if "train" in name)
TESTED = (
    "squad/qa_dev.jsonl.xz",
    "nq_open/dev_visible.jsonl.xz",
    "nq_open/efficientqa_dev.jsonl.xz",
    "webquestions/dev.jsonl.xz",
    "webquestions/test_visible.jsonl.xz",
    "curatedtrec/dev.jsonl.xz",
    "curatedtrec/test_visible.jsonl.xz",
    "covidqa/qa_train.jsonl.xz",
    "covidqa/qa_dev.jsonl.xz",
)
MOST = {"nq_open/train_part.jsonl.xz": 3000}
"""Questions of a file that are taken at most, drawn by the seed: those of NQ name no document, and Simple Wikipedia answers few."""
WORDS = 8
"""Words in a row that two questions may not share."""
DEV = 400
"""Questions of all files together that are held out."""


def marks(text: str) -> set[str]:
    """What tells that two questions are the same: all the words, and each ``WORDS`` of them in a row."""
    words = normalize_answer(text).split()
    return {" ".join(words)} | {" ".join(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1)}


def forbidden(data: Path) -> set[str]:
    """The marks of every test and dev question, and of the demo's."""
    questions: Iterable[str] = (question.text for name in TESTED for question in load_questions(data / name))
    atlas = build_atlas()
    asked = (question["question"] for part in atlas.questions.values() for question in part)
    return {mark for text in (*questions, *asked) for mark in marks(text)}


def articles(data: Path) -> Iterator[dict[str, Any]]:
    """The paragraphs of the articles that SQuAD's training questions are about, and of no other."""
    asked = {document.rpartition(":")[0] for q in load_questions(data / "squad/qa_train.jsonl.xz") for document in q.positive_ids}
    for _, row in json_lines(data / "squad/corpus_squad_dev.jsonl.xz", "Fetch the file again."):
        if str(row["id"]).rpartition(":")[0] in asked:
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the directory of public data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    tested, kept, facts = forbidden(arguments.data), [], {}
    for name in LICENCES:
        path = arguments.data / name
        facts[name] = {"sha256": sha256_file(path), "licence": LICENCES[name]}
        if name in TAUGHT:
            questions = load_questions(path)
            chosen = [question for question in questions if not marks(question.text) & tested]
            chosen = random.Random(arguments.seed).sample(chosen, min(len(chosen), MOST.get(name, len(chosen))))
            facts[name] |= {"questions": len(questions), "taken": len(chosen)}
            kept += chosen
    random.Random(arguments.seed).shuffle(kept)
    paragraphs = arguments.out / "paragraphs.jsonl"
    paragraphs.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in articles(arguments.data)), "utf-8")
    for part, chosen in (("dev", kept[:DEV]), ("train", kept[DEV:])):
        write_questions(arguments.out / f"{part}.jsonl", chosen)
        write_questions(arguments.out / f"documents-{part}.jsonl", [question for question in chosen if question.positive_ids])
    outputs = {path.name: sha256_file(path) for path in sorted(arguments.out.glob("*.jsonl"))}
    found = {"read": facts, "left_out_of": list(TESTED), "words_in_a_row": WORDS, "train": len(kept) - DEV, "dev": DEV, "sha256": outputs}
    write_json(arguments.out / "data.json", found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
