"""A small corpus, and all that can be done to one."""

from collections.abc import Callable
from pathlib import Path

from small import jsonl

from realm.documents.change.compaction import compact_corpus, tidy_corpus
from realm.documents.change.updates import add_documents, remove_documents, sync_documents, update_documents
from realm.documents.ingest.builder import build_corpus


def changed_corpus(directory: Path) -> Path:
    """Version 3 of a corpus of two segments and a tombstone, and the sources of changes beside it."""

    def rows(numbers: range, text: str = "The pound sterling was used in city {0}. Bread is baked in city {0} each day.") -> list[dict]:
        return [{"id": f"doc-{n}", "title": f"City {n}", "text": text.format(n) * (1 + n % 3)} for n in numbers]

    sources = {"a": rows(range(5)), "b": rows(range(5, 7)), "c": rows(range(7, 10))}
    sources["u"] = rows(range(0, 7, 6), "All is new in city {0} today.")
    for name, found in sources.items():
        jsonl(directory / f"{name}.jsonl", found)
    corpus = directory / "corpus"
    build_corpus([directory / "a.jsonl"], corpus, vocab_size=200, block_length=48, workers=1)
    add_documents(corpus, [directory / "b.jsonl"], workers=1)
    remove_documents(corpus, ["doc-1"])
    return corpus


CHANGES: dict[str, Callable[..., object]] = {
    "add": lambda corpus, at: add_documents(corpus, [at / "c.jsonl"], workers=1),
    "update": lambda corpus, at: update_documents(corpus, [at / "u.jsonl"], workers=1),
    "sync": lambda corpus, at: sync_documents(corpus, [at / "a.jsonl", at / "c.jsonl"], workers=1),
    "remove": lambda corpus, at: remove_documents(corpus, ["doc-0", "doc-6"]),
    "compact": lambda corpus, at: compact_corpus(corpus),
    "purge": lambda corpus, at: compact_corpus(corpus, purge=True),
    "tidy": lambda corpus, at: tidy_corpus(corpus),
}
"""Each of a corpus, with the sources of ``changed_corpus`` in the directory ``at``."""
