"""A rank that dies, stands still or fails ends the job in bounded time with one line, and the next start goes on."""

import shutil

import pytest

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
    """Stopped, not dead: its connections stay open, and only its beat stands still. The time limit of the job is 3 seconds here."""
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
