"""What entities, triples and links as salient spans are worth, nothing trained.

    python benchmarks/bench_entities.py DATA --scratch DIR words
    python benchmarks/bench_entities.py DATA --scratch DIR webquestions
    python benchmarks/bench_entities.py DATA --scratch DIR triples
    python benchmarks/bench_entities.py DATA --scratch DIR spans

"words" and "webquestions" ask WebQuestions, by sparse search alone and by every kind, over a share of Simple Wikipedia, drawn by hash, the
articles with answers that few hold (simplewiki_subset.py), and all whose titles stand in a question, ordinary words ("Money") included:
recall by answer at several weights of [retrieval] entities, on dev, where the weight is fitted, and on the visible test questions.
"triples" asks the atlas's questions over its articles, over its tables as triples, in the plain wording and in a template for each
relation. "spans" counts salient spans of wiki dumps with links as a tagger and without. The last line is one JSON object.
"""

import argparse
import csv
import json
import random
import subprocess
import sys
import time
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench_linked import indexed
from common import result
from realm.candidates import DenseCandidates, HybridCandidates, Searching, make_source
from realm.corpus import entities
from realm.corpus.build.builder import build_corpus
from realm.corpus.entities import small_mentions
from realm.corpus.links import title_key
from realm.corpus.store.blocks import BlockStore
from realm.data.questions.loading import load_questions, write_questions
from realm.data.types import Question
from realm.demo.atlas import write_atlas
from realm.demo.tables import Domain, fields, load_domains
from realm.index.hybrid import DEPTH, Weights, standardised
from realm.index.sparse import open_sparse
from realm.opening import OpenRun
from realm.recipes.calibration import ENTITY_WEIGHTS, WEIGHT_DEPTH
from realm.recipes.evaluate import evaluate_answers
from realm.recipes.scoring import Relevance
from realm.text.files import open_text

DEPTHS = (1, 5, 20)
SHOWN = 10
READ_FOR = 100
"""Questions that are read for EM."""


def source_of(run: OpenRun, kind: str, weight: float) -> DenseCandidates:
    """The run's search of some kind, with entities at a weight."""
    parts = run.generation.queries, run.generation.snapshot, run.generation.index, run.inputs, run.paths.index
    return make_source(*parts, Searching(kind, Weights(1.0, weight), entities=True)).eval()


def recalled(run: OpenRun, questions: list[Question], kind: str) -> list[dict[str, float]]:
    """Recall by answer at each depth, for each of ``ENTITY_WEIGHTS``: one search of a question, ordered at every weight."""
    source, relevance = source_of(run, kind, 0.0), Relevance(run.inputs.store, run.recipe.eval.match)
    assert isinstance(source, HybridCandidates)
    texts = [question.text for question in questions]
    weights = [Weights(1.0, weight) for weight in ENTITY_WEIGHTS]
    found = source.rows_by_weight(texts, run.inputs.store.tokenizer.encode(texts), weights, max(DEPTHS))
    hits = np.array([[relevance.by_answer(one, rows) for one, rows in zip(questions, each, strict=True)] for each in found])
    return [{str(depth): float(each[:, :depth].any(1).mean()) for depth in DEPTHS} for each in hits]


def answered(run: OpenRun, questions: list[Question], read: int, weight: float) -> dict[str, Any]:
    """EM and F1 of hybrid search at a weight."""
    answerer = run.networks.reader().over(run.inputs, source_of(run, "hybrid", weight), versions={})
    found = evaluate_answers(answerer, Relevance(run.inputs.store, run.recipe.eval.match), questions, read)
    return {"entities": weight, **{key: found[key] for key in ("em", "em_interval", "f1")}}


def by_weight(run: OpenRun, dev: list[Question], test: list[Question], kind: str) -> dict[str, Any]:
    """Recall at every weight, and which is best on dev."""
    asked = {name: recalled(run, some, kind) for name, some in (("dev", dev), ("test", test))}
    fitted = ENTITY_WEIGHTS[int(np.argmax([found[str(WEIGHT_DEPTH)] for found in asked["dev"]]))]
    return {"fitted": fitted, "weights": ENTITY_WEIGHTS, **asked}


def both_answered(run: OpenRun, test: list[Question], read: int, fitted: float) -> list[dict[str, Any]]:
    """EM of hybrid search without entities and at the weight that is best on dev (.5 if that is none)."""
    return [answered(run, test[:READ_FOR], read, weight) for weight in (0.0, fitted or 0.5)]


def noted(facts: dict[str, Any]) -> None:
    """Say what is known so far."""
    print(json.dumps(facts, ensure_ascii=False), file=sys.stderr, flush=True)


