"""SIGKILL inside a step of a real training process, started again: the weights and the metrics of the uninterrupted run."""

import json
import random
import shutil

import pytest

from realm.storage.files import sha256_file
from realm.storage.metrics import TIMES, MetricsLog, _line

STEPS = 10
PRETRAIN = {"steps": STEPS, "refresh_every": 4, "held_out": 3, "eval_every": 5, "batch": 4}
SETTINGS = {"run": {"checkpoint_every": 3, "accumulate": 2}, "pretrain": PRETRAIN, "eval": {"qa": ""}}
KILLED = -9


@pytest.fixture(scope="module")
def before_pretraining(tiny_run, tmp_path_factory):
    run = shutil.copytree(tiny_run, tmp_path_factory.mktemp("before") / "run")
    for name in ("stages/pretrain", "stages/finetune", "index", "params", "results"):
        shutil.rmtree(run / name)
    rows = [row for row in MetricsLog(run / "metrics.jsonl").rows() if row["stage"] in ("warm", "ict")]
    (run / "metrics.jsonl").write_text("".join(map(_line, rows)))
    return run


def job(run, world, settings=SETTINGS, **more):
    return {"work": "stages", "run": str(run), "world": world, "set": settings, "stages": ["pretrain"], **more}


def outcome(run):
    metrics = [{key: value for key, value in row.items() if key not in TIMES} for row in MetricsLog(run / "metrics.jsonl").rows()]
    return sha256_file(run / "stages/pretrain/model.safetensors"), metrics


def assert_resumes(jobs, start, root, world, kills, settings):
    """An uninterrupted run, and one that is killed at each (rank, step) in turn."""
    whole, broken = (shutil.copytree(start, root / name) for name in ("whole", "broken"))
    starts = [job(broken, world, settings, kill=[rank, step, "pretrain"]) for rank, step in kills]
    done = jobs(job(whole, world, settings), *starts, job(broken, world, settings))
    assert done[0]["codes"] == done[-1]["codes"] == [0] * world, done
    for (rank, _), killed in zip(kills, done[1:-1], strict=True):
        assert killed["codes"][rank] == KILLED and 0 not in killed["codes"], killed
    assert outcome(broken) == outcome(whole)
    facts = json.loads((whole / "stages/pretrain/stage.json").read_text())
    assert facts["steps"] == STEPS and facts["published"] == "last" and 0 <= facts["best_step"] <= STEPS
    assert [row["step"] for row in outcome(whole)[1] if "held_out_utility" in row] == [0, 5, 10]


def test_killed_on_two_ranks(before_pretraining, tmp_path, jobs):
    assert_resumes(jobs, before_pretraining, tmp_path, 2, [(1, 5)], SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_killed_at_random_steps_again_and_again(before_pretraining, tmp_path, jobs, world, accumulate):
    draw = random.Random(10 * world + accumulate)
    kills = sorted((step, draw.randrange(world)) for step in draw.sample(range(STEPS), 6))
    settings = {**SETTINGS, "run": {"checkpoint_every": 3, "accumulate": accumulate}}
    assert_resumes(jobs, before_pretraining, tmp_path, world, [(rank, step) for step, rank in kills], settings)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["warm", "ict", "finetune"])
def test_the_other_stages_on_two_ranks(tiny_run, tmp_path, jobs, stage):
    runs = [shutil.copytree(tiny_run, tmp_path / name) for name in ("whole", "broken")]
    for run in runs:
        shutil.rmtree(run / "stages" / stage)
        (run / "metrics.jsonl").unlink()
    common = {"work": "stages", "world": 2, "stages": [stage]}
    done = jobs({**common, "run": str(runs[0])}, {**common, "run": str(runs[1]), "kill": [1, 3, stage]}, {**common, "run": str(runs[1])})
    assert done[0]["codes"] == done[2]["codes"] == [0, 0] and done[1]["codes"][1] == KILLED, done
    weights = [sha256_file(run / "stages" / stage / "model.safetensors") for run in runs]
    rows = [[{k: v for k, v in row.items() if k not in TIMES} for row in MetricsLog(run / "metrics.jsonl").rows()] for run in runs]
    assert weights[0] == weights[1] and rows[0] == rows[1] and rows[0]
