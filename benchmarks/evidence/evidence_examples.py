"""What a learnt retriever prefers: questions of which one finds the answer among five blocks, dense search alone, and another does not.

    python -m benchmarks.evidence.evidence_examples RUN --test DATA/squad/qa_dev.jsonl.xz --count 25 --out FILE.jsonl

RUN is one that evidence.py has measured: what it learnt for a seed lies in RUN-evidence. FILE.jsonl has ``count`` of these questions, drawn
by ``--seed``, with the first block of each retriever and the first that holds the answer; people read and sort them. The last line of the
output is one JSON object: how many questions each of REALM and its opponents alone finds.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import result
from benchmarks.evidence.evidence import OPPONENTS, ORQA, PUBLISHED, REALM, kept_embedder, seed_context
from realm.evaluation.evaluate import Ranking, rank
from realm.evaluation.measures import Relevance
from realm.evaluation.questions.loading import load_questions
from realm.models.embedder import Embedder
from realm.search.candidates import Searching, make_source
from realm.search.publishing.generation import Generation, open_generation
from realm.storage.layout import stage_facts
from realm.training.baselines.orqa import CLOZE
from realm.training.context import StageContext, load_stage

DEPTH = 5
DEEP = 100
SHOWN = 700
"""Characters of a block that are shown."""


def embedders(context: StageContext, generation: Generation) -> dict[str, Embedder]:
    """The published embedder, ORQA's and REALM's, as the gate kept it. Raises SystemExit: evidence.py has not taught them yet."""
    if not all(context.paths.stage(stage).exists() for stage in ("cloze", "realm")):
        raise SystemExit(f"{context.paths.root} has no learnt retrievers: run evidence.py first")
    realm = kept_embedder(context, "realm", generation)
    return {PUBLISHED: generation.embedder, ORQA: load_stage(context, CLOZE).embedder, REALM: realm}


def first(ranking: Ranking) -> int | None:
    """The rank, from 1, of the first block with the answer."""
    return int(np.flatnonzero(ranking.by_answer)[0]) + 1 if ranking.by_answer.any() else None


def told(context: StageContext, rankings: dict[str, Ranking]) -> dict[str, Any]:
    """One question as people read it."""

    def block(row: int) -> str:
        found = context.store.block(row)
        return f"{found.title}: {found.text}"[:SHOWN]

    question = rankings[REALM].question
    ranks = {name: first(ranking) for name, ranking in rankings.items()}
    best = {name: block(int(ranking.rows[0])) for name, ranking in rankings.items()}
    held = {name: block(int(rankings[name].rows[at - 1])) for name, at in ranks.items() if at is not None and at <= DEPTH}
    return {"question": question.text, "answers": list(question.answers), "rank": ranks, "best": best, "with the answer": held}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0, help="of what was learnt, and of what is drawn")
    parser.add_argument("--count", type=int, default=25)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    context = seed_context(options.run, options.seed, options.run.with_name(f"{options.run.name}-evidence") / f"seed-{options.seed}")
    generation = open_generation(context.paths, context.inputs, stage_facts(context.paths, "pretrain")["generation"], device=context.device)
    asked, relevance = load_questions(options.test), Relevance(context.store)
    rankings = {}
    for name, embedder in embedders(context, generation).items():
        parts = (embedder, generation.snapshot, generation.index, context.inputs, context.paths.index)
        rankings[name] = rank(make_source(*parts, Searching("dense")), relevance, asked, DEEP)
    hits = {name: np.array([bool(one.by_answer[:DEPTH].any()) for one in found]) for name, found in rankings.items()}
    others = [name for name in OPPONENTS if name != REALM]
    counts = {
        name: {"REALM alone": int((hits[REALM] & ~hits[name]).sum()), "it alone": int((hits[name] & ~hits[REALM]).sum())} for name in others
    }
    differing = np.flatnonzero(np.any([hits[REALM] != hits[name] for name in others], axis=0)).tolist()
    drawn = sorted(random.Random(options.seed).sample(differing, min(options.count, len(differing))))
    lines = [json.dumps(told(context, {name: found[at] for name, found in rankings.items()}), ensure_ascii=False) for at in drawn]
    options.out.write_text("\n".join(lines) + "\n", "utf-8")
    facts = {"run": options.run.name, "questions": len(asked), "differing": len(differing), "drawn": len(drawn)}
    print(json.dumps(result("evidence-examples", context.recipe.run.threads, **facts, counts=counts)))


if __name__ == "__main__":
    main()
