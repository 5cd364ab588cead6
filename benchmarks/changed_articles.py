"""Change of knowledge (the paper's Table 4) on real articles: do the same networks follow when the documents say something else?

changed_facts.jsonl names 66 facts, each with a question, the answer of one article and that of the one which takes its place: "later", a
later article on the same subject (English Wikipedia of 2013 to 2015 against Simple Wikipedia of 2021); "otherwise", the same, where the
second one is not later in its fact but says another thing; "exchanged", an article of 2018 or later in which the answer was replaced by
hand. An article is its first 3,000 characters here. The old ones are indexed among other articles of both kinds, asked, updated in place as
``realm corpus update`` and ``realm index build`` do, and asked again; then once more as if they were not there. Nothing is trained.

    python benchmarks/changed_articles.py DATA --scratch DIR [--body realm-minilm-en]

BODY is a published body that reads, or the directory of a stage that left a reader. The last line of the output is one JSON object.
"""

import argparse
import hashlib
import json
import lzma
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import result
from realm.answerer import Answerer
from realm.corpus.change.updates import update_documents
from realm.corpus.records import SourceDocument
from realm.corpus.sources.reading import iter_documents
from realm.data.types import Question
from realm.nn.model import state_sha256
from realm.opening import OpenRun
from realm.recipes.scoring import bootstrap_interval, is_correct
from realm.storage.files import write_atomic
from released_model import indexed

FACTS = Path(__file__).with_name("changed_facts.jsonl")
LEAD = 3000
KINDS = ("later", "otherwise", "exchanged")
FILES = {
    "en08_": "corpus/enwiki_new2008_part.jsonl.xz",
    "en18_": "corpus/enwiki_new2018_part.jsonl.xz",
    "sw": "corpus/simplewiki_2021.jsonl.xz",
    "enwiki:": "dumps/enwiki-2013-shortened-pages-articles.xml.bz2",
}
"""Where the article with an id stands, by how the id begins."""
BESIDE = ("en18_", "sw")
Document = dict[str, str]


@dataclass(frozen=True)
class Fact:
    """One fact that changes: the article, and the question with the old and with the new answers."""

    document: str
    kind: str
    old: Question
    new: Question


def lead(text: str) -> str:
    """The beginning of an article, up to the end of a sentence."""
    if len(text) <= LEAD:
        return text
    ends = [match.end() for match in re.finditer(r"[.!?](?=\s)", text[:LEAD])]
    return text[: ends[-1] if ends else LEAD]


def articles(data: Path, prefix: str) -> Iterator[Document]:
    """The articles of one file."""
    path = data / FILES[prefix]
    if path.suffix == ".xz":
        with lzma.open(path, "rt", encoding="utf8") as lines:
            yield from ({key: row[key] for key in ("id", "title", "text")} for row in map(json.loads, lines))
    else:
        for record in iter_documents(path):
            if isinstance(record, SourceDocument):
                yield {"id": record.doc_id, "title": record.title, "text": record.text}


def wanted(data: Path, ids: set[str], beside: int) -> tuple[dict[str, Document], list[Document]]:
    """The leads of the articles with these ids, and of ``beside`` others, the first in the order of a hash."""
    found, others = {}, []
    for prefix in FILES:
        for article in articles(data, prefix):
            article["text"] = lead(article["text"])
            if article["id"] in ids:
                found[article["id"]] = article
            elif prefix in BESIDE:
                others.append((hashlib.sha256(article["id"].encode()).digest(), article))
    others.sort(key=lambda pair: pair[0])
    return found, [article for _, article in others[:beside]]


def after_change(row: dict[str, Any], found: dict[str, Document]) -> Document:
    """The article that takes the place of a fact's."""
    text = found[row.get("new_id", row["id"])]["text"]
    if row["kind"] == "exchanged":
        text = text.replace(row["old"][0], row["new"][0])
    return {"id": row["id"], "title": found[row["id"]]["title"], "text": text}


