"""Questions in JSON: one object a line, or one document with a list of them; Natural Questions as published, with documents."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from realm.errors import DataError
from realm.evaluation.questions.rows import QUESTIONS_CURE, QuestionOptions, Row, Rows, Skipped, distinct
from realm.text.files import json_lines, open_text

_SPACE = re.compile(r"[\s,]*")
_DESCRIPTION = re.compile(r'\(description\s+(?:"((?:[^"\\]|\\.)*)"|([^()"]+))\)')
UNANSWERABLE = "the question has no answer in its paragraph"


def listed_objects(path: Path, key: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of each member of a JSON document's list: the document itself, or the list under its first ``key``.

    Raises:
        DataError: no such list, or what is in it is broken; the line is where the broken member begins.
    """
    with open_text(path) as lines:
        text = "".join(lines)
    found = re.search(r"\[" if key is None else rf'"{key}"\s*:\s*\[', text)
    if found is None:
        raise DataError(f"no list '{key}'" if key else "no list", path=path, line=1, cure="See docs/data-formats.md for the formats.")
    decoder, at, line, counted = json.JSONDecoder(), found.end(), 1, 0
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # matches the empty string, too
        line, counted = line + text.count("\n", counted, at), at
        if text[at : at + 1] == "]":
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise DataError(f"not JSON ({error})", path=path, line=line, cure="Fetch the file again.") from error
        yield line, value if isinstance(value, dict) else {}


def read_own(path: Path, options: QuestionOptions) -> Rows:
    """Our own rows, one a line; also those of NQ-Open and EfficientQA, whose answers are called "answer"."""
    for line, value in json_lines(path, QUESTIONS_CURE):
        yield _own(line, line, value, options)


def read_own_list(path: Path, options: QuestionOptions) -> Rows:
    """The same rows as one JSON list: DPR's, and those of the factoid sets with qId, qText and answers."""
    for number, (line, value) in enumerate(listed_objects(path), 1):
        yield _own(line, number, value, options)


def read_patterns(path: Path, options: QuestionOptions) -> Rows:
    """CuratedTrec as ORQA wrote it: rows like NQ-Open's, answers are patterns."""
    for line, value in json_lines(path, QUESTIONS_CURE):
        yield replace(_own(line, line, value, options), answer_type="regex")


def _own(line: int, number: int, value: dict[str, Any], options: QuestionOptions) -> Row:
    def first(asked: str, *usual: str) -> Any:
        return next((value[name] for name in ([asked] if asked else usual) if name in value), None)

    answers: Any = first(options.answers_column, "answers", "answer")
    if isinstance(answers, str) and "answers" not in value:
        answers = [answers]
    starts = value.get("starts")
    if isinstance(answers, dict):  # Hugging Face's columns
        answers, starts = answers.get("text"), answers.get("answer_start")
    name = first(options.id_column, "id", "qId")
    return Row(
        line,
        number if name is None else name,
        first(options.question_column, "question", "qText"),
        answers,
        value.get("positive_ids", []),
        value.get("answer_type", "string"),
        value.get("context") or "",
        value.get("title") or "",
        starts if isinstance(starts, list) else [],
    )


def read_webquestions(path: Path, options: QuestionOptions) -> Rows:
    """The official WebQuestions: {"utterance", "targetValue": '(list (description "A B") (description C))', "url"}."""
    for number, (line, value) in enumerate(listed_objects(path), 1):
        target = value.get("targetValue")
        found = _DESCRIPTION.findall(target) if isinstance(target, str) else []
        answers = [re.sub(r"\\(.)", r"\1", quoted) or bare.strip() for quoted, bare in found]
        yield Row(line, number, value.get("utterance"), distinct(answers))


def read_triviaqa(path: Path, options: QuestionOptions) -> Rows:
    """TriviaQA's official documents, unfiltered (open) or not: the value and every alias of it are answers."""
    for number, (line, value) in enumerate(listed_objects(path, "Data"), 1):
        answer = value.get("Answer")
        aliases = [answer.get("Value"), *(answer.get("Aliases") or [])] if isinstance(answer, dict) else []
        yield Row(line, value.get("QuestionId", number), value.get("Question"), distinct(a for a in aliases if a not in (None, "")))


def read_squad(path: Path, options: QuestionOptions) -> Rows:
    """SQuAD's official documents, each question with its paragraph; those of version 2 that have no answer say so by an empty list."""
    for line, article in listed_objects(path, "data"):
        for paragraph in article.get("paragraphs") or [{}]:
            for qa in paragraph.get("qas") or [{}]:
                answers = [answer for answer in qa.get("answers") or [] if isinstance(answer, dict)]
                context = paragraph.get("context") or ""
                if qa.get("is_impossible") and not context:
                    yield Skipped(line, UNANSWERABLE)
                    continue
                placed: list[dict[str, Any]] = [] if qa.get("is_impossible") else answers
                texts, starts = (
                    [answer.get("text") for answer in placed],
                    [answer["answer_start"] for answer in placed if "answer_start" in answer],
                )
                yield Row(line, qa.get("id"), qa.get("question"), texts, context=context, title=article.get("title") or "", starts=starts)


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
