"""Change of knowledge (the paper's Table 4): the same trained networks over a corpus that says something else give the new answers.

RUN is a finished run on the atlas (``realm demo``). In a second atlas countries and states exchange what is asked about them (capitals,
currencies, languages, ...), and the documents that say otherwise now are updated in a copy of the run, as ``realm corpus update`` does;
nothing is trained. Asked are the test questions of which the answer changed: no training question has them. Each fact is also masked in a
statement that no document makes: which answer is more probable there, before fine-tuning, is what the paper's table shows.

    python benchmarks/changed_knowledge.py RUN --work DIRECTORY

The last line of its output is one JSON object.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from common import result
from realm.corpus.change.updates import update_documents
from realm.data.questions import load_questions
from realm.data.types import Question
from realm.demo.atlas import atlas_of
from realm.demo.tables import Domain, Entity, load_domains, normalise_answer, render
from realm.explain import explain
from realm.opening import OpenRun, open_run
from realm.pipeline.demo_from_nothing import ASKED, DEMO_DOMAINS
from realm.recipes.scoring import bootstrap_interval, is_correct
from realm.storage.files import write_atomic

READ = 5


@dataclass(frozen=True)
class Changed:
    """One fact that changed: the question with the old and with the new answers, and a statement with a mask that no document makes."""

    old: Question
    new: Question
    statement: str | None


def exchange(domain: Domain, seed: int) -> Domain:
    """The same things, each with the asked-for values of another one: one circle through all that have a value, for each kind of fact."""
    cells = {entity.key: dict(entity.cells) for entity in domain.entities}
    random = np.random.default_rng(seed)
    for kind in (fact.name for fact in domain.facts.values() if fact.ask):
        having = [entity for entity in domain.entities if entity.value(kind)]
        order = random.permutation(len(having)).tolist()
        for at, following in zip(order, order[1:] + order[:1], strict=True):
            cells[having[at].key][kind] = having[following].cells[kind]
    return replace(domain, entities=tuple(replace(entity, cells=cells[entity.key]) for entity in domain.entities))


def changed_facts(questions: Sequence[Question], before: dict[str, Domain], after: dict[str, Domain], said: str) -> list[Changed]:
    """The questions of which no old answer is a new one; ``said`` is all that both corpora say."""
    found = []
    for question in questions:
        domain, name, kind, _ = question.id.split("/")
        key = f"{domain}/{name}"
        old, new = ({entity.key: entity for entity in side[domain].entities}[key] for side in (before, after))
        answers = new.answers(kind)
        if {normalise_answer(text) for text in old.answers(kind)} & {normalise_answer(text) for text in answers}:
            continue
        found.append(Changed(question, replace(question, answers=tuple(answers)), _statement(before[domain], old, new, kind, said)))
    return found


def _statement(domain: Domain, old: Entity, new: Entity, kind: str, said: str) -> str | None:
    """The fact in words that neither corpus has for it, with a mask; None where all are taken."""
    masked = replace(old, cells={**old.cells, kind: ("[MASK]",)})
    for template in domain.facts[kind].statements:
        taken = [render(template, entity, kind) for entity in (old, new)]
        text = render(template, masked, kind)
        if text and text.count("[MASK]") == 1 and not any(sentence and sentence in said for sentence in taken):
            return text
    return None


def ask(run: OpenRun, facts: Sequence[Changed]) -> dict[str, list[float]]:
    """Which questions are answered with the old and which with the new answer, 1 or 0 each."""
    answers = run.answerer.answer([fact.old.text for fact in facts], k=READ)
    return {
        which: [float(is_correct(answer.answer, getattr(fact, which))) for answer, fact in zip(answers, facts, strict=True)]
        for which in ("old", "new")
    }


def fill(run: OpenRun, facts: Sequence[Changed]) -> list[float]:
    """Of each fact with a statement: whether the pre-trained networks find the new answer more probable than the old one."""
    found = []
    for fact in facts:
        if fact.statement is not None:
            p = [
                explain(run.pretrained, run.generation, run.inputs, fact.statement, targets=[side.answers[0]], top=1).p_y
                for side in (fact.old, fact.new)
            ]
            found.append(float(p[1] > p[0]))
    return found


def tell(answered: dict[str, dict[str, list[float]]], filled: dict[str, list[float]]) -> list[dict[str, Any]]:
    rows = []
    for corpus, which in answered.items():
        row: dict[str, Any] = {"corpus": corpus, "questions": len(which["old"])}
        for answer, right in which.items():
            row[f"{answer} answer"] = {"share": float(np.mean(right)), "interval": bootstrap_interval(right)}
        row["statements"] = len(filled[corpus])
        row["new more probable"] = {"share": float(np.mean(filled[corpus])), "interval": bootstrap_interval(filled[corpus])}
        rows.append(row)
        print(corpus, {name: value for name, value in row.items() if name != "corpus"})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0, help="of the exchange")
    options = parser.parse_args()

    domains = [domain for domain in load_domains() if domain.name in DEMO_DOMAINS]
    changed = [exchange(domain, options.seed) if domain.name in ASKED else domain for domain in domains]
    old, new = (atlas_of(side, asked=ASKED) for side in (domains, changed))
    texts = {document["id"]: document["text"] for document in old.documents}
    updated = [document for document in new.documents if texts[document["id"]] != document["text"]]
    said = "\n".join(document["text"] for atlas in (old, new) for document in atlas.documents)
    questions = load_questions(options.run / "atlas" / "qa_test.jsonl")
    facts = changed_facts(questions, *({domain.name: domain for domain in side} for side in (domains, changed)), said)

    copy = options.work / "run"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(options.run, copy)
    run = open_run(copy)
    answered, filled = {"as trained": ask(run, facts)}, {"as trained": fill(run, facts)}
    write_atomic(options.work / "changed.jsonl", "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in updated))
    update_documents(run.paths.corpus, [options.work / "changed.jsonl"])
    run, embedded = run.with_added()
    answered["changed"], filled["changed"] = ask(run, facts), fill(run, facts)

    print(f"{len(updated)} of {len(texts)} documents updated, {embedded} blocks embedded, {len(facts)} facts changed")
    print(json.dumps(result("changed_knowledge", 1, rows=tell(answered, filled), documents=len(updated), facts=len(facts))))


if __name__ == "__main__":
    main()
