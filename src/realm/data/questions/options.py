"""What a user may say about a question file, where looking at it is not enough."""

from dataclasses import dataclass

from realm.errors import ConfigError

FORMATS = ("jsonl", "json", "csv", "tsv", "nq-open", "natural-questions", "webquestions", "curatedtrec", "triviaqa", "squad", "dpr")


@dataclass(frozen=True)
class QuestionOptions:
    """How question files are to be read; what is empty is looked at."""

    format: str = ""
    """jsonl, json, csv, tsv, nq-open, natural-questions, webquestions, curatedtrec, triviaqa, squad or dpr; empty: detected."""
    question_column: str = ""
    """Column or key with the question; empty: question."""
    answers_column: str = ""
    """Column or key with the answers; empty: answers or answer."""
    id_column: str = ""
    """Column or key with the id; empty: id; questions without one are numbered."""
    separator: str = ""
    """What separates the answers in a cell of a table; empty: a cell is one answer, or a list in brackets."""
    unanswerable: bool = False
    """Keep the questions whose paragraph does not answer them; otherwise they are counted and skipped."""

    def __post_init__(self) -> None:
        if self.format and self.format not in FORMATS:
            raise ConfigError(f"no question format '{self.format}'", cure=f"Formats are: {', '.join(FORMATS)}.")
