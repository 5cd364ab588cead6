"""Sentences followed through pre-training: what was retrieved for each at the refreshes, and which documents helped."""

from typing import Any

from realm.report.chart import short
from realm.report.evidence import cloze, explained_table, meter, probability, records, signed
from realm.report.markup import Html, join, table, tag
from realm.report.read import number

MOST_STEPS = 6
SHOWN_DOCUMENTS = 3
ABOUT = (
    "The same sentences at each refresh of the index, the marked words hidden. The documents with the most weight p(z|x) stand first; "
    "behind each is its utility, what it adds to the log-probability of the hidden words against reading nothing. Learning shows as "
    "documents with utility above 0 that gain weight. The sentence's own document is never retrieved."
)


def followed_section(rows: list[dict[str, Any]]) -> Html | None:
    """``rows`` are those of examples.jsonl, in the order written."""
    sentences: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        if number(row.get("step")) is not None and isinstance(row.get("sentence"), int):
            sentences.setdefault(row["sentence"], []).append(row)
    if not sentences:
        return None
    cards = [_sentence(found) for found in sentences.values()]
    return tag("section", tag("h2", "Sentences followed through training"), tag("p", ABOUT, class_="about"), *cards)


def _sentence(rows: list[dict[str, Any]]) -> Html:
    """One sentence: a row of the table for some of the refreshes, and the documents of the last one in full."""
    kept = _spread(rows)
    head = ["Step", "p(y|x)", "p(null)", "Documents with the most weight"]
    shown = table(head, [_refresh(row) for row in kept], "What was retrieved at the refreshes of the index")
    last = explained_table(rows[-1], "The documents of the last refresh")
    details = None if last is None else tag("details", tag("summary", "The documents of the last refresh"), last)
    return tag("article", cloze(rows[-1]), shown, details, class_="card followed")


def _spread(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most so many rows, evenly, the first and the last always."""
    if len(rows) <= MOST_STEPS:
        return rows
    return [rows[round(i * (len(rows) - 1) / (MOST_STEPS - 1))] for i in range(MOST_STEPS)]


def _refresh(row: dict[str, Any]) -> list[Any]:
    candidates = records(row.get("candidates"))
    documents = sorted((c for c in candidates if not c.get("null")), key=lambda c: -(number(c.get("p_z")) or 0.0))
    null = next((number(c.get("p_z")) for c in candidates if c.get("null")), None)
    items = [_document(c) for c in documents[:SHOWN_DOCUMENTS]]
    listed = tag("ul", *items, class_="retrieved") if items else "–"
    return [short(number(row.get("step"))), probability(number(row.get("p_y"))), probability(null), listed]


def _document(candidate: dict[str, Any]) -> Html:
    name = join(tag("b", candidate.get("title") or "untitled"), " ", signed(number(candidate.get("utility"))))
    return tag("li", tag("span", name), meter("", number(candidate.get("p_z"))))
