"""LAMA by a run that fills masks: precision at 1 of masked objects with retrieval from the run's own corpus, without, and with the
evidence given. A run whose reader points at spans is measured by lama_pointing.py.

RUN is a run whose pre-training has ended. A statement is made by its relation's template ("[X] was born in [Y] ."), the object is
masked, and the whole vocabulary is ranked at the mask (no list of allowed objects, unlike some published numbers). Facts whose object is
one wordpiece of the run's vocabulary are taken, at most ``--facts`` of a relation, chosen by hash. T-REx is averaged over relations, as
LAMA is.

    python benchmarks/lama.py RUN --data DATA/lama --facts 40

The last line of its output is one JSON object.
"""

import argparse
import hashlib
import json
import lzma
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common import result
from realm import losses
from realm.data.blocks import NULL_ROW, BlockInputs
from realm.data.cloze import MASK, ClozeText
from realm.data.types import MaskedQuery
from realm.errors import DataError
from realm.nn.encoder import KnowledgeAugmentedEncoder
from realm.opening import OpenRun, open_run
from realm.recipes.pretrain.filling import joint_inputs
from realm.recipes.pretrain.retrieving import retrieve_candidates
from realm.recipes.pretrain.watching import marginal_probs

BATCH = 16


@dataclass(frozen=True)
class Fact:
    """A masked statement, its subject, its object, and sentences that say it; of SQuAD's statements there are none, and no subject."""

    relation: str
    subject: str
    statement: str
    answer: str
    evidence: str


@dataclass(frozen=True)
class Asked:
    """A fact as the run reads it."""

    fact: Fact
    query: MaskedQuery


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf8") as lines:
        yield from map(json.loads, lines)


def trex(data: Path) -> Iterator[Fact]:
    templates = {row["relation"]: row["template"] for row in rows_of(data / "relations.jsonl.xz")}
    for row in rows_of(data / "trex.jsonl.xz"):
        if row["relation"] in templates:
            statement = templates[row["relation"]].replace("[X]", row["sub_label"]).replace("[Y]", MASK).replace(" .", ".")
            said = " ".join(one["masked_sentence"].replace(MASK, one["obj_surface"]) for one in row["evidences"])
            yield Fact(row["relation"], row["sub_label"], statement, row["obj_label"], said)


def squad(data: Path) -> Iterator[Fact]:
    for row in rows_of(data / "squad.jsonl.xz"):
        yield Fact("squad", "", row["masked_sentences"][0], row["obj_label"], "")


def readable(facts: Iterator[Fact], inputs: BlockInputs, most: int) -> list[Asked]:
    """Those that the vocabulary and a query can hold, at most ``most`` of a relation, in the order of a hash."""
    of_relation: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        of_relation[fact.relation].append(fact)
    kept = []
    for facts_of in of_relation.values():
        found = (_asked(fact, inputs) for fact in sorted(facts_of, key=fact_hash))
        kept += [asked for asked, _ in zip((asked for asked in found if asked), range(most), strict=False)]
    return kept


def fact_hash(fact: Fact) -> bytes:
    return hashlib.sha256(f"{fact.statement}\x1f{fact.answer}".encode()).digest()


def _asked(fact: Fact, inputs: BlockInputs) -> Asked | None:
    try:
        text = ClozeText(inputs, fact.statement)
        (target,) = text.spell([fact.answer])
    except (DataError, ValueError):
        return None
    if len(target) != 1:
        return None
    ids, positions = text.masked([1])
    return Asked(fact, MaskedQuery(ids, positions, list(target), origin=-1))


