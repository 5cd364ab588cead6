"""Several question files asked as one: a short name for each, and the questions of all of them in order."""

from collections import Counter
from collections.abc import Mapping, Sequence as SequenceOf
from pathlib import Path

from realm.data.questions.loading import load_questions
from realm.data.questions.options import QuestionOptions
from realm.data.types import Question
from realm.errors import ConfigError
from realm.text.answers import normalize_answer

Datasets = Mapping[str, list[Question]]
"""Questions by the name of their dataset."""


def load_datasets(files: SequenceOf[str | Path], options: QuestionOptions | None = None) -> dict[str, list[Question]]:
    """The questions of each file under its name, in the order of the files.

    Raises:
        ConfigError: a file is named twice.
        DataError: a file cannot be read; file and line are named.
    """
    paths = [Path(file) for file in files]
    return {name: load_questions(path, options) for name, path in zip(dataset_names(paths), paths, strict=True)}


def pooled(datasets: Datasets) -> list[Question]:
    """All questions, dataset after dataset."""
    return [question for questions in datasets.values() for question in questions]


def parts(datasets: Datasets) -> dict[str, slice]:
    """Where the questions of each dataset stand among the pooled ones."""
    found, start = {}, 0
    for name, questions in datasets.items():
        found[name] = slice(start, start + len(questions))
        start += len(questions)
    return found


def shared(some: SequenceOf[Question], others: SequenceOf[Question]) -> list[Question]:
    """Those of ``some`` that are among ``others``: in the same words once both are normalised as answers are, or under the same id.

    An id that is a mere number does not tell: questions without one are numbered in each file.
    """
    texts = {normalize_answer(question.text) for question in others}
    ids = {question.id for question in others if not question.id.isdigit()}
    return [question for question in some if question.id in ids or normalize_answer(question.text) in texts]


def dataset_names(files: SequenceOf[Path]) -> list[str]:
    """A short name for each dataset: the file's, with its folder's where two are alike. Raises ConfigError: a file is named twice."""
    resolved = Counter(path.resolve() for path in files)
    if twice := next((path for path, count in resolved.items() if count > 1), None):
        raise ConfigError(f"{twice} is named twice", cure="Name each file once.")
    short = [path.name.split(".")[0] or path.name for path in files]
    longer = [f"{path.resolve().parent.name}-{name}" for path, name in zip(files, short, strict=True)]
    for names in (short, longer):
        if len(set(names)) == len(names):
            return names
    return [f"{name}-{number}" for number, name in enumerate(longer, 1)]
