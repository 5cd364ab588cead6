"""Recall of dense, sparse and hybrid search with a published sentence embedder as it is, on the questions of recipes/squad-small.toml.

    python -m benchmarks.search.bench_hybrid DATA --body minilm --cache runs/bench-hybrid

DATA holds squad/corpus_squad_dev.jsonl.xz, squad/qa_dev.jsonl.xz and corpus/2wiki_paragraphs.jsonl.xz. Corpus and index are made in the
cache once. The last line of its output is one JSON object: recall by answer and by gold paragraph, and milliseconds a question.
"""

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import result
from realm.documents.ingest.builder import BuildOptions, build_corpus
from realm.evaluation.evaluate import rank, ranking_summary
from realm.evaluation.measures import Relevance
from realm.evaluation.questions.loading import load_datasets, pooled
from realm.models.bodies.known import body_directory
from realm.recipe import build_recipe
from realm.search.blocks import open_inputs
from realm.search.candidates import Searching, make_source
from realm.search.publishing.generation import Generation, open_generation
from realm.search.publishing.refresher import refresh_index
from realm.storage.generations import current_generation
from realm.storage.paths import RunPaths
from realm.training.context import open_context
from realm.training.starting import new_model

DEPTHS = (1, 5, 20, 100)
BLOCK_LENGTH = 160


def prepared(data: Path, body: str, projection: int, paths: RunPaths) -> Generation:
    """Corpus and index of the unchanged body, made where they are not there yet."""
    if not paths.corpus.exists():
        sources = [data / "squad" / "corpus_squad_dev.jsonl.xz", data / "corpus" / "2wiki_paragraphs.jsonl.xz"]
        build_corpus(sources, paths.corpus, BuildOptions(tokenizer=body_directory(body), block_length=BLOCK_LENGTH, tagger="none"))
    recipe = build_recipe(
        {"model": {"body": body, "projection": projection, "dropout": 0.0}, "run": {"threads": torch.get_num_threads(), "device": "cpu"}}
    )
    if current_generation(paths.index) is None:
        context = open_context(paths, recipe, lambda *_: None)
        refresh_index(new_model(context), context.inputs, paths, step=0, progress=lambda done, of: print(f"\r{done} of {of}", end=""))
    return open_generation(paths, open_inputs(paths.corpus, recipe.model.query_length))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--body", default="minilm")
    parser.add_argument("--projection", type=int, default=0, help="dimensions of an embedding; 0: the body's own; a cache for each")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--weight", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    paths = RunPaths(arguments.cache)
    generation = prepared(arguments.data, arguments.body, arguments.projection, paths)
    inputs = open_inputs(paths.corpus, 64)
    questions = pooled(load_datasets((str(arguments.data / "squad" / "qa_dev.jsonl.xz"),)))
    questions = random.Random(0).sample(questions, min(arguments.questions, len(questions)))
    relevance = Relevance(inputs.store)
    parts = generation.queries, generation.snapshot, generation.index, inputs, paths.index
    rows: dict[str, Any] = {}
    for kind in ("dense", "sparse", "hybrid"):
        source = make_source(*parts, Searching(kind, arguments.weight))
        rank(source, relevance, questions[:1], 1)  # opens what is opened once
        started = time.perf_counter()
        found = ranking_summary(rank(source, relevance, questions, max(DEPTHS)), DEPTHS)
        rows[kind] = found | {"ms_per_question": round(1000 * (time.perf_counter() - started) / len(questions), 2)}
        print(kind, json.dumps(rows[kind]))
    facts = {
        "blocks": len(inputs.store),
        "body": arguments.body,
        "dimensions": generation.snapshot.manifest.dim,
        "weight": arguments.weight,
        "rows": rows,
    }
    print(json.dumps(result("hybrid", arguments.threads, **facts)))


if __name__ == "__main__":
    main()
