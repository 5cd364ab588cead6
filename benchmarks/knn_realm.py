"""Filling masks from a corpus: REALM's retrieval beside kNN over the states of its own encoder (BERT-kNN), on its corpus and on LAMA.

RUN is a run whose pre-training has ended (``realm demo`` makes one on the atlas). corpus: salient spans of its own corpus; the sentence's
block and all that hold it are left out of both searches. lama (T-REx): statements made by the templates, over a corpus of the facts'
evidence sentences; the run's networks never saw these facts as such, nor did its vocabulary. k, a and temperature are tuned on other spans
of the same kind. A span is right when the most probable wordpieces (their number is given) are its own.

    python benchmarks/knn_realm.py --run RUN --data DATA --work DIRECTORY --parts corpus lama
"""

import argparse
import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import result
from knn_common import Kept
from realm.config import load_recipe
from realm.corpus.build.builder import build_corpus
from realm.corpus.build.packing import hash64
from realm.data.blocks import BlockInputs, open_inputs
from realm.data.cloze import ClozeText
from realm.errors import RealmError
from realm.explain import explain
from realm.index.base import ExactIndex, RowIndex
from realm.index.embed import embed_blocks
from realm.knn.masked import MaskedNetwork, build_from_run, fill, span_windows
from realm.knn.settings import Mixing
from realm.knn.windows import Window
from realm.nn.embedder import Embedder
from realm.nn.model import RealmModel
from realm.paths import RunPaths
from realm.storage.files import write_atomic

READ = 8  # candidates of REALM, the null document among them
FACTS, TESTED, TUNED = 1500, 300, 100
GRID = [(k, a, factor) for k in (4, 16, 64) for a in (0.2, 0.5, 0.8) for factor in (0.1, 0.3, 1.0)]


@dataclass(frozen=True)
class Cloze:
    """One sentence with a mask, what stood there, and the rows of blocks that must not be looked at."""

    text: str
    target: str
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Searched:
    """What ``explain`` searches with."""

    queries: Embedder
    index: RowIndex


class Filler:
    """REALM and kNN over one corpus, by the networks of one run."""

    def __init__(self, model: RealmModel, inputs: BlockInputs, directory: Path):
        self.model, self.inputs = model, inputs
        store = inputs.store
        rows = np.flatnonzero(store.live)
        documents = model.documents
        vectors = embed_blocks(lambda batch: documents(inputs.blocks(batch)), inputs.lengths(np.arange(len(store))), rows)
        self.searched = Searched(model.embedder, ExactIndex(vectors, np.asarray(store.block_ids)[rows]))
        self.network = MaskedNetwork(model, inputs, name=directory.name)
        self.datastore = build_from_run(directory, self.network)
        self.index = self.datastore.index()
        found = [(row, len(window.targets)) for row, window in span_windows(inputs)]
        self._row_of_key = np.repeat([row for row, _ in found], [count for _, count in found])

    def window(self, cloze: Cloze) -> Window:
        text = ClozeText(self.inputs, cloze.text)
        (spelled,) = text.spell([cloze.target])
        ids, places = text.masked([len(spelled)])
        return Window(np.array(ids, np.int32), np.array(places, np.int32), np.array(spelled, np.int32))

    def knn(self, cloze: Cloze, mixing: Mixing) -> tuple[bool, bool, float, float]:
        hidden = np.flatnonzero(np.isin(self._row_of_key, cloze.rows))
        return fill(self.network, self.index, self.window(cloze), mixing, hidden)

    def realm(self, cloze: Cloze) -> tuple[bool, float]:
        documents = sorted({self.inputs.store.doc_id(row) for row in cloze.rows})
        found = explain(
            self.model, self.searched, self.inputs, cloze.text, targets=[cloze.target], k=READ, exclude_documents=documents, top=1
        )
        spelled = self.inputs.store.tokenizer.encode([found.predictions[0].text, cloze.target])
        return spelled[0] == spelled[1], float(np.log(max(found.p_y, 1e-30)))

    def spelt(self, clozes: Sequence[Cloze], count: int) -> list[Cloze]:
        """The first ``count`` that vocabulary and query length can hold."""
        kept = []
        for cloze in clozes:
            if len(kept) == count:
                break
            try:
                if len(self.window(cloze).targets) <= 10:
                    kept.append(cloze)
            except RealmError:
                continue
        return kept


def corpus_clozes(inputs: BlockInputs, seed: int) -> list[Cloze]:
    """Salient spans of the corpus in random order, one of a sentence."""
    store, found = inputs.store, []
    for row in np.flatnonzero(store.live).tolist():
        block, spans, sentences = store.block(row), store.spans(row), store.sentences(row)
        for (start, end), sentence in zip(spans.chars.tolist(), spans.sentence.tolist(), strict=True):
            first, last = sentences.chars[sentence].tolist()
            text = f"{block.text[first:start]}[MASK]{block.text[end:last]}"
            rows = {row, *store.rows_with_sentence(hash64(block.text[first:last])).tolist()}
            if (first, last) != (start, end):
                found.append(Cloze(text, block.text[start:end], tuple(sorted(rows))))
    order = np.random.default_rng(seed).permutation(len(found))
    return [found[i] for i in order.tolist()]


