"""Question files of any format as one of our own, whole or with the papers' development split taken out.

That split is the one of ORQA and REALM: a tenth of the training questions, by a hash of their text.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from realm.data.questions.loading import read_questions
from realm.data.questions.options import QuestionOptions
from realm.data.types import Question
from realm.errors import DataError, MissingExtra
from realm.storage.files import publish_file

_BUCKETS, _FOLDS = 100_000, 10


def is_dev_question() -> Callable[[str], bool]:
    """The rule: FarmHash's Fingerprint64 of the question's UTF-8 bytes, modulo 100,000, is a multiple of ten.

    The question counts exactly as the file spells it. TensorFlow's ``string_to_hash_bucket_fast``, which the papers' script calls, is
    that hash.

    Raises:
        MissingExtra: FarmHash is not installed.
    """
    try:
        from farmhash import fingerprint64
    except ImportError:
        raise MissingExtra("the papers' development split", "eval") from None
    return lambda question: fingerprint64(question.encode("utf-8", "surrogatepass")) % _BUCKETS % _FOLDS == 0


def split_of(raw: Sequence[str], path: Path) -> list[bool]:
    """Whether each question of a file goes to development.

    Raises:
        DataError: nothing would be left on one of the two sides.
        MissingExtra: FarmHash is not installed.
    """
    rule = is_dev_question()
    chosen = [rule(question) for question in raw]
    if all(chosen) or not any(chosen):
        side = "training" if all(chosen) else "development"
        raise DataError(f"the split of {len(chosen)} questions leaves none for {side}", path=path, cure="Split a larger file.")
    return chosen


def convert_questions(
    sources: Sequence[Path], out: Path, *, dev: Path | None = None, options: QuestionOptions | None = None
) -> dict[str, Any]:
    """Write the questions of several files as JSONL: {"id", "question", "answers"}, and what else a question has.

    Args:
        sources: the files, in order; ids must differ among them.
        dev: write the questions of the papers' development split here instead.

    Returns:
        {"questions", "dev_questions", "skipped": {reason: count}}.

    Raises:
        DataError: a source cannot be read, an id stands in two of them, or a split leaves nothing on one side.
        MissingExtra: the split needs FarmHash.
    """
    kept: tuple[list[Question], list[Question]] = ([], [])
    skipped: Counter[str] = Counter()
    seen: dict[str, Path] = {}
    for source in sources:
        file = read_questions(source, options)
        skipped.update(file.skipped)
        held_out = split_of(file.raw, source) if dev is not None else [False] * len(file.questions)
        for question, line, aside in zip(file.questions, file.lines, held_out, strict=True):
            if seen.setdefault(question.id, source) != source:
                cure = "Convert them one by one."
                problem = f"the id '{question.id}' stands in {seen[question.id]}, too"
                raise DataError(problem, path=source, line=line, cure=cure)
            kept[aside].append(question)
    _write(out, kept[False])
    if dev is not None:
        _write(dev, kept[True])
    return {"questions": len(kept[False]), "dev_questions": len(kept[True]), "skipped": dict(skipped)}


def _write(path: Path, questions: Sequence[Question]) -> None:
    with publish_file(path) as file:
        for question in questions:
            row: dict[str, Any] = {"id": question.id, "question": question.text, "answers": list(question.answers)}
            row |= {"positive_ids": list(question.positive_ids)} if question.positive_ids else {}
            row |= {"answer_type": question.answer_type} if question.answer_type != "string" else {}
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass"))