def checked(row: dict[str, Any], old: Document, new: Document) -> Fact:
    """A fact of which both articles say what the table says of them."""
    for which, document in (("old", old), ("new", new)):
        assert any(answer in document["text"] for answer in row[which]), f"{row['title']}: its {which} article does not say {row[which]}"
    before, after = (Question(row["id"], row["question"], tuple(row[which])) for which in ("old", "new"))
    assert not any(is_correct(answer, before) for answer in row["new"]), f"{row['title']}: a new answer is an old one"
    return Fact(row["id"], row["kind"], before, after)


def says(answerer: Answerer, facts: Sequence[Fact], read: int) -> list[dict[str, Any]]:
    """What is answered, and whether that is the old and whether it is the new answer of each fact."""
    answers = answerer.answer([fact.old.text for fact in facts], k=read)
    return [
        {"answer": answer.answer, "old": is_correct(answer.answer, fact.old), "new": is_correct(answer.answer, fact.new)}
        for answer, fact in zip(answers, facts, strict=True)
    ]


def share(hits: Sequence[bool]) -> dict[str, Any]:
    """How many, which share of them, and its interval."""
    if not hits:
        return {"n": 0, "share": None, "interval": None}
    return {"n": len(hits), "share": float(np.mean(hits)), "interval": bootstrap_interval([float(hit) for hit in hits])}


def table(facts: Sequence[Fact], told: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row for each kind of fact and one for all: old and new answers in each state of the documents, and who followed."""
    rows = []
    for kind in (*KINDS, "all"):
        mine = [i for i, fact in enumerate(facts) if kind in (fact.kind, "all")]
        row: dict[str, Any] = {"facts": kind}
        for state, answers in told.items():
            row[state] = {which: share([answers[i][which] for i in mine]) for which in ("old", "new")}
        right = [i for i in mine if told["before"][i]["old"]]
        row["of those right before"] = {which: share([told["after"][i][which] for i in right]) for which in ("old", "new")}
        rows.append(row)
    return rows


def digests(run: OpenRun) -> list[str]:
    """Of the networks that embed and read."""
    return [state_sha256(run.pretrained.embedder), state_sha256(run.pretrained.reader)]


def asked(run: OpenRun, facts: Sequence[Fact], read: int, changed: Path) -> dict[str, list[dict[str, Any]]]:
    """What a run says before the change of its corpus, after it, and without the articles."""
    told, before = {"before": says(run.answerer, facts, read)}, digests(run)
    update_documents(run.paths.corpus, [changed])
    run, embedded = run.with_added()
    print(f"{embedded} blocks embedded", flush=True)
    told["after"] = says(run.answerer, facts, read)
    told["without"] = says(run.answerer_without([fact.document for fact in facts]), facts, read)
    assert digests(run) == before, "the networks have changed"
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--body", default="realm-minilm-en")
    parser.add_argument("--beside", type=int, default=600, help="other articles in the corpus")
    parser.add_argument("--read", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [json.loads(line) for line in FACTS.read_text("utf8").splitlines()]
    found, others = wanted(arguments.data, {row[key] for row in rows for key in ("id", "new_id") if key in row}, arguments.beside)
    old, new = [found[row["id"]] for row in rows], [after_change(row, found) for row in rows]
    facts = [checked(*each) for each in zip(rows, old, new, strict=True)]

    scratch, files = arguments.scratch, {}
    scratch.mkdir(parents=True, exist_ok=True)
    for name, documents in (("old", [*old, *others]), ("new", new)):
        files[name] = scratch / f"{name}.jsonl"
        write_atomic(files[name], "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents))
    shutil.rmtree(scratch / "run", ignore_errors=True)
    run = indexed([files["old"]], arguments.body, scratch / "run")
    blocks = len(run.inputs.store.block_ids)
    told = asked(run, facts, arguments.read, files["new"])
    for i, fact in enumerate(facts):
        line = {state: answers[i]["answer"] for state, answers in told.items()}
        print(json.dumps({"kind": fact.kind, "question": fact.old.text, **line}, ensure_ascii=False), flush=True)
    shares = table(facts, told)
    for row in shares:
        print(row)
    kept = {"body": arguments.body, "read": arguments.read, "blocks": blocks, "facts": len(facts), "told": told}
    print(json.dumps(result("changed articles", arguments.threads, rows=shares, **kept)))


if __name__ == "__main__":
    main()
