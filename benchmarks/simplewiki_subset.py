"""Cut a subset of Simple Wikipedia with answers to development questions in it: a fixed hash share of the articles, and every article that
holds a rare answer.

An answer that stands in more than ``--common`` articles ("English", "1990") is in the hash share often enough; the articles of the others
are all kept, so that what the whole of Simple Wikipedia can answer, the subset can.

    python benchmarks/simplewiki_subset.py simplewiki.jsonl.xz --questions webquestions/dev.jsonl.xz curatedtrec/dev.jsonl.xz \
        --share 0.2 --out simplewiki-subset.jsonl

The last line of its output is one JSON object.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

from realm.data.questions.loading import load_questions
from realm.data.types import Question
from realm.storage.files import write_atomic
from realm.text.answers import normalize_answer
from realm.text.files import open_text
from realm.text.patterns import PatternSearch


def in_share(document: str, share: float) -> bool:
    """Whether a document id falls into the share; the same ids on every machine."""
    return int.from_bytes(hashlib.sha256(document.encode()).digest()[:8], "big") < share * 2**64


def holding(texts: list[str], question: Question) -> list[int]:
    """Which of the texts, given in normalised form padded by spaces for strings, hold an answer of the question."""
    if question.answer_type == "regex":
        return [at for at, text in enumerate(texts) if PatternSearch().found(text, question.answers)]
    needles = [f" {normalize_answer(answer)} " for answer in question.answers]
    return [at for at, text in enumerate(texts) if any(needle in text for needle in needles if needle.strip())]


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
    raw = [f"{document['title']}\n{document['text']}" for document in documents]
    normalized = [f" {normalize_answer(text)} " for text in raw]
    common = 0
    for path in options.questions:
        for number, question in enumerate(load_questions(path), 1):
            found = holding(raw if question.answer_type == "regex" else normalized, question)
            common += len(found) > options.common
            kept |= set(found) if len(found) <= options.common else set()
            print(f"{path.name}: {number} questions, {len(kept):,} articles", end="\r", file=sys.stderr)
    write_atomic(options.out, "".join(f"{rows[at].rstrip()}\n" for at in sorted(kept)))
    print()
    print(json.dumps({"articles": len(documents), "by_hash": by_hash, "kept": len(kept), "questions_with_common_answers": common}))


if __name__ == "__main__":
    main()
