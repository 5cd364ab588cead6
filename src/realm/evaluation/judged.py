"""Collections with relevance judgements (BEIR folders and the like), and retrieval measured against them by ir-measures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.errors import DataError, MissingExtra
from realm.evaluation.measures import bootstrap_interval
from realm.progress import Counting
from realm.search.candidates import Source
from realm.storage.decoding import json_lines, open_text

QUERY_IDS = ("query-id", "query_id", "qid")
DOCUMENT_IDS = ("corpus-id", "doc_id", "did")
GRADES = ("score", "relevance")
_CURE = "A collection is a folder with queries.jsonl and qrels/test.tsv, as BEIR has them."
_TREC_COLUMNS = 4
_WORST_CODE = 4


@dataclass(frozen=True)
class Judged:
    """Queries by id, and the grade of each judged document by query and document; every query has a document with a grade above 0."""

    queries: dict[str, str]
    grades: dict[str, dict[str, int]]


def load_judged(folder: Path) -> Judged:
    """Read a folder: ``*queries.jsonl`` and ``qrels/test.tsv`` (else dev, else train), or one file ``*qrels.*`` beside it.

    Judgements are BEIR's tables with a header, TREC's four columns, or JSON lines. Cranfield's codes of relevance count from 1, the best,
    to 4 and become grades 4 to 1; its undocumented -1 is left out, as are judgements of unknown queries and queries without a relevant
    document. Raises DataError: a file is missing or malformed, or no query with a relevant document is left; file and line are named."""
    queries = dict(_queries(_only(folder, "*queries.jsonl*")))
    grades: dict[str, dict[str, int]] = {}
    for query, document, grade in _judgements(_qrels(folder)):
        if query in queries:
            grades.setdefault(query, {})[document] = grade
    grades = {query: found for query, found in grades.items() if any(grade > 0 for grade in found.values())}
    if not grades:
        raise DataError("no query with a relevant document", path=folder, cure=_CURE)
    return Judged({query: queries[query] for query in grades}, grades)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise DataError(f"{len(found)} files {pattern} where one is expected", path=folder, cure=_CURE)
    return found[0]


def _qrels(folder: Path) -> Path:
    for split in ("test", "dev", "train"):
        if (file := folder / "qrels" / f"{split}.tsv").is_file():
            return file
    return _only(folder, "*qrels.*")


def _queries(path: Path) -> Iterator[tuple[str, str]]:
    for number, row in json_lines(path, _CURE):
        name = row.get("_id", row.get("id"))
        text = row.get("text", row.get("query"))
        if name is None or not isinstance(text, str) or not text.strip():
            raise DataError("no query", path=path, line=number, cure='Each line is {"_id": ..., "text": ...}.')
        yield str(name), text.strip()


def _judgements(path: Path) -> Iterator[tuple[str, str, int]]:
    if ".jsonl" in path.suffixes:
        rows = (_json_row(row, path, number) for number, row in json_lines(path, _CURE))
        yield from filter(None, rows)
        return
    with open_text(path) as lines:
        yield from filter(None, (_table_row(line, path, number) for number, line in enumerate(lines, 1) if line.strip()))


def _table_row(line: str, path: Path, number: int) -> tuple[str, str, int] | None:
    """A row of three columns, or of TREC's four; None for the header."""
    cells = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
    if len(cells) == _TREC_COLUMNS:
        del cells[1]
    if number == 1 and cells[0] in QUERY_IDS:
        return None
    try:
        query, document, grade = cells
        return query, document, int(grade)
    except ValueError:
        raise DataError("no judgement", path=path, line=number, cure="A row is: query id, document id, grade.") from None


def _json_row(row: dict[str, Any], path: Path, number: int) -> tuple[str, str, int] | None:
    def first(names: tuple[str, ...]) -> Any:
        return next((row[name] for name in names if name in row), None)

    query, document, grade = first(QUERY_IDS), first(DOCUMENT_IDS), first(GRADES)
    if grade is None and isinstance(code := row.get("code"), int):
        if code < 1:
            return None
        grade = max(0, _WORST_CODE + 1 - code)
    if query is None or document is None or not isinstance(grade, int):
        raise DataError("no judgement", path=path, line=number, cure="A row has a query id, a document id and a whole number as its grade.")
    return str(query), str(document), grade


BATCH = 64


