"""What do products of 8 bits lose? Answers and blocks found by the released model in 8 bits, in float32, and in float32 by torch.

    python -m benchmarks.reading.products DATA --scratch DIR [--questions 1000] [--sets squad tydi cranfield]

Each way embeds all blocks, finds by its own vectors and reads the five best; questions are drawn once. "same" compares with float32 without
torch: the share of questions with the same answer, and the same five blocks, in order, and the largest and the mean difference of p where
the answers are the same. Cranfield is ranked. A row for each is printed as it is done; the last line is one JSON object.
"""

import argparse
import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import judged_values, load_cranfield, result
from realm.answering.generative import own_reader
from realm.answering.records import Answer
from realm.documents.ingest.builder import build_corpus
from realm.evaluation.measures import is_correct
from realm.evaluation.questions.loading import load_questions
from realm.models.bodies.known import body_directory
from realm.models.model import RealmModel
from realm.models.runtime.model import RuntimeModel
from realm.models.spec import read_spec
from realm.models.types import Question
from realm.search.blocks import BlockInputs, open_inputs
from realm.search.candidates import Candidates
from realm.search.publishing.embedding import embed_corpus

READ, DEPTH, QUERY_LENGTH = 5, 20, 64
BLOCK_LENGTH = 160  # as of folders that are asked directly
SETS = {
    "squad": ("squad/corpus_squad_dev.jsonl.xz", "squad/qa_dev.jsonl.xz"),
    "tydi": ("", "tydiqa/tydiqa_english_dev.jsonl.xz"),  # the documents are the questions' own paragraphs
}


class Vectors:
    """Blocks by the inner products of vectors in memory."""

    def __init__(self, model: Any, inputs: BlockInputs):
        self.model, self.inputs = model, inputs
        self.vectors = embed_corpus(model.documents, inputs, np.arange(len(inputs.store)))

    def find(self, texts: list[str], questions: list[list[int]], k: int) -> Candidates:
        """The k best blocks of each question."""
        scores = self.model.embedder.embed_questions([self.inputs.featurizer.query(ids) for ids in questions]) @ self.vectors.T
        rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return Candidates(rows, np.take_along_axis(scores, rows, 1).astype(np.float32))

    direct = find


def ways(directory: Path, threads: int) -> dict[str, Any]:
    """The model by each way to multiply."""
    spec = read_spec(directory / "config.json")
    found: dict[str, Any] = {"float32": RuntimeModel(directory, spec, eight_bit=False, threads=threads)}
    found["int8"] = RuntimeModel(directory, spec, eight_bit=True, threads=threads)
    found["torch"] = RealmModel.from_pretrained(directory).eval().requires_grad_(False)
    return found


def documents(name: str, data: Path, questions: list[Question], scratch: Path) -> Path:
    """The documents of a set: a file of the data, or its questions' paragraphs."""
    if SETS[name][0]:
        return data / SETS[name][0]
    texts = dict.fromkeys((question.title, question.context) for question in questions)
    rows = [json.dumps({"id": str(number), "title": title, "text": text}) for number, (title, text) in enumerate(texts)]
    (scratch / f"{name}.jsonl").write_text("\n".join(rows), "utf-8")
    return scratch / f"{name}.jsonl"


def same(one: list[Answer], other: list[Answer]) -> dict[str, float]:
    """What answers of two ways have in common."""
    alike = [a.answer == b.answer for a, b in zip(one, other, strict=True)]
    blocks = [[e.block_id for e in a.evidence] == [e.block_id for e in b.evidence] for a, b in zip(one, other, strict=True)]
    apart = [abs(a.p - b.p) for a, b, equal in zip(one, other, alike, strict=True) if equal] or [0.0]
    return {
        "answers": float(np.mean(alike)),
        "blocks": float(np.mean(blocks)),
        "largest_difference_of_p": max(apart),
        "mean_difference_of_p": float(np.mean(apart)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--body", default="realm-minilm-en")
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--sets", nargs="+", default=[*SETS, "cranfield"])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    shutil.rmtree(arguments.scratch, ignore_errors=True)
    arguments.scratch.mkdir(parents=True)
    directory, rows = body_directory(arguments.body), list[dict[str, Any]]()
    models = ways(directory, arguments.threads)
    for name in arguments.sets:
        known = [] if name == "cranfield" else load_questions(arguments.data / SETS[name][1])
        questions = random.Random(0).sample(known, min(arguments.questions, len(known)))
        source = documents(name, arguments.data, known, arguments.scratch) if known else arguments.data / "ir/cranfield_corpus.jsonl.xz"
        build_corpus([source], arguments.scratch / name, tokenizer=directory, block_length=BLOCK_LENGTH, tagger="none")
        inputs, first = open_inputs(arguments.scratch / name, QUERY_LENGTH), list[Answer]()
        for way, model in models.items():
            started, found = time.process_time(), Vectors(model, inputs)
            row: dict[str, Any] = {"set": name, "products": way, "blocks": len(inputs.store)}
            row["embedding_processor_seconds"] = round(time.process_time() - started, 1)
            if not known:
                values = judged_values(found, inputs.store, load_cranfield(arguments.data / "ir"), DEPTH)
                row |= {name: float(np.mean(value)) for name, value in values.items()}
            else:
                texts, started = [question.text for question in questions], time.process_time()
                answers = own_reader(model, {}, bf16=False).over(inputs, found, versions={}).answer(texts, k=READ)
                row["answering_processor_seconds"] = round(time.process_time() - started, 1)
                right = [is_correct(answer.answer, question) for answer, question in zip(answers, questions, strict=True)]
                near = found.find(texts, inputs.store.tokenizer.encode(texts), DEPTH).rows.tolist()
                held = [any(holds(inputs, block, question) for block in one) for one, question in zip(near, questions, strict=True)]
                first = first or answers
                row |= {"n": len(questions), "em": float(np.mean(right)), "recall_20": float(np.mean(held)), "same": same(first, answers)}
            rows.append(row)
            print(json.dumps(row), flush=True)
    print(json.dumps(result("products", arguments.threads, body=arguments.body, read=READ, rows=rows)))


def holds(inputs: BlockInputs, row: int, question: Question) -> bool:
    """True if a block is of a document that the question names, or else holds one of its answers."""
    block = inputs.store.block(row)
    if question.positive_ids:
        return block.doc_id in question.positive_ids
    return any(answer in block.text for answer in question.answers)


if __name__ == "__main__":
    main()
