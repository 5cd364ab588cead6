"""LAMA by a reader that points at spans of retrieved blocks: precision at 1 with retrieval, and without.

RUN is a run whose pre-training taught a reader to point, or an index of the released model (``realm index build FILES --body
realm-minilm-en --out RUN``). Statements and facts are those of lama.py; with ``--subjects`` only those about a subject that a document of
the run has as its title. Blocks are found by the run's own search and by BM25, for the same reader. Said is the
string with the most of p(y|x), summed over equal strings of all blocks: any string, and among those of one wordpiece (LAMA's objects are
that). Without documents p(y|x) is pi(y), the share of y among the corpus's salient spans: it knows nothing of the statement, and
says the same each time. "in the blocks" is the share of facts whose object stands in a block that was read: more cannot be right.

    python benchmarks/lama_pointing.py RUN --data DATA/lama --sets squad [--readers realm-minilm-en]

The pages that T-REx's facts are about are written by the same script, among others as many again:

    python benchmarks/lama_pointing.py --pages PAGES.jsonl --data DATA/lama --documents DATA/corpus/simplewiki_2021.jsonl.xz --facts 24

The last line of its output is one JSON object.
"""

import argparse
import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from common import result
from lama import BATCH, Asked, fact_hash, most_frequent, readable, rows_of, squad, trex
from realm.candidates import Source
from realm.data.cloze import MASK
from realm.nn.known_bodies import body_directory
from realm.nn.model import RealmModel
from realm.nn.reader import Reader, score_spans
from realm.opening import OpenRun, open_run
from realm.pointer import best_strings
from realm.recipes.scoring import bootstrap_interval
from realm.storage.files import write_atomic

SETS = {"trex": trex, "squad": squad}
LONGEST_PAGE = 6000
"""Characters of a page that are taken."""


@dataclass(frozen=True)
class Said:
    """What was said of one fact: the likeliest string and the likeliest of one wordpiece, as keys; whether a block held the object."""

    any_string: str
    one_wordpiece: str
    held: bool


class Pointing:
    """Points at spans of blocks that a search finds for masked statements."""

    def __init__(self, run: OpenRun, reader: Reader, k: int):
        self.inputs, self.reader, self.k = run.inputs, reader.eval(), k

    def say(self, asked: Sequence[Asked], source: Source) -> list[Said]:
        """What is pointed at; the embedder sees the mask, BM25 the words around it."""
        found = source([one.fact.statement.replace(MASK, " ") for one in asked], [one.query.ids for one in asked], self.k)
        log_p_z = found.scores.double().masked_fill(~found.valid, -torch.inf).log_softmax(-1)
        spans = score_spans(self.reader, self.inputs, [one.query.ids for one in asked], found.rows)
        said = []
        for i, one in enumerate(asked):
            strings = best_strings(spans.of(i), log_p_z[i], self.inputs, found.rows[i])
            single = [string.key for string in strings if len(string.wordpieces) == 1]
            held = any(self.inputs.span_places.places(row, one.query.targets) for row in found.rows[i].tolist() if row >= 0)
            said.append(Said(strings[0].key if strings else "", single[0] if single else "", held))
        return said


def over_relations(asked: Sequence[Asked], right: Sequence[bool]) -> dict[str, Any]:
    """Share of facts that are right, the mean over relations; the interval is over relations, or over facts where there is one relation."""
    of_relation: dict[str, list[float]] = defaultdict(list)
    for one, hit in zip(asked, right, strict=True):
        of_relation[one.fact.relation].append(float(hit))
    shares = [float(np.mean(hits)) for hits in of_relation.values()]
    return {
        "share": float(np.mean(shares)),
        "interval": bootstrap_interval(shares if len(shares) > 1 else next(iter(of_relation.values()))),
    }


