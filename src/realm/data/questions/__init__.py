"""Question files: the published formats and one's own, read into ``Question``, checked row by row, split as the papers split them."""

from realm.data.questions.loading import (
    Datasets,
    QuestionFile,
    convert_questions,
    dataset_names,
    is_dev_question,
    load_datasets,
    load_questions,
    parts,
    pooled,
    read_questions,
    shared,
)
from realm.data.questions.rows import QuestionOptions

__all__ = [
    "Datasets",
    "QuestionFile",
    "QuestionOptions",
    "convert_questions",
    "dataset_names",
    "is_dev_question",
    "load_datasets",
    "load_questions",
    "parts",
    "pooled",
    "read_questions",
    "shared",
]