def cost(run: OpenRun, questions: list[Question]) -> dict[str, float]:
    """Processor time of a hybrid search without and with entities, in milliseconds."""
    found, texts = {}, [question.text for question in questions[:100]]
    tokens = run.inputs.store.tokenizer.encode(texts)
    for name, weight in (("without", 0.0), ("with", 1.0)):
        source = source_of(run, "hybrid", weight)
        source(texts[:2], tokens[:2], 20)
        started = time.process_time()
        with torch.inference_mode():
            source(texts, tokens, 20)
        found[name] = round((time.process_time() - started) / len(texts) * 1000, 1)
    return found


def named(run: OpenRun, questions: list[Question]) -> dict[str, Any]:
    """How many of the questions name an entity, and which, of the first ones."""
    known = entities.Entities(run.inputs.store)
    found = [(question.text, [one.title for one in known.named_in(question.text)]) for question in questions]
    return {"with_entities": float(np.mean([bool(titles) for _, titles in found])), "examples": found[:: max(1, len(found) // 12)]}


def write_named(articles: Path, subset: Path, questions: list[Question], out: Path) -> None:
    """The articles that are not in a subset and whose titles, in any letter case, stand in a question."""
    names = {title_key(mention.name) for question in questions for place in small_mentions(question.text.lower()) for mention in place}
    known = {json.loads(line)["id"] for line in subset.read_text("utf-8").splitlines()}
    with open_text(articles) as lines, open(out, "w", encoding="utf-8") as file:
        rows = (line for line in lines if line.strip())
        file.writelines(row for row in rows if (one := json.loads(row))["id"] not in known and title_key(one["title"]) in names)


def asked_and_read(arguments: argparse.Namespace) -> tuple[dict[str, list[Question]], list[Path]]:
    """WebQuestions' dev and test questions, and the files of articles."""
    scratch, data, asked = arguments.scratch, arguments.data / "webquestions", {}
    for name, file in (("dev", "dev"), ("test", "test_visible")):
        everyone = load_questions(data / f"{file}.jsonl.xz")
        asked[name] = random.Random(0).sample(everyone, min(arguments.asked, len(everyone)))
        write_questions(scratch / f"{name}.jsonl", asked[name])
    subset = scratch / "simplewiki.jsonl"
    if not subset.exists():
        articles = arguments.data / "corpus/simplewiki_2021.jsonl.xz"
        command = [sys.executable, str(Path(__file__).with_name("simplewiki_subset.py")), str(articles), "--out", str(subset)]
        files = [str(scratch / f"{name}.jsonl") for name in asked]
        subprocess.run([*command, "--questions", *files, "--share", str(arguments.share), "--common", str(arguments.common)], check=True)
    named_too = scratch / "named.jsonl"
    if not named_too.exists():
        write_named(arguments.data / "corpus/simplewiki_2021.jsonl.xz", subset, [*asked["dev"], *asked["test"]], named_too)
    return asked, [subset, named_too]


def by_words(arguments: argparse.Namespace) -> dict[str, Any]:
    """Recall of sparse search with entities at every weight: no embedder is needed."""
    asked, sources = asked_and_read(arguments)
    out = arguments.scratch / "words"
    if not out.exists():
        build_corpus(sources, out, tagger="none", vocab_size=2000, workers=1)
    store = BlockStore.open(out)
    sparse = open_sparse(arguments.scratch / "no-run", 1, np.asarray(store.block_ids), store)
    overlap, relevance = entities.EntityOverlap(store), Relevance(store, "normalised")
    facts: dict[str, Any] = {"blocks": len(store), "weights": ENTITY_WEIGHTS}
    for (name, questions), least in product(asked.items(), (0.0, entities.ABOUT)):
        hits: list[list[np.ndarray]] = []
        for question in questions:
            ids, scores = (found[0] for found in sparse.search([question.text], DEPTH))
            shared, ids = overlap(question.text, ids[ids >= 0]), ids[ids >= 0]
            shared[shared < least] = 0.0  # at ``ABOUT``: titles alone
            points, right = standardised(scores[: len(ids)], scores), relevance.by_answer(question, store.rows_of(ids))
            hits.append([right[np.argsort(-(points + weight * shared), kind="stable")] for weight in ENTITY_WEIGHTS])
        rows = [
            {str(depth): float(np.mean([one[at][:depth].any() for one in hits])) for depth in DEPTHS} for at in range(len(ENTITY_WEIGHTS))
        ]
        facts[f"{name}{', titles alone' if least else ''}"] = rows
    return facts


def webquestions(arguments: argparse.Namespace) -> dict[str, Any]:
    asked, sources = asked_and_read(arguments)
    scratch = arguments.scratch
    run, _ = indexed(sources, arguments.body, scratch / "webquestions")
    counts = {name: len(some) for name, some in asked.items()}
    facts: dict[str, Any] = {"blocks": run.searchable, "asked": counts, **named(run, asked["test"]), "cpu_ms": cost(run, asked["test"])}
    for kind in ("hybrid", "dense", "sparse"):
        facts[kind] = by_weight(run, asked["dev"], asked["test"], kind)
        noted(facts)
    facts["answers"] = both_answered(run, asked["test"], arguments.read, facts["hybrid"]["fitted"])
    noted(facts)
    entities.NAMED = 0.0  # what a mention adds to a title
    facts["titles_alone"] = {name: recalled(run, some, "hybrid") for name, some in asked.items()}
    return facts


def address(domain: str, kind: str) -> str:
    """The relation of a column, as a table of triples names it."""
    return f"https://atlas.example/{domain}#{kind}"


def write_triples(domains: list[Domain], rows: Path, templates: Path) -> int:
    """The cells of the atlas as triples, first values only, and for each column its first wording that needs nothing else."""
    count, wordings = 0, {}
    with open(rows, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["subject", "relation", "object"])
        for domain in domains:
            for column, fact in domain.facts.items():
                plain = next((text for text in fact.statements if set(fields(text)) == {"name", "value"}), None)
                if plain is not None:
                    wordings[address(domain.name, column)] = plain.replace("{name}", "{subject}").replace("{value}", "{object}")
            for entity in domain.entities:
                for kind in domain.kinds_of(entity):
                    table.writerow([entity.name, address(domain.name, kind.name), entity.value(kind.name)])
                    count += 1
    templates.write_text(json.dumps(wordings, ensure_ascii=False, indent=1), "utf-8")
    return count


def triples(arguments: argparse.Namespace) -> dict[str, Any]:
    scratch = arguments.scratch / "triples"
    write_atlas(scratch)
    rows, templates = scratch / "facts.csv", scratch / "templates.json"
    facts: dict[str, Any] = {"triples": write_triples(load_domains(), rows, templates)}
    dev, test = (load_questions(scratch / f"qa_{name}.jsonl") for name in ("dev", "test"))
    dev, test = (random.Random(0).sample(some, min(arguments.asked, len(some))) for some in (dev, test))
    articles, facts["asked"] = scratch / "documents.jsonl", {"dev": len(dev), "test": len(test)}
    corpora: dict[str, tuple[Path, str]] = {
        "triples, templates": (rows, str(templates)),
        "articles": (articles, ""),
        "triples, plain": (rows, ""),
    }
    for name, (source, wording) in corpora.items():
        run, _ = indexed([source], arguments.body, scratch / name.replace(", ", "-").replace(" ", "-"), templates=wording)
        if name.startswith("triples"):
            answerer = run.networks.reader().over(run.inputs, source_of(run, "hybrid", 0.0), versions={})
            some = test[:: len(test) // SHOWN][:SHOWN]
            answers = answerer.answer([question.text for question in some], k=arguments.read)
            pairs = zip(some, answers, strict=True)
            facts[f"{name}, read by eye"] = [
                [q.text, a.answer, round(a.p, 2), list(q.answers), a.evidence[0].text if a.evidence else ""] for q, a in pairs
            ]
        noted(facts)
        facts[name] = {"blocks": run.searchable, **named(run, test), **by_weight(run, dev, test, "hybrid")}
        noted(facts)
        facts[name]["answers"] = both_answered(run, test, arguments.read, facts[name]["fitted"])
        noted(facts)
    return facts


def spans(arguments: argparse.Namespace) -> dict[str, Any]:
    facts = {}
    for name, tagger in product(("enwiki-2013-shortened", "smallwiki"), ("default", "links", "default+links")):
        dump, out = arguments.data / f"dumps/{name}-pages-articles.xml.bz2", arguments.scratch / "spans" / f"{name} {tagger}"
        manifest = build_corpus([dump], out, tagger=tagger, workers=1) if not out.exists() else BlockStore.open(out).manifest
        store = BlockStore.open(out)
        texts = [store.block(row).text[start:end] for row in range(len(store)) for start, end in store.spans(row).chars.tolist()]
        statistics = manifest.span_statistics
        facts[f"{name}, {tagger}"] = {
            "blocks": manifest.blocks, "spans": manifest.spans, "distinct": statistics.distinct, "in_one_block": statistics.single_block,
            "sentences_with_spans": float(np.mean([len(np.unique(store.spans(row).sentence)) / max(1, len(store.sentences(row).chars))
                                                   for row in range(len(store))])),
            "commonest": Counter(texts).most_common(10), "drawn": random.Random(0).sample(texts, min(40, len(texts))),
        }  # fmt: skip
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("part", choices=["words", "webquestions", "triples", "spans"])
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--body", default="realm-minilm-en")
    parser.add_argument("--read", type=int, default=5)
    parser.add_argument("--asked", type=int, default=300, help="test questions, drawn once; of WebQuestions dev questions, too")
    parser.add_argument("--share", type=float, default=0.02, help="of Simple Wikipedia's articles")
    parser.add_argument("--common", type=int, default=3, help="articles that hold an answer are all kept where they are no more")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    found = {"words": by_words, "webquestions": webquestions, "triples": triples, "spans": spans}[arguments.part](arguments)
    print(json.dumps(result("entities", arguments.threads, part=arguments.part, body=arguments.body, **found), ensure_ascii=False))


if __name__ == "__main__":
    main()
