"""A batch gives the same gradient however it is shared out: on one rank, on two, in parts one after the other."""

import json
import random
import shutil

import pytest
import torch
from safetensors.torch import load_file

from realm.storage.files import sha256_file
from realm.storage.metrics import TIMES, MetricsLog, _line

STAGES = ("ict", "warm", "pretrain", "finetune")


def test_ranks_and_parts_have_the_gradient_of_the_whole_batch(run_copy, tmp_path, jobs):
    shapes = [(1, 1), (2, 1), (1, 2), (2, 2)]
    outs = [str(tmp_path / f"{world}-{parts}") for world, parts in shapes]
    common = {"work": "gradients", "run": str(run_copy)}
    done = jobs(*({**common, "world": w, "accumulate": a, "out": out} for (w, a), out in zip(shapes, outs, strict=True)))
    assert all(code == 0 for job in done for code in job["codes"]), done
    whole, *others = (load_file(out) for out in outs)
    for stage in STAGES:
        names = [name for name in whole if name.startswith(f"{stage}.")]
        assert len(names) > 10 and all(whole[name].dtype == torch.float64 for name in names)
        assert sum(bool(whole[name].abs().max() > 0) for name in names) > 10
        # A bias in front of a softmax has a gradient of 0, of which rounding leaves something.
        rounding = 1e-13 * max(whole[name].abs().max() for name in names)
        for other in others:
            assert [name for name in other if name.startswith(f"{stage}.")] == names
            assert float(other[f"{stage} loss"]) == pytest.approx(float(whole[f"{stage} loss"]), rel=1e-6)
            for name in names:
                difference, size = (other[name] - whole[name]).abs().max(), whole[name].abs().max()
                assert difference <= 1e-6 * size or size < rounding, (stage, name, float(difference), float(size))
    # Shares of a batch hide more or fewer wordpieces: dividing each by its own number would be another gradient.
    assert len(set(whole["warm weights"].tolist())) > 1


def test_a_gradient_that_no_rank_has_stays_none(tmp_path, jobs):
    (done,) = jobs({"work": "unused", "world": 2, "out": str(tmp_path / "grads")})
    assert done["codes"] == [0, 0], done
    for rank in (0, 1):
        assert json.loads((tmp_path / f"grads.{rank}").read_text()) == [[3.0] * 3, [5.0] * 3, None]


WARM = {"work": "stages", "world": 2, "stages": ["warm"]}


@pytest.fixture
def unwarmed(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    shutil.rmtree(run / "stages/warm")
    return run


def test_a_rank_that_died(unwarmed, jobs):
    died, again = jobs({**WARM, "run": str(unwarmed), "kill": [1, 3, "warm"]}, {**WARM, "run": str(unwarmed)})
    assert died["codes"] == [2, -9], died
    assert died["errors"][0].startswith("error: rank 0 of 2 gets no answer: another rank has ended or hangs. Start the same command again")
    assert died["errors"][0].count("\n") == 1 and died["seconds"] < 60
    assert again["codes"] == [0, 0] and (unwarmed / "stages/warm/stage.json").exists()


def test_a_rank_that_stands_still(unwarmed, jobs):
    """Stopped, not dead: its connections stay open, and no answer comes. The time limit of a step is 3 seconds here."""
    (stopped,) = jobs({**WARM, "run": str(unwarmed), "stop": [1, 3, "warm"], "timeout": 3})
    assert stopped["codes"][0] in (1, 2) and stopped["codes"][1] == -9, stopped
    assert stopped["errors"][0].startswith("error: rank ") and "Start the same command again" in stopped["errors"][0]
    assert not (unwarmed / "stages/warm").exists() and (unwarmed / "checkpoints/warm").exists()


def test_the_first_rank_fails_alone(unwarmed, jobs):
    """What only the first rank does, it alone explains; the others end with it."""
    shutil.rmtree(unwarmed / "corpus")
    job = {**WARM, "run": str(unwarmed), "stages": ["corpus"], "set": {"corpus": {"sources": [str(unwarmed / "nowhere.jsonl")]}}}
    for name in ("stages", "checkpoints"):
        shutil.rmtree(unwarmed / name, ignore_errors=True)
    (failed,) = jobs(job)
    assert failed["codes"] == [2, 2], failed
    assert "nowhere.jsonl" in failed["errors"][0] and failed["errors"][1] == ""


def test_a_batch_that_the_ranks_cannot_divide(unwarmed, jobs):
    (refused,) = jobs({**WARM, "run": str(unwarmed), "world": 3})
    assert refused["codes"] == [2, 2, 2], refused
    assert all("a batch of 4 cannot be divided into 3 parts (ranks x accumulate)" in error for error in refused["errors"])


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
