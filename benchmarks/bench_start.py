"""Does the structured start pay? The warm stage on the atlas from a structured and from a random start, same data, steps and seeds.

Prints a table of the share of held-out spans filled with the block given, and as its last line one JSON object. The random start is
BERT's own initialisation, which `nn/init.py` otherwise replaces.

    python benchmarks/bench_start.py --steps 200 --seeds 3
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import torch

from common import atlas_corpus, result
from realm.config import build_recipe
from realm.paths import RunPaths
from realm.recipes.context import open_context, stage_facts
from realm.recipes.warm import run_warm


def filled(corpus: Path, method: str, steps: int, seed: int) -> dict[str, float]:
    """Train the warm stage once; what its test said at the end, and the seconds it took."""
    stage = {"steps": steps, "least_steps": steps, "check_every": steps}
    sizes = {"preset": "tiny", "layers": 3, "dropout": 0.0, "query_length": 48}
    recipe = build_recipe({"run": {"seed": seed, "bf16": True, "device": "cpu"}, "model": sizes, "warm": stage})
    with tempfile.TemporaryDirectory() as scratch:
        paths = RunPaths(Path(scratch))
        paths.corpus.symlink_to(corpus)
        started = time.perf_counter()
        context = open_context(paths, recipe, lambda *_: None)
        if method == "random":
            # BERT's decoder bias and head start as they do with any body; only the body's structure is left out.
            with patch("realm.nn.bodies.start_copying", lambda model: None):
                run_warm(context)
        else:
            run_warm(context)
        facts = stage_facts(paths, "warm")
        return {"filled": facts["filled_with_block"], "without": facts["filled_without"], "seconds": time.perf_counter() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        _, corpus = atlas_corpus(Path(scratch))
        for seed in range(arguments.seeds):
            for method in ("structured", "random"):
                rows.append({"method": method, "seed": seed, "steps": arguments.steps, **filled(corpus, method, arguments.steps, seed)})
                print(rows[-1], file=sys.stderr)
    means = {m: statistics.mean(row["filled"] for row in rows if row["method"] == m) for m in ("structured", "random")}
    for method, value in means.items():
        print(f"{method:12s} filled with the block {value:.3f} after {arguments.steps} steps, {arguments.seeds} seeds")
    differences = {"filled: structured minus random": means["structured"] - means["random"]}
    print(json.dumps(result("start", torch.get_num_threads(), rows=rows, ratios=differences)))


if __name__ == "__main__":
    main()
