"""Does a run from a published sentence embedder search as that embedder does, before training, after save and load, and after export?

    pip install -c constraints.txt -r benchmarks/requirements.txt
    realm index build DATA/squad/corpus_squad_dev.jsonl.xz DATA/corpus/2wiki_paragraphs.jsonl.xz --body minilm --out RUN
    python benchmarks/bench_zero_shot.py RUN DATA/squad/qa_dev.jsonl.xz --body minilm --vectors vectors.npy

sentence-transformers embeds the same blocks and questions with the public weights and searches them exactly; every ranking is judged in the
same way. Its vectors of all blocks take minutes and are kept in ``--vectors``. After save, load and export the questions and ``--again``
blocks are embedded anew. The last line is one JSON object: recall of each, and the greatest difference.
"""

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bodies_common import block_texts, lowest_cosine, sentence_transformer
from common import result
from realm.candidates import Candidates, Source
from realm.data.questions import load_datasets, pooled
from realm.data.types import Question
from realm.nn.embedder import Embedder
from realm.nn.model import RealmModel
from realm.opening import OpenRun, open_run
from realm.pipeline.exporting import export_run
from realm.recipes.evaluate import rank, ranking_summary
from realm.recipes.scoring import Relevance
from realm.refresh.embedding import embed_corpus

DEPTHS = (1, 5, 20, 100)
BATCH = 256


class Ranked(Source):
    """Questions by vectors [q, d] that are there already, over the vectors [n, d] of all rows: every inner product."""

    def __init__(self, questions: dict[str, np.ndarray], vectors: np.ndarray):
        super().__init__()
        self.questions, self.vectors = questions, vectors

    def forward(self, texts: Any, questions: Any, k: int) -> Candidates:
        products = np.stack([self.questions[text] for text in texts]) @ self.vectors.T
        rows = np.argsort(-products, axis=1, kind="stable")[:, :k]
        return Candidates(rows, torch.from_numpy(np.take_along_axis(products, rows, 1)))


@torch.inference_mode()
def own_questions(run: OpenRun, embedder: Embedder, texts: list[str]) -> dict[str, np.ndarray]:
    """Each question's vector as a run embeds it."""
    inputs = [run.inputs.featurizer.query(ids) for ids in run.inputs.store.tokenizer.encode(texts)]
    found = [embedder.eval()(inputs[at : at + BATCH]).numpy() for at in range(0, len(inputs), BATCH)]
    return dict(zip(texts, np.concatenate(found), strict=True))


def block_vectors(model: Any, run: OpenRun, kept: Path) -> np.ndarray:
    """sentence-transformers' vectors of all blocks, from the file if they are there already."""
    if not kept.is_file():
        texts = block_texts(run.inputs.store, np.arange(len(run.inputs.store)))
        np.save(kept, model.encode(texts, show_progress_bar=False))
    return np.load(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--body", default="minilm")
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=0, help="questions; 0: all of the file")
    parser.add_argument("--again", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    run = open_run(arguments.run)
    store, own = run.inputs.store, run.pretrained.documents
    questions: list[Question] = pooled(load_datasets((str(arguments.questions),)))
    if arguments.limit:
        questions = random.Random(0).sample(questions, min(arguments.limit, len(questions)))
    texts = sorted({question.text for question in questions})
    snapshot = run.generation.snapshot
    assert np.array_equal(snapshot.block_ids, store.block_ids), "an index of other blocks than the corpus has"
    ours, again = np.asarray(snapshot.vectors), np.random.default_rng(0).permutation(len(store))[: arguments.again]

    peer = sentence_transformer(arguments.body)

    def their_questions(model: Any) -> dict[str, np.ndarray]:
        return dict(zip(texts, model.encode(texts, show_progress_bar=False), strict=True))

    theirs = block_vectors(peer, run, arguments.vectors)
    sources: dict[str, Source] = {
        "sentence-transformers": Ranked(their_questions(peer), theirs),
        "before training": Ranked(own_questions(run, own, texts), ours),
    }
    cosines = {"before training": lowest_cosine(ours, theirs)}
    with tempfile.TemporaryDirectory() as scratch:
        run.pretrained.save_pretrained(Path(scratch) / "saved")
        loaded = RealmModel.from_pretrained(Path(scratch) / "saved").documents
        export_run(arguments.run, Path(scratch) / "exported")
        exported = sentence_transformer(Path(scratch) / "exported" / "embedder")
        for name, asked, vectors in (
            ("saved and loaded", own_questions(run, loaded, texts), embed_corpus(loaded, run.inputs, again)),
            ("exported", their_questions(exported), exported.encode(block_texts(store, again), show_progress_bar=False)),
        ):
            changed = ours.copy()
            changed[again] = vectors
            sources[name] = Ranked(asked, changed)
            cosines[name] = lowest_cosine(vectors, theirs[again])
    sources["the run's own search"] = run.source

    relevance = Relevance(store, run.recipe.eval.match)
    rows = {}
    for name, source in sources.items():
        rows[name] = ranking_summary(rank(source, relevance, questions, max(DEPTHS)), DEPTHS)
        print(name, json.dumps(rows[name]), flush=True)
    peers = rows["sentence-transformers"]
    differences = {
        name: max(abs(rows[name][by][k] - peers[by][k]) for by in ("recall", "recall_gold") for k in peers[by]) for name in cosines
    }
    facts = {"body": arguments.body, "blocks": len(store), "questions": len(questions), "kind": run.recipe.retrieval_kind}
    print(json.dumps(result("zero_shot", arguments.threads, **facts, rows=rows, differences=differences, lowest_cosines=cosines)))


if __name__ == "__main__":
    main()
