"""The same seed gives the same run, in another process too; another seed gives another."""

import os
import subprocess
import sys

import pytest

from realm.progress import Progress
from realm.recipe import load_recipe
from realm.runs.run import run_recipe
from realm.storage.files import sha256_file
from realm.storage.metrics import TIMES, MetricsLog

STAGES = ("corpus", "warm", "ict", "pretrain", "finetune")
TRAINED = ("finetune", "ict", "pretrain", "warm")
# As the demo: the structured start (three layers, heads of 32), bfloat16, partners and more hidden wordpieces.
OVERRIDES = {
    "run": {"bf16": True}, "model": {"hidden": 64, "layers": 3},
    "warm": {"steps": 8, "check_every": 4, "least_steps": 8}, "ict": {"steps": 8},
    "pretrain": {"steps": 8, "refresh_every": 3}, "finetune": {"steps": 8},
}  # fmt: skip


def weights(run):
    return {name: sha256_file(run / "stages" / name / "model.safetensors") for name in TRAINED}


def rows(run):
    return [{key: value for key, value in row.items() if key not in TIMES} for row in MetricsLog(run / "metrics.jsonl").rows()]


def run_elsewhere(recipe, out, threads, hash_seed):
    """In a process of its own, whose sets of strings are ordered by ``hash_seed``."""
    overrides = OVERRIDES | {"run": {**OVERRIDES["run"], "threads": threads}}
    settings = [f"--set={section}.{key}={str(v).lower()}" for section, values in overrides.items() for key, v in values.items()]
    command = [sys.executable, "-m", "realm", "run", str(recipe), "--out", str(out), "--stages", ",".join(STAGES), *settings]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_same_seed_twice(tmp_path, write_tiny, threads):
    recipe = write_tiny(tmp_path)
    for name, hash_seed in (("here", 1), ("there", 12345)):
        run_elsewhere(recipe, tmp_path / name, threads, hash_seed)
    assert {row["stage"] for row in rows(tmp_path / "here")} == set(TRAINED)
    assert rows(tmp_path / "here") == rows(tmp_path / "there")
    assert weights(tmp_path / "here") == weights(tmp_path / "there")


@pytest.mark.parametrize("stage", ["warm", "ict"])
def test_another_seed_is_another_run(tmp_path, write_tiny, stage):
    recipe, found = write_tiny(tmp_path), []
    for seed in (0, 1):
        out = tmp_path / f"run-{seed}"
        run_recipe(load_recipe(recipe, {"run": {"seed": seed}}), out, stages=("corpus", stage), progress=Progress(quiet=True))
        found.append((sha256_file(out / "stages" / stage / "model.safetensors"), rows(out)[0]["loss"]))
    assert found[0][0] != found[1][0] and found[0][1] != found[1][1]
