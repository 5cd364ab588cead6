"""Cut a subset of Simple Wikipedia with answers to development questions in it: a fixed hash share of the articles, and every article that
holds a rare answer.

An answer that stands in more than ``--common`` articles ("English", "1990") is in the hash share often enough; the articles of the others
are all kept, so that what the whole of Simple Wikipedia can answer, the subset can.

    python -m benchmarks.documents.simplewiki_subset simplewiki.jsonl.xz --questions webquestions/dev.jsonl.xz curatedtrec/dev.jsonl.xz \
        --share 0.2 --out simplewiki-subset.jsonl

The last line of its output is one JSON object.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from realm.evaluation.questions.loading import load_questions
from realm.models.types import Question
from realm.storage.files import open_text, write_atomic
from realm.text.matching.answers import answer_forms, by_first_word, form_ranges
from realm.text.matching.patterns import PatternSearch, compiled_pattern


def in_share(document: str, share: float) -> bool:
    """Whether a document id falls into the share; the same ids on every machine."""
    return int.from_bytes(hashlib.sha256(document.encode()).digest()[:8], "big") < share * 2**64


class Holders:
    """Which of many articles hold an answer of each question; each article is read once, whatever the number of questions.

    Args:
        questions: whose answers are looked for: as normalised words, or as patterns in the text itself.
    """

    def __init__(self, questions: list[Question]):
        self.articles: list[set[int]] = [set() for _ in questions]
        self._of_form: dict[Any, list[int]] = {}
        self._of_pattern: dict[str, list[int]] = {}
        for number, question in enumerate(questions):
            if question.answer_type == "regex":
                for pattern in filter(compiled_pattern, question.answers):
                    self._of_pattern.setdefault(pattern, []).append(number)
            else:
                for form in answer_forms(question.answers):
                    self._of_form.setdefault(form, []).append(number)
        self._forms = by_first_word(self._of_form)

    def read(self, at: int, text: str) -> None:
        """Note for whom the article of this number holds an answer."""
        for form in form_ranges(text, self._forms):
            for number in self._of_form[form]:
                self.articles[number].add(at)
        for pattern, numbers in self._of_pattern.items():
            if PatternSearch().found(text, [pattern]):  # anew for each, so that slow ones are not given up, wherever this runs
                for number in numbers:
                    self.articles[number].add(at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("articles", type=Path)
    parser.add_argument("--questions", type=Path, nargs="+", required=True)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--common", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()

    with open_text(options.articles) as lines:
        rows = [line for line in lines if line.strip()]
    documents = [json.loads(row) for row in rows]
    kept = {at for at, document in enumerate(documents) if in_share(str(document["id"]), options.share)}
    by_hash = len(kept)
    holders = Holders([question for path in options.questions for question in load_questions(path)])
    for at, document in enumerate(documents):
        holders.read(at, f"{document['title']}\n{document['text']}")
        if at % 1000 == 0 and sys.stderr.isatty():
            print(f"{at:,}/{len(documents):,} articles", end="\r", file=sys.stderr)
    common = sum(len(found) > options.common for found in holders.articles)
    kept |= {at for found in holders.articles if len(found) <= options.common for at in found}
    write_atomic(options.out, "".join(f"{rows[at].rstrip()}\n" for at in sorted(kept)))
    print(json.dumps({"articles": len(documents), "by_hash": by_hash, "kept": len(kept), "questions_with_common_answers": common}))


if __name__ == "__main__":
    main()
