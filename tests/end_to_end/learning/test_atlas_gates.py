"""On the atlas pre-training finds more gold documents than ICT alone, without a question; minutes a seed."""

import json

import numpy as np
import pytest

from realm.experiments.atlas import write_atlas
from realm.progress import Progress
from realm.runs.run import run_recipe
from realm.storage.metrics import MetricsLog
from realm.training.pretrain.monitor import utility_gain

SEEDS = (0, 1, 2)
PRETRAIN_STEPS = 200
"""The recipe itself stops after 80, to end in minutes; what pre-training adds shows in every seed only with more."""
STAGES = ("corpus", "warm", "ict", "pretrain")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


def train(directory, seed, from_nothing):
    """The recipe with another seed and a longer pre-training. Returns zero-shot gold recall, and what documents came to be worth."""
    recipe = from_nothing(directory, {"run": {"seed": seed}, "pretrain": {"steps": PRETRAIN_STEPS}})
    write_atlas(directory / "runs" / "atlas")
    run_recipe(recipe, directory, stages=STAGES, progress=Progress(quiet=True))
    results = {stage: json.loads((directory / "results" / f"{stage}.json").read_text()) for stage in ("ict", "pretrain")}
    row = {f"{stage} recall@{k}": results[stage]["recall_gold"][k] for k in ("1", "5") for stage in results}
    gained = utility_gain(MetricsLog(directory / "metrics.jsonl").rows())
    return row | {"marginal utility": results["pretrain"]["marginal_utility"], "held-out utility": gained[0], "held-out gain": gained[1]}


def table(rows):
    """One line for each number: every seed, mean, spread (the sample's standard deviation)."""
    lines = [f"{'':20s}" + "".join(f"  seed {seed}" for seed in SEEDS) + "    mean  spread"]
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        lines.append(f"{name:20s}" + "".join(f"{v:8.3f}" for v in (*values, values.mean(), values.std(ddof=1))))
    return "\n".join(lines)


@pytest.fixture(scope="module")
def rows(tmp_path_factory, request, from_nothing):
    found = [train(tmp_path_factory.mktemp(f"atlas-{seed}"), seed, from_nothing) for seed in SEEDS]
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{table(found)}")
    return found


@pytest.fixture
def mean(rows):
    return lambda name: float(np.mean([row[name] for row in rows]))


@pytest.mark.parametrize("k", [1, 5])
def test_pretraining_finds_more_gold_documents_than_ict(mean, k):
    assert mean(f"pretrain recall@{k}") > mean(f"ict recall@{k}")


def test_documents_come_to_help_to_fill_masks(mean):
    """More than before the first step, where utility is above 0 already: the warm encoder reads, and ICT finds. Seed 0 had .51 nats."""
    assert mean("held-out gain") > 0.2
