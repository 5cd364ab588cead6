"""One reader over different retrievers: what of an answer is the retriever's, and what is left to win?

    python benchmarks/same_reader.py RUN --questions DATA/squad/qa_dev.jsonl.xz --asked 300

RUN has learnt over a published body with pretrain.documents = "frozen" (presets/pretrain/pointer.toml), so that its documents' side is the
published embedder. The reader is that of the run's last stage. Rows: sparse search (BM25; the relevance that the reader adds up is still
the run's own), the published embedder, the run's own, and both with sparse search. Recall by answer, exact match and F1 over the same
questions; the last line is one JSON object.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import torch

from common import result
from realm.answerer import Answerer
from realm.candidates import Searching, make_source
from realm.data.questions import load_questions
from realm.nn.embedder import Embedder
from realm.opening import open_run
from realm.recipes.evaluate import evaluate_answers, evaluate_retrieval
from realm.recipes.scoring import Relevance

DEPTHS = (1, 5, 20, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--asked", type=int, default=300, help="questions of the file, drawn once as few_questions.py draws them")
    parser.add_argument("--read", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    run = open_run(arguments.run)
    everyone = load_questions(arguments.questions)
    questions = random.Random(0).sample(everyone, min(arguments.asked, len(everyone)))
    relevance, own = Relevance(run.inputs.store, run.recipe.eval.match), run.source.embedder
    published = run.generation.embedder
    reader = run.answerer.reader
    ways: dict[str, tuple[str, Embedder]] = {
        "BM25": ("sparse", own),
        "published embedder": ("dense", published),
        "own embedder": ("dense", own),
        "BM25 and published embedder": ("hybrid", published),
        "BM25 and own embedder": ("hybrid", own),
    }
    rows = []
    for name, (kind, embedder) in ways.items():
        generation = run.generation
        source = make_source(embedder, generation.snapshot, generation.index, run.inputs, run.paths.index, Searching(kind)).eval()
        found: dict[str, Any] = evaluate_retrieval(source, relevance, questions, DEPTHS)
        answerer = Answerer(run.inputs, source, reader, versions={}, bf16=run.recipe.run.bf16)
        found |= evaluate_answers(answerer, relevance, questions, arguments.read)
        rows.append({"retriever": name, **{key: found[key] for key in ("recall", "em", "em_interval", "f1")}})
        print(json.dumps(rows[-1]), flush=True)
    facts = {"run": str(arguments.run), "asked": len(questions), "read": arguments.read, "tuned": run.tuned is not None}
    print(json.dumps(result("same reader", arguments.threads, **facts, rows=rows)))


if __name__ == "__main__":
    main()
