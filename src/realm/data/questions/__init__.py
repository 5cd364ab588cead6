"""Question files: the published formats and one's own, read into ``Question``, checked row by row, split as the papers split them."""

from realm.data.questions.datasets import Datasets, dataset_names, load_datasets, parts, pooled, shared
from realm.data.questions.loading import QuestionFile, convert_questions, is_dev_question, load_questions, read_questions
from realm.data.questions.options import QuestionOptions

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
