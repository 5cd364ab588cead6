"""Does following links answer more? The same run with [retrieval] hops = 0 and 1, nothing trained.

    python benchmarks/bench_linked.py DATA --scratch DIR two-hop
    python benchmarks/bench_linked.py DATA --scratch DIR webquestions --share 0.03

"two-hop" asks 200 questions composed of two facts of the bundled atlas ("What is the currency of the country in which Lake Atitlán lies?")
over the atlas's articles among the paragraphs of 2WikiMultihopQA. "webquestions" asks WebQuestions' visible test questions over a share of
Simple Wikipedia, drawn by hash, and the articles with answers that few hold (simplewiki_subset.py). Neither corpus has hyperlinks, so that
edges are titles found in the text. "both" is the share of questions with a block of either page among the first so many; "reachable" the
share where a block of the first page leads to one of the second. The last line is one JSON object.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import result
from realm.candidates import DenseCandidates
from realm.config import build_recipe
from realm.corpus.neighbours import Neighbours
from realm.data.questions.loading import load_questions, write_questions
from realm.data.types import Question
from realm.demo.articles import Ledger, write_domain
from realm.demo.atlas import note_links, write_atlas
from realm.demo.tables import Domain, Entity, bare, fields, load_domains
from realm.opening import OpenRun, open_run
from realm.pipeline import run_recipe
from realm.progress import Progress
from realm.recipes.evaluate import evaluate_answers, evaluate_retrieval
from realm.recipes.scoring import Relevance

DEPTHS = (1, 5, 20)
ASKED = 200
CHAINS = {
    ("cities", "country", "countries"): "the country in which the city of {} lies",
    ("landmarks", "country", "countries"): "the country in which {} stands",
    ("landmarks", "city", "cities"): "the city in which {} stands",
    ("lakes", "country", "countries"): "the country in which {} lies",
    ("mountains", "country", "countries"): "the country in which {} rises",
    ("islands", "country", "countries"): "the country to which {} belongs",
    ("films", "country", "countries"): "the country in which the film {} was made",
    ("moons", "parent", "planets"): "the planet around which {} moves",
    ("scientists", "birthplace", "cities"): "the city in which {} was born",
    ("composers", "birthplace", "cities"): "the city in which {} was born",
}
"""Domain and kind of the first fact, domain of its value, and how the value is called by the entity."""


@dataclass(frozen=True)
class TwoHop:
    """A question, and the articles that state its first and its second fact."""

    question: Question
    first: frozenset[str]
    second: frozenset[str]


def composed(seed: int = 0) -> list[TwoHop]:
    """``ASKED`` questions, drawn evenly over the chains; first facts with one value only."""
    domains, ledger = load_domains(), Ledger(seed)
    for domain in domains:
        write_domain(domain, ledger)
    note_links(domains, ledger)
    by_name = {domain.name: domain for domain in domains}
    rng, pools = random.Random(seed), []
    for (name, kind, target), phrase in CHAINS.items():
        things = {bare(entity.name): entity for entity in by_name[target].entities}
        pairs = [(one, things[value]) for one in by_name[name].entities if (value := only(one, kind)) in things]
        made = [asked for one, other in pairs for asked in _of_pair(one, kind, phrase, by_name[target], other, ledger)]
        rng.shuffle(made)
        pools.append(made)
    drawn = [made[at] for at in range(max(map(len, pools))) for made in pools if at < len(made)]
    return drawn[:ASKED]


def only(entity: Entity, kind: str) -> str:
    """The value of a fact that has one; empty of another."""
    values = {bare(value) for value in entity.cells.get(kind, ())[:2]}
    return values.pop() if len(values) == 1 else ""


def _of_pair(one: Entity, kind: str, phrase: str, domain: Domain, other: Entity, ledger: Ledger) -> list[TwoHop]:
    """A question on each fact of ``other``, which is called by what it is to ``one``; none on what is said of ``one`` itself, too."""
    called, made = phrase.format(one.name), []
    for fact in domain.kinds_of(other):
        template = next((text for text in fact.questions if set(fields(text)) == {"name"}), None) if fact.ask else None
        answers = other.answers(fact.name)
        if template is None or fact.name in one.cells or bare(one.name) in answers:
            continue
        text = template.format(name=called)
        text = text[0].upper() + text[1:]
        pages = ledger.stated[one.key, kind], ledger.stated[other.key, fact.name]
        key = f"{one.key}/{kind}/{fact.name}"
        made.append(TwoHop(Question(key, text, tuple(answers), positive_ids=tuple(pages[1])), *map(frozenset, pages)))
    return made


def indexed(sources: list[Path], body: str, out: Path, **corpus: Any) -> tuple[OpenRun, float]:
    """A run of the body as it is over some documents, made where it is not there; and how long that took. ``corpus``: more of [corpus]."""
    values = {
        "model": {"body": body},
        "corpus": {"sources": [str(source) for source in sources], "tagger": "none", **corpus},
        "retrieval": {"kind": "hybrid"},
        "pretrain": {"steps": 0},
        "run": {"threads": torch.get_num_threads()},
    }
    started = time.perf_counter()
    run_recipe(build_recipe(values), out, stages=("corpus", "pretrain"), progress=Progress(quiet=True))
    return open_run(out), time.perf_counter() - started


def measured(run: OpenRun, questions: list[Question], read: int, hops: int) -> dict[str, Any]:
    """Recall by answer, EM and the time of a question, with so many hops."""
    source, relevance = run.source, Relevance(run.inputs.store, run.recipe.eval.match)
    source.hops = hops
    started = time.perf_counter()
    found: dict[str, Any] = evaluate_retrieval(source, relevance, questions, DEPTHS)
    searched = time.perf_counter()
    found |= evaluate_answers(run.networks.reader().over(run.inputs, source, versions={}), relevance, questions, read)
    seconds = {
        "search_ms": (searched - started) / len(questions) * 1000,
        "ask_ms": (time.perf_counter() - searched) / len(questions) * 1000,
    }
    kept = ("em", "em_interval", "f1", "recall")
    return {"hops": hops, "read": read, **{key: found[key] for key in kept}, **{name: round(value) for name, value in seconds.items()}}


def both(run: OpenRun, asked: list[TwoHop], hops: int) -> dict[str, float]:
    """Shares of questions with the first page, the second and both among the first 5 and 20 blocks."""
    source: DenseCandidates = run.source
    source.hops = hops
    found: dict[str, list[bool]] = {}
    for one in asked:
        rows = source([one.question.text], run.inputs.store.tokenizer.encode([one.question.text]), 20).rows[0]
        ids = [run.inputs.store.doc_id(int(row)) for row in rows if row >= 0]
        for depth in (5, 20):
            first, second = (bool(pages.intersection(ids[:depth])) for pages in (one.first, one.second))
            for name, value in (("first", first), ("second", second), ("both", first and second)):
                found.setdefault(f"{name}@{depth}", []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def reachable(run: OpenRun, asked: list[TwoHop]) -> float:
    """Share of questions where some block of a first page leads to a block of a second."""
    store, neighbours = run.inputs.store, Neighbours(run.inputs.store)
    return float(
        np.mean(
            [
                any(
                    store.doc_id(int(end)) in one.second
                    for document in one.first
                    for row in store.live_rows_of_document(document)
                    for end in neighbours.of_row(int(row))
                )
                for one in asked
            ]
        )
    )


def two_hop(arguments: argparse.Namespace) -> dict[str, Any]:
    atlas = arguments.scratch / "atlas"
    write_atlas(atlas)
    sources = [atlas / "documents.jsonl", arguments.data / "corpus/2wiki_paragraphs.jsonl.xz"]
    run, seconds = indexed(sources, arguments.body, arguments.scratch / "two-hop")
    asked = composed()
    questions = [one.question for one in asked]
    rows = [measured(run, questions, arguments.read, hops) | both(run, asked, hops) for hops in (0, 1)]
    examples = [one.question.text for one in asked[:: len(asked) // 5]]
    facts = {"blocks": run.searchable, "asked": len(asked), "reachable": reachable(run, asked)}
    return {**facts, "indexing_s": round(seconds), "examples": examples, "rows": rows}


def webquestions(arguments: argparse.Namespace) -> dict[str, Any]:
    subset, asked, data = arguments.scratch / "simplewiki.jsonl", arguments.scratch / "asked.jsonl", arguments.data
    everyone = load_questions(data / "webquestions/test_visible.jsonl.xz")
    questions = random.Random(0).sample(everyone, min(arguments.asked, len(everyone)))
    if not subset.exists():
        arguments.scratch.mkdir(parents=True, exist_ok=True)
        write_questions(asked, questions)
        articles = data / "corpus/simplewiki_2021.jsonl.xz"
        command = [sys.executable, str(Path(__file__).with_name("simplewiki_subset.py")), str(articles), "--questions", str(asked)]
        subprocess.run([*command, "--share", str(arguments.share), "--common", str(arguments.common), "--out", str(subset)], check=True)
    run, seconds = indexed([subset], arguments.body, arguments.scratch / "webquestions")
    rows = [measured(run, questions, arguments.read, hops) for hops in (0, 1)]
    return {"blocks": run.searchable, "asked": len(questions), "indexing_s": round(seconds), "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("part", choices=["two-hop", "webquestions"])
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--body", default="realm-minilm-en")
    parser.add_argument("--read", type=int, default=5)
    parser.add_argument("--asked", type=int, default=300, help="of WebQuestions, drawn once")
    parser.add_argument("--share", type=float, default=0.02, help="of Simple Wikipedia's articles")
    parser.add_argument("--common", type=int, default=5, help="articles that hold an answer are all kept where they are no more")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    found = two_hop(arguments) if arguments.part == "two-hop" else webquestions(arguments)
    print(json.dumps(result("linked pages", arguments.threads, part=arguments.part, body=arguments.body, **found)))


if __name__ == "__main__":
    main()
