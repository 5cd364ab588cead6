"""Natural Questions as published, with documents and annotations, to open questions: short answers of at most five tokens."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from realm.data.questions.options import QuestionOptions
from realm.data.questions.rows import QUESTIONS_CURE, Row, Rows, Skipped, distinct
from realm.errors import DataError
from realm.text.files import json_lines

LONGEST = 5
"""Tokens of a short answer that makes an open question, as in NQ-Open."""
NO_SHORT_ANSWER = f"no short answer of at most {LONGEST} tokens"


def read_natural_questions(path: Path, options: QuestionOptions) -> Rows:
    """Questions of the original files (``document_html`` with byte offsets) and of the simplified ones (``document_text``, tokens).

    Raises:
        DataError: annotations or documents that are not as published.
    """
    for line, value in json_lines(path, QUESTIONS_CURE):
        try:
            answers = distinct(text for text in (_text(value, span) for span in _short_spans(value)) if text)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"not a row of Natural Questions ({type(error).__name__}: {error})"
            raise DataError(problem, path=path, line=line, cure="Give the published file, or name the format.") from error
        if answers:
            yield Row(line, value.get("example_id", line), value.get("question_text"), answers)
        else:
            yield Skipped(line, NO_SHORT_ANSWER)


def _short_spans(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Of all annotators, in their order."""
    spans = [span for annotation in value["annotations"] for span in annotation["short_answers"]]
    return [span for span in spans if span["start_token"] >= 0 and span["end_token"] - span["start_token"] <= LONGEST]


def _text(value: dict[str, Any], span: dict[str, Any]) -> str:
    """The words of a span, without markup."""
    if "document_html" in value:  # offsets count bytes
        html = value["document_html"].encode("utf-8", "surrogatepass")[span["start_byte"] : span["end_byte"]]
        parser = _Words()
        parser.feed(html.decode("utf-8", "replace"))
        parser.close()
        return "".join(parser.words).strip()
    first, last = span["start_token"], span["end_token"]
    if "document_text" in value:
        tokens = value["document_text"].split(" ")[first:last]
        return " ".join(token for token in tokens if not (token.startswith("<") and token.endswith(">"))).strip()
    tokens = value["document_tokens"][first:last]
    return " ".join(token["token"] for token in tokens if not token["html_token"]).strip()


class _Words(HTMLParser):
    """Collects what is no tag, character references resolved."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []

    def handle_data(self, data: str) -> None:
        self.words.append(data)
