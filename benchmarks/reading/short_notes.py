"""How often is a right answer kept back over a few short notes, and how often is a question without an answer answered?

    python -m benchmarks.reading.short_notes [--body realm-minilm-en] [--sizes 1,5,20]

short_notes.jsonl holds 25 notes, each with three questions that it answers and one that it does not; they were written for this and
nothing was trained or tuned on them. Folders of each size are made of all notes in turn, and asked the questions of their notes by
`realm ask`'s own path. Rows name the size; the last line is one JSON object.
"""

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.common import result
from realm.answering.levels import NOTHING
from realm.progress import Progress
from realm.runs.cached import open_cached
from realm.text.matching.answers import exact_match, f1

NOTES = Path(__file__).with_name("short_notes.jsonl")
ENOUGH = 0.6
"""F1 from which an answer counts as right, as people take "Herr Petzold" for "Petzold"."""


def folders(notes: list[dict[str, Any]], size: int) -> list[list[dict[str, Any]]]:
    """The notes cut into folders of a size; the last is filled from the first ones."""
    return [(notes + notes)[at : at + size] for at in range(0, len(notes), size)]


def asked(notes: list[dict[str, Any]], own: int, body: str) -> list[tuple[str, str]]:
    """(outcome, line to read) of the questions of the first ``own`` notes over a folder of all."""
    with tempfile.TemporaryDirectory() as folder:
        for note in notes:
            Path(folder, note["name"]).write_text(note["text"], "utf-8")
        run = open_cached([Path(folder)], body, Progress(quiet=True))
        questions = [question for note in notes[:own] for question in note["questions"]]
        answers = run.answers([question["question"] for question in questions], 5)
    return [judged(question, answer) for question, answer in zip(questions, answers, strict=True)]


def judged(question: dict[str, Any], answer: Any) -> tuple[str, str]:
    """Outcome of one answer."""
    given = "kept back" if answer.abstained else "given"
    right = (
        exact_match(answer.answer, question["answers"]) or f1(answer.answer, question["answers"]) >= ENOUGH if question["answers"] else None
    )
    what = "no answer" if right is None else "right" if right else "wrong"
    said = "" if answer.level == NOTHING else answer.answer
    return f"{what}, {given}", f"{what:9} {given:9} {answer.sureness:.2f} {question['question']} -> {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--body", default="realm-minilm-en")
    parser.add_argument("--sizes", default="1,5,20")
    parser.add_argument("--show", action="store_true", help="print every answer")
    arguments = parser.parse_args()
    notes, rows = [json.loads(line) for line in NOTES.read_text("utf-8").splitlines()], []
    for size in map(int, arguments.sizes.split(",")):
        found = [
            one
            for begin, folder in enumerate(folders(notes, size))
            for one in asked(folder, min(size, len(notes) - begin * size), arguments.body)
        ]
        counts = Counter(outcome for outcome, _ in found)
        right = counts["right, given"] + counts["right, kept back"]
        rows.append({"size": size, **counts, "right_kept_back": round(counts["right, kept back"] / max(1, right), 4)})
        print("\n".join(line for _, line in found) if arguments.show else "", json.dumps(rows[-1]), sep="\n", flush=True)
    print(json.dumps(result("short_notes", 1, body=arguments.body, rows=rows)))


if __name__ == "__main__":
    main()