class Filler:
    """The most probable wordpiece at the mask of each query, three ways."""

    def __init__(self, run: OpenRun, k: int):
        encoder = run.pretrained.encoder
        assert encoder is not None
        self.run, self.inputs, self.k = run, run.inputs, k
        self.encoder: KnowledgeAugmentedEncoder = encoder

    def with_retrieval(self, asked: Sequence[Asked]) -> list[int]:
        queries = [one.query for one in asked]
        found = retrieve_candidates(self.run.generation, self.inputs, queries, self.k, null=True, overlap=0)
        rows = self.inputs.rows(found.block_ids)
        documents = self.run.pretrained.documents
        embedder = self.run.pretrained.embedder
        assert embedder is not None
        unique, where = np.unique(rows, return_inverse=True)
        block_emb = documents(self.inputs.blocks(unique.tolist()))[torch.from_numpy(where.reshape(rows.shape))]
        query_emb = embedder([self.inputs.featurizer.query(query.ids) for query in queries])
        p_z = losses.candidate_log_probs(losses.relevance_scores(query_emb, block_emb), torch.from_numpy(found.valid)).exp()
        example, candidate, sequences = joint_inputs(self.inputs, queries, rows, found.valid, torch.device("cpu"))
        probs = self.encoder.log_probs(sequences, self._masks(queries)[example]).exp()
        return self._best(marginal_probs(probs, p_z[example, candidate], example, len(queries)))

    def alone(self, asked: Sequence[Asked]) -> list[int]:
        queries = [one.query for one in asked]
        return self._best(self.encoder.log_probs([self.inputs.joint(query.ids, NULL_ROW) for query in queries], self._masks(queries)))

    def with_evidence(self, asked: Sequence[Asked]) -> list[int]:
        bodies = self.inputs.store.tokenizer.encode([one.fact.evidence for one in asked])
        sequences = [self.inputs.featurizer.joint(one.query.ids, body) for one, body in zip(asked, bodies, strict=True)]
        return self._best(self.encoder.log_probs(sequences, self._masks([one.query for one in asked])))

    def _masks(self, queries: Sequence[MaskedQuery]) -> Tensor:
        """Positions of the masks in the joint inputs, behind [CLS]. [b, 1]"""
        return torch.tensor([[1 + query.positions[0]] for query in queries])

    def _best(self, scores: Tensor) -> list[int]:
        """scores [b, 1, v]"""
        return scores[:, 0].argmax(-1).tolist()


def precision(asked: Sequence[Asked], fill: Callable[[Sequence[Asked]], list[int]]) -> float:
    """Share of objects found, the mean over relations."""
    right: dict[str, list[bool]] = defaultdict(list)
    for start in range(0, len(asked), BATCH):
        batch = asked[start : start + BATCH]
        for one, found in zip(batch, fill(batch), strict=True):
            right[one.fact.relation].append(found == one.query.targets[0])
    return float(np.mean([np.mean(found) for found in right.values()]))


def most_frequent(asked: Sequence[Asked]) -> float:
    """Precision of saying each relation's most frequent object always: what knowing nothing of the subject gives."""
    objects: dict[str, Counter[str]] = defaultdict(Counter)
    for one in asked:
        objects[one.fact.relation][one.fact.answer] += 1
    return float(np.mean([counts.most_common(1)[0][1] / counts.total() for counts in objects.values()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--facts", type=int, default=40, help="of a relation")
    parser.add_argument("--k", type=int, default=8, help="candidates, the null document counted")
    options = parser.parse_args()

    filler, rows = Filler(open_run(options.run), options.k), []
    with torch.inference_mode():
        for name, facts, most in (("T-REx", trex(options.data), options.facts), ("SQuAD", squad(options.data), 1000)):
            asked = readable(facts, filler.inputs, most)
            row: dict[str, Any] = {"set": name, "facts": len(asked), "relations": len({one.fact.relation for one in asked})}
            row |= {"with retrieval": precision(asked, filler.with_retrieval), "without": precision(asked, filler.alone)}
            given = [one for one in asked if one.fact.evidence]
            row |= {
                "evidence given": precision(given, filler.with_evidence) if given else None,
                "most frequent object": most_frequent(asked),
            }
            rows.append(row)
            print(row, flush=True)
    print(json.dumps(result("lama", 1, rows=rows, k=options.k)))


if __name__ == "__main__":
    main()