def measured(run: OpenRun, reader: Reader, asked: Sequence[Asked], k: int) -> list[dict[str, Any]]:
    """A row for each search."""
    keys = [run.inputs.span_places.key(one.query.targets) for one in asked]
    pointing, rows = Pointing(run, reader, k), []
    for name, source in (("own search", run.source), ("BM25", run.source_by("sparse"))):
        said = [each for at in range(0, len(asked), BATCH) for each in pointing.say(asked[at : at + BATCH], source)]
        row: dict[str, Any] = {"search": name}
        for which in ("any_string", "one_wordpiece"):
            row[which] = over_relations(asked, [getattr(each, which) == key for each, key in zip(said, keys, strict=True)])
        rows.append(row | {"in the blocks": over_relations(asked, [each.held for each in said])})
    return rows


def without(run: OpenRun, asked: Sequence[Asked]) -> dict[str, Any]:
    """What pi(y) alone says."""
    places = run.inputs.span_places
    hits = [places.key(one.query.targets) == places.likeliest for one in asked]
    return {"without": over_relations(asked, hits), "says": places.likeliest, "most frequent object": most_frequent(asked)}


def named_readers(run: OpenRun, bodies: Sequence[str]) -> dict[str, Reader]:
    """The run's own reader, and those of other bodies of the same vocabulary."""
    own: nn.Module = run.pretrained.reader
    readers = {"own": own, **{body: RealmModel.from_pretrained(body_directory(body)).reader for body in bodies}}
    assert all(isinstance(reader, Reader) for reader in readers.values())
    return readers  # type: ignore[return-value]


def write_pages(data: Path, documents: Path, out: Path, most: int) -> None:
    """Write the pages that the first ``most`` facts of each relation are about, and as many others, the first in the order of a hash."""
    pages = {row["title"]: {**row, "text": row["text"][:LONGEST_PAGE]} for row in rows_of(documents)}
    of_relation: dict[str, list[str]] = defaultdict(list)
    for fact in sorted(trex(data), key=fact_hash):
        if fact.subject in pages and len(of_relation[fact.relation]) < most:
            of_relation[fact.relation].append(fact.subject)
    subjects = {subject for found in of_relation.values() for subject in found}
    others = sorted(pages.keys() - subjects, key=lambda title: hashlib.sha256(title.encode()).digest())[: len(subjects)]
    write_atomic(out, "".join(json.dumps(pages[title], ensure_ascii=False) + "\n" for title in sorted(subjects.union(others))))
    print(json.dumps(result("lama pages", 1, subjects=len(subjects), others=len(others), relations=len(of_relation))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--facts", type=int, default=20, help="of a relation")
    parser.add_argument("--k", type=int, default=5, help="blocks read")
    parser.add_argument("--readers", nargs="*", default=[], help="bodies whose readers read, too")
    parser.add_argument("--subjects", action="store_true", help="only facts about a subject with a page in the run")
    parser.add_argument("--pages", type=Path, help="write the pages that facts are about, and end")
    parser.add_argument("--documents", type=Path, help="with --pages: where they are taken from")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.pages:
        write_pages(options.data, options.documents, options.pages, options.facts)
        return
    run, rows = open_run(options.run), []
    titles = {run.inputs.store.block(row).title for row in np.flatnonzero(run.inputs.store.live).tolist()} if options.subjects else None
    with torch.inference_mode():
        for name in options.sets:
            facts = (fact for fact in SETS[name](options.data) if titles is None or fact.subject in titles)
            asked = readable(facts, run.inputs, 1000 if name == "squad" else options.facts)
            about = {"set": name, "facts": len(asked), "relations": len({one.fact.relation for one in asked})}
            rows.append(about | without(run, asked))
            print(rows[-1], flush=True)
            for reader_name, reader in named_readers(run, options.readers).items():
                for row in measured(run, reader, asked, options.k):
                    rows.append({"set": name, "reader": reader_name, **row})
                    print(rows[-1], flush=True)
    print(json.dumps(result("lama pointing", options.threads, rows=rows, k=options.k, blocks=len(run.inputs.store.block_ids))))


if __name__ == "__main__":
    main()
