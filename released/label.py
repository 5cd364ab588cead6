"""More questions for a second run: those of SQuAD of which only the sentence with the answer is known, answered by the first run.

    python released/label.py runs/realm-minilm-en-first DATA --data runs/realm-minilm-en-data --out runs/realm-minilm-en-more

Of 11,876 questions on SQuAD's training articles DATA has the sentence that each was asked about, but not the answer. The run's reader
looks for it in that sentence alone, which is far easier than among five blocks; the surer half is kept. Sentences in a row become short
documents without a title, as people's notes are. Out come train.jsonl (the questions of --data and these), dev.jsonl (SQuAD's of --data:
questions on documents, as people ask of their own), paragraphs.jsonl and data.json. The last line is one JSON object.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from prepare import forbidden, marks

from realm.answering.opening import OpenRun, open_run
from realm.answering.reading import read_spans
from realm.evaluation.questions.loading import load_questions, write_questions
from realm.models.runtime.posterior import softmax
from realm.models.types import Question
from realm.progress import Progress
from realm.recipe import build_recipe
from realm.runs.run import run_recipe
from realm.storage.files import sha256_file, write_json
from realm.text.files import json_lines

PAIRS = "squad/train_subset_sentence_pairs_lower.jsonl.xz"
LICENCE = "CC BY-SA 4.0 (SQuAD 1.1)"
SPELLED = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "``": '"', "''": '"'}
"""How the sentences spell what a tokenizer of 2017 replaced."""
SENTENCES = 8
"""Sentences of a document at most."""
KEPT = 0.5
"""Share of the questions whose answers are believed, the surer ones."""
BATCH = 32


@dataclass(frozen=True)
class Pair:
    """A question and the sentence that answers it."""

    name: str
    question: str
    sentence: str


def spelled(text: str) -> str:
    """Text with brackets and quotation marks as people write them."""
    return " ".join(SPELLED.get(word, word) for word in text.split())


def pairs(data: Path) -> Iterator[Pair]:
    """Those that share nothing with what is tested."""
    tested = forbidden(data)
    for _, row in json_lines(data / PAIRS, "Fetch the file again."):
        if not marks(row["question"]) & tested:
            yield Pair(str(row["id"]), spelled(row["question"]), spelled(row["sentence"]))


def in_documents(found: list[Pair], seed: int) -> dict[str, str]:
    """Sentence -> the document that holds it: two to ``SENTENCES`` of them, in the order of the file, which is that of the articles."""
    sentences, draw = list(dict.fromkeys(pair.sentence for pair in found)), random.Random(seed)
    places: dict[str, str] = {}
    while len(places) < len(sentences):
        chosen = sentences[len(places) : len(places) + draw.randint(2, SENTENCES)]
        places |= dict.fromkeys(chosen, f"pairs:{len(places)}")
    return places


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def write_paragraphs(out: Path, data: Path, places: dict[str, str]) -> None:
    """What the second run reads besides Wikipedia: the paragraphs of the first, and the documents of the sentences."""
    texts: dict[str, list[str]] = {}
    for sentence, document in places.items():
        texts.setdefault(document, []).append(sentence)
    known = [row for _, row in json_lines(data / "paragraphs.jsonl", "Run prepare.py again.")]
    rows = [{"id": document, "title": "", "text": " ".join(sentences)} for document, sentences in texts.items()]
    write_rows(out / "paragraphs.jsonl", [*known, *rows])


def over_sentences(reader: Path, found: list[Pair], scratch: Path) -> OpenRun:
    """A run whose documents are the sentences, each for itself, read by the reader of another."""
    names = {sentence: f"s{at}" for at, sentence in enumerate(dict.fromkeys(pair.sentence for pair in found))}
    write_rows(scratch / "sentences.jsonl", [{"id": name, "title": "", "text": sentence} for sentence, name in names.items()])
    values = {
        "model": {"body": str(reader)},
        "corpus": {"sources": [str(scratch / "sentences.jsonl")], "tagger": "none"},
        "pretrain": {"steps": 0, "from_ict": False, "from_warm": False},
    }
    run_recipe(build_recipe(values), scratch / "run", stages=("corpus", "pretrain"), progress=Progress(quiet=True))
    return open_run(scratch / "run")


def answered(run: OpenRun, found: list[Pair]) -> list[tuple[float, Pair, str]]:
    """The best span of each question's sentence, and its probability among the spans; "not here" is no choice, since it is there."""
    store, answerer = run.inputs.store, run.answerer
    rows = {store.block(row).text: row for row in range(len(store))}
    known = [pair for pair in found if pair.sentence in rows]
    answers = []
    for at in range(0, len(known), BATCH):
        part = known[at : at + BATCH]
        here = np.array([[rows[pair.sentence]] for pair in part])
        scores = read_spans(answerer.reader, run.inputs, store.tokenizer.encode([pair.question for pair in part]), here).scores
        p = softmax(scores.reshape(len(part), -1))
        for pair, value, place in zip(part, p.max(1).tolist(), p.argmax(1).tolist(), strict=True):
            start, width = divmod(place, scores.shape[-1])
            offsets = store.tokenizer.encode_offsets(pair.sentence)[1]
            answers.append((value, pair, pair.sentence[offsets[start][0] : offsets[start + width][1]]))
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the first run, finished")
    parser.add_argument("public", type=Path, help="the directory of public data")
    parser.add_argument("--data", type=Path, required=True, help="what prepare.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = list(pairs(arguments.public))
    places = in_documents(found, arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        answers = answered(over_sentences(arguments.run / "stages" / "finetune", found, Path(scratch)), found)
    answers.sort(key=lambda answer: (-answer[0], answer[1].name))
    believed = answers[: int(KEPT * len(answers))]
    more = [Question(pair.name, pair.question, (words,), positive_ids=(places[pair.sentence],)) for _, pair, words in believed]
    train = [*load_questions(arguments.data / "train.jsonl"), *more]
    random.Random(arguments.seed).shuffle(train)
    dev = [question for question in load_questions(arguments.data / "dev.jsonl") if question.positive_ids]
    write_questions(arguments.out / "train.jsonl", train)
    write_questions(arguments.out / "dev.jsonl", dev)
    write_paragraphs(arguments.out, arguments.data, places)
    taken = {"sha256": sha256_file(arguments.public / PAIRS), "licence": LICENCE, "questions": len(found), "taken": len(more)}
    facts = {"read": {PAIRS: taken}, "least_sure": believed[-1][0], "train": len(train), "dev": len(dev)}
    facts["sha256"] = {name: sha256_file(arguments.out / name) for name in ("paragraphs.jsonl", "dev.jsonl", "train.jsonl")}
    write_json(arguments.out / "data.json", json.loads((arguments.data / "data.json").read_text("utf-8")) | {"more": facts})
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