def evaluate_judged(
    source: Source, store: BlockStore, judged: Judged, depths: Sequence[int], *, counting: Counting | None = None
) -> dict[str, Any]:
    """{"n", "ndcg_10", "ndcg_10_interval", "mrr", "mrr_interval", "recall": {depth: value}, "unknown_documents"}: means over queries.

    Arguments and errors as in :func:`judged_values`."""
    values, unknown = judged_values(source, store, judged, depths, counting=counting)
    means = {name: float(np.mean(found)) for name, found in values.items()}
    return {
        "n": len(judged.queries),
        "ndcg_10": means["ndcg_10"],
        "ndcg_10_interval": list(bootstrap_interval(values["ndcg_10"].tolist())),
        "mrr": means["mrr"],
        "mrr_interval": list(bootstrap_interval(values["mrr"].tolist())),
        "recall": {str(depth): means[f"recall_{depth}"] for depth in depths},
        "unknown_documents": unknown,
    }


def judged_values(
    source: Source, store: BlockStore, judged: Judged, depths: Sequence[int], *, counting: Counting | None = None
) -> tuple[dict[str, np.ndarray], int]:
    """Measures of each query, [n] each in the order of ``judged.queries``, and the number of unknown judged documents.

    They are "ndcg_10", "mrr" and "recall_DEPTH": ``mrr`` is the reciprocal rank within the deepest of ``depths``, at least 10, and recall
    the share of a query's relevant documents. Unknown documents count as not found. Raises DataError: the corpus has none of the judged
    documents. Raises MissingExtra: ir-measures is not installed."""
    try:
        import ir_measures
        from ir_measures import RR, R, nDCG
    except ImportError:
        raise MissingExtra("measuring retrieval against judgements", "eval") from None
    wanted = {document for grades in judged.grades.values() for document in grades}
    unknown = wanted - set(store.documents())
    if unknown == wanted:
        raise DataError(
            "the corpus has none of the judged documents", path=store.path, cure="Build it from the collection's own documents."
        )
    ranked = rank_documents(source, store, judged.queries, max(10, *depths), counting=counting)
    run = {query: dict(zip(documents, falling(scores), strict=True)) for query, (documents, scores) in ranked.items()}
    names: dict[Any, str] = {nDCG @ 10: "ndcg_10", RR: "mrr", **{R @ depth: f"recall_{depth}" for depth in depths}}
    place = {query: at for at, query in enumerate(judged.queries)}
    values = {name: np.zeros(len(place)) for name in names.values()}
    for found in ir_measures.iter_calc(list(names), judged.grades, run):
        values[names[found.measure]][place[found.query_id]] = found.value
    return values, len(unknown)


def rank_documents(
    source: Source, store: BlockStore, queries: Mapping[str, str], depth: int, *, counting: Counting | None = None
) -> dict[str, tuple[list[str], list[float]]]:
    """At most ``depth`` documents per query, best first, with their best blocks' scores; the search deepens until there are so many."""
    names = list(queries)
    ranked: dict[str, tuple[list[str], list[float]]] = {}
    for at in range(0, len(names), BATCH):
        part = names[at : at + BATCH]
        texts = [queries[name] for name in part]
        tokens = store.tokenizer.encode(texts)
        blocks = 2 * depth
        while True:
            found = source.find(texts, tokens, blocks)
            lists = [best_of_documents(store, *pair, depth) for pair in zip(found.rows, found.scores, strict=True)]
            if blocks >= len(store) or all(len(documents) == depth for documents, _ in lists):
                break
            blocks *= 2
        ranked.update(zip(part, lists, strict=True))
        if counting:
            counting("eval: judged queries searched", len(ranked), len(names))
    return ranked


def best_of_documents(store: BlockStore, rows: np.ndarray, scores: np.ndarray, depth: int | None = None) -> tuple[list[str], list[float]]:
    """Documents of ranked blocks [k], each once, at its best block."""
    found: dict[str, float] = {}
    for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
        if row >= 0 and len(found) != depth:
            found.setdefault(store.doc_id(row), score)
    return list(found), list(found.values())


def falling(scores: Sequence[float]) -> list[float]:
    """Scores that fall strictly, as little changed as float32 allows: outside tools sort by score alone, and break ties otherwise.

    >>> falling([2.0, 2.0])
    [2.0, 1.9999998807907104]
    """
    strict: list[float] = []
    last = np.float32(np.inf)
    for score in np.asarray(scores, np.float32):
        last = score if score < last else np.nextafter(last, np.float32(-np.inf))
        strict.append(float(last))
    return strict