def lama(data: Path, work: Path) -> tuple[Path, list[Cloze]]:
    """A file of evidence documents of FACTS facts, and their statements."""
    with lzma.open(data / "lama" / "relations.jsonl.xz", "rt", encoding="utf8") as lines:
        templates = {row["relation"]: row["template"] for row in map(json.loads, lines)}
    with lzma.open(data / "lama" / "trex.jsonl.xz", "rt", encoding="utf8") as lines:
        facts = [row for row in map(json.loads, lines) if row["relation"] in templates and row["evidences"]]
    order = np.random.default_rng(0).permutation(len(facts))[:FACTS]
    documents, clozes = [], []
    for i in order.tolist():
        fact = facts[i]
        said = " ".join(evidence["masked_sentence"].replace("[MASK]", evidence["obj_surface"]) for evidence in fact["evidences"])
        documents.append({"id": fact["uuid"] + fact["relation"], "title": fact["sub_label"], "text": said})
        statement = templates[fact["relation"]].replace("[X]", fact["sub_label"]).replace("[Y]", "[MASK]").replace(" .", ".")
        clozes.append(Cloze(statement, fact["obj_label"]))
    file = work / "lama.jsonl"
    write_atomic(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in documents))
    return file, clozes


def compare(filler: Filler, clozes: list[Cloze]) -> dict[str, Any]:
    """Share of spans filled right and mean log-probability: encoder alone, with kNN, with REALM's retrieval."""
    usable = filler.spelt(clozes, TUNED + TESTED)
    dev, test = usable[:TUNED], usable[TUNED:]
    sample = filler.index.search(filler.network.read([filler.window(c) for c in dev[:20]], log_probs=False).keys, 64).scores
    scale = float((sample[:, 0] - sample[:, -1]).mean()) or 1.0
    tried = {point: float(np.mean([filler.knn(c, _mixing(point, scale))[3] for c in dev])) for point in GRID}
    best = max(tried, key=lambda point: tried[point])
    near = [filler.knn(c, _mixing(best, scale)) for c in test]
    realm = [filler.realm(c) for c in test]
    answered = {
        "encoder alone": ([row[0] for row in near], [row[2] for row in near]),
        "encoder with kNN": ([row[1] for row in near], [row[3] for row in near]),
        "REALM retrieval": ([row[0] for row in realm], [row[1] for row in realm]),
    }
    rows = {name: {"accuracy": float(np.mean(right)), "log_p": float(np.mean(log_p))} for name, (right, log_p) in answered.items()}
    return {
        "n": len(test),
        "keys": len(filler.datastore),
        "settings": {"k": best[0], "a": best[1], "temperature": scale * best[2]},
        "rows": rows,
    }


def _mixing(point: tuple[int, float, float], scale: float) -> Mixing:
    return Mixing(k=point[0], a=point[1], temperature=scale * point[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the data directory of the tests")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=("corpus", "lama"), default=["corpus", "lama"])
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    paths = RunPaths(given.run)
    model = RealmModel.from_pretrained(paths.stage("pretrain")).eval()
    length = load_recipe(paths.config).model.query_length
    kept = Kept(given.work / "results" / "realm.json")
    with torch.inference_mode():
        inputs = open_inputs(paths.corpus, length)
        if "corpus" in given.parts:
            kept.get("corpus", lambda: compare(Filler(model, inputs, given.work / "realm-corpus"), corpus_clozes(inputs, 0)))
        if "lama" in given.parts:
            kept.get("lama", partial(_lama, given, paths, model, inputs, length))
    rows = [
        {"method": f"{name}: {method}", "n": found["n"], **row}
        for name, found in kept.rows.items()
        for method, row in found["rows"].items()
    ]
    for row in rows:
        print(f"{row['method']:40} n {row['n']}  right {row['accuracy']:.3f}  log p {row['log_p']:.2f}")
    print(json.dumps(result("knn_realm", 1, rows=rows, settings={name: found["settings"] for name, found in kept.rows.items()})))


def _lama(given: argparse.Namespace, paths: RunPaths, model: RealmModel, own: BlockInputs, length: int) -> dict[str, Any]:
    file, clozes = lama(given.data, given.work)
    corpus = given.work / "lama-corpus"
    if not corpus.exists():
        build_corpus([file], corpus, tokenizer=paths.corpus, block_length=own.store.manifest.block_length, workers=1)
    inputs = open_inputs(corpus, length)
    return compare(Filler(model, inputs, given.work / "realm-lama"), clozes)


if __name__ == "__main__":
    main()
