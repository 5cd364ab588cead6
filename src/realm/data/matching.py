"""Where the answers of many questions stand in a whole corpus, by any of the ways to match, found in one pass over it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence as SequenceOf

from realm.corpus.store.blocks import BlockStore
from realm.data.pattern_places import locate_patterns
from realm.data.qa import answer_wordpieces, locate_wordpieces
from realm.data.spans import Spans
from realm.data.types import Question
from realm.errors import MissingExtra
from realm.progress import Advance
from realm.text.answer_ranges import Range, normalised_ranges, normalised_text, raw_ranges
from realm.text.literals import automaton
from realm.text.patterns import PatternSearch


def locate_answers(
    store: BlockStore,
    questions: SequenceOf[Question],
    match: str,
    patterns: PatternSearch | None = None,
    counting: Advance = lambda done, total: None,
) -> list[Spans]:
    """Rows with an answer of each question, and the wordpieces that a reader is to mark there.

    Args:
        match: how strings are found, one of ``answer_ranges.MATCHES``. wordpiece: rows and spans by wordpieces. raw: rows by characters;
            the spans in them are those of the answer's wordpieces, as in the TensorFlow release. normalised: rows by normalised words;
            spans are what stands there, however the document spells it. Regex answers have one way, see ``locate_patterns``.
        patterns: searches for regex answers, and knows afterwards which it gave up.

    Raises:
        MissingExtra: raw and normalised need an automaton over all answers at once.
    """
    strings = [question for question in questions if question.answer_type == "string"]
    regexes = [question for question in questions if question.answer_type == "regex"]
    located = dict(zip(map(id, strings), _located_strings(store, strings, match, counting), strict=True)) if strings else {}
    if regexes:
        wanted = dict.fromkeys(pattern for question in regexes for pattern in question.answers)
        tables = locate_patterns(store, wanted, patterns or PatternSearch(), counting)
        for question in regexes:
            located[id(question)] = Spans.union([tables[pattern] for pattern in question.answers if pattern in tables])
    return [located[id(question)] for question in questions]


def _located_strings(store: BlockStore, questions: SequenceOf[Question], match: str, counting: Advance) -> list[Spans]:
    if match == "wordpiece":
        return locate_wordpieces(store, [answer_wordpieces(store, question) for question in questions], counting)
    rows = _rows_with(store, questions, *_PREPARED[match])
    accepted = []
    for question, holding in zip(questions, rows, strict=True):
        spellings = set(question.answers) if match == "raw" else _spellings(store, question, holding)
        accepted.append([ids for ids in store.tokenizer.encode(sorted(spellings)) if ids] if holding else [])
    located = locate_wordpieces(store, accepted, counting)
    return [Spans.of({row: spans.get(row, []) for row in holding}) for spans, holding in zip(located, rows, strict=True)]


def _spellings(store: BlockStore, question: Question, rows: Iterable[int]) -> set[str]:
    """How the documents write the answers."""
    texts = (store.block(row).text for row in rows)
    return {text[start:end] for text in texts for start, end in normalised_ranges(text, question.answers)}


def _rows_with(
    store: BlockStore, questions: SequenceOf[Question], prepared: Callable[[str], str], needle: Callable[[str], str]
) -> list[list[int]]:
    """Rows that hold an answer of each question, ascending."""
    owners: dict[str, set[int]] = defaultdict(set)
    for number, question in enumerate(questions):
        for answer in question.answers:
            if needle(answer).strip():
                owners[needle(answer)].add(number)
    found: list[list[int]] = [[] for _ in questions]
    needles = list(owners)
    finder = automaton(needles)
    if finder is None:
        raise MissingExtra("matching answers other than by wordpieces", "eval")
    for row in range(len(store)):
        hits = {place[0] for place in finder.find_matches_as_indexes(prepared(store.block(row).text), overlapping=True)}
        for number in {owner for hit in hits for owner in owners[needles[hit]]}:
            found[number].append(row)
    return found


def _padded(text: str) -> str:
    """Normalised words with a space on either side: whole words match whole words."""
    return f" {normalised_text(text)} "


_PREPARED: dict[str, tuple[Callable[[str], str], Callable[[str], str]]] = {"raw": (str, str), "normalised": (_padded, _padded)}


def places(text: str, answers: SequenceOf[str], match: str) -> list[Range]:
    """Where answers stand in one text by characters ("raw") or normalised words ("normalised"), in the text's own spelling."""
    return {"raw": raw_ranges, "normalised": normalised_ranges}[match](text, answers)
