"""Retrieval measured against judgements: a run's own retriever, as `realm eval RUN --qa FOLDER` says, and others over the same blocks.

    python benchmarks/bench_judged.py RUN ir/

FOLDER has queries and judgements, as docs/evaluation.md says. The last line of its output is one JSON object.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from common import result
from realm.candidates import Bm25Candidates, Source
from realm.data.judged import load_judged
from realm.opening import open_run
from realm.recipes.baselines.retrievers import FusedCandidates, TfIdfCandidates
from realm.recipes.judged import evaluate_judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--k", type=int, nargs="+", default=[1, 5, 20, 100])
    arguments = parser.parse_args()
    run, judged = open_run(arguments.run), load_judged(arguments.folder)
    store = run.inputs.store
    live = np.flatnonzero(store.live)
    bm25 = Bm25Candidates(run.inputs, live)
    sources: dict[str, Source] = {
        "the run": run.source,
        "BM25": bm25,
        "TF-IDF": TfIdfCandidates(run.inputs, live),
        "the run + BM25, fused": FusedCandidates(run.source, bm25),
    }
    rows = [{"method": name, **evaluate_judged(source, store, judged, arguments.k)} for name, source in sources.items()]
    facts = {"documents": len(store.documents()), "blocks": len(live), "rows": rows}
    print(json.dumps(result("judged", torch.get_num_threads(), **facts)))


if __name__ == "__main__":
    main()
