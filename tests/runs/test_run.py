"""Alarms: each has a name, speaks once for each trouble, is a row of the log, and rings in a resumed run as in an uninterrupted one."""

import pytest

from realm.recipe import build_recipe
from realm.report.diagnoses import attainable_share, diagnoses
from realm.runs.run import Alarms, alarms_of
from realm.storage.metrics import MetricsLog

HEALTHY = {"marginal_utility": 0.1, "distinct": 0.8, "staleness_highest": 10.0}


class Run:
    """A log and its alarms, fed as the loop does it."""

    def __init__(self, path, alarms):
        self.log = MetricsLog(path / "metrics.jsonl")
        self.said = []
        self.reported = 0
        self.alarms = Alarms(self.count, self.said.append, self.log, alarms)

    def count(self, *_):
        self.reported += 1

    def feed(self, *rows):
        for stage, step, values in rows:
            self.log.write(stage, step, **values)
            self.alarms(stage, step, 1000, values)

    @property
    def rung(self):
        return [(row["step"], row["alarm"]) for row in self.log.rows() if "alarm" in row]


def rows(steps, **values):
    return [("pretrain", step, {**HEALTHY, **values}) for step in steps]


def test_each_speaks_once_and_again_after_it_had_gone(tmp_path):
    run = Run(tmp_path, diagnoses(attainable=attainable_share(28, 16, 8), staleness_limit=100))
    run.feed(*rows(range(20, 120, 20), marginal_utility=-0.1, distinct=0.2))  # an ordinary start; 28 blocks cannot be more distinct
    assert run.said == [] == run.rung
    run.feed(*rows(range(500, 500 + 20 * 5, 20), marginal_utility=-0.1, distinct=0.01))
    assert run.rung == [(540, "utility"), (540, "distinct")]
    assert "step 540: marginal utility -0.100" in run.said[0] and "single_block_span_share" in run.said[0] and "distinct" in run.said[1]
    run.feed(
        ("pretrain", 700, {"held_out_recall": 0.5}),
        ("pretrain", 750, {"held_out_recall": 0.1}),
        ("pretrain", 760, {"held_out_recall": 0.1}),
    )
    run.feed(
        ("pretrain", 800, {"held_out_recall": 0.5}),
        ("pretrain", 850, {"held_out_recall": 0.1}),
        ("pretrain", 855, {"held_out_recall": 0.1}),
    )
    run.feed(*rows(range(860, 1000, 20), staleness_highest=100.0))
    assert run.rung[2:] == [(760, "collapse"), (855, "collapse"), (860, "staleness")] and "100 are the limit" in run.said[-1]
    row = next(row for row in run.log.rows() if "alarm" in row)
    assert set(row) == {"stage", "step", "alarm", "problem", "cure", "time"} and row["cure"] in run.said[0]


def test_other_stages_ring_nothing_and_every_call_is_handed_on(tmp_path):
    run = Run(tmp_path, diagnoses())
    run.feed(*(("ict", step, {"distinct": 0.0, "marginal_utility": -1.0}) for step in range(900, 1000, 10)))
    assert run.rung == [] and run.reported == 10


def test_fine_tuning_that_loses_recall_rings_in_its_own_stage(tmp_path):
    run, lost = Run(tmp_path, diagnoses()), {"dev_recall": 0.2, "dev_recall_gain": -0.06}
    run.feed(("finetune", 0, {"dev_recall": 0.26}), ("pretrain", 50, lost), ("finetune", 50, {**lost, "dev_recall_gain": -0.05}))
    assert run.rung == []
    run.feed(*(("finetune", step, lost) for step in (100, 150)))
    row = next(row for row in run.log.rows() if "alarm" in row)
    assert run.rung == [(100, "recall")] and row["stage"] == "finetune"
    assert "-0.060" in run.said[0] and "finetune.retriever_rate" in row["cure"]


# As measured: three runs that unlearn, and four that do not.
FALLING = ([0.64, 0.92, 0.86, 0.71, 0.6, 0.55, 0.56], [0.66, 0.62, 0.63, 0.59, 0.59, 0.58, 0.48], [0.63, 0.41, 0.49])
STEADY = ([0.5, 0.5, 0.47, 0.46, 0.56, 0.59, 0.58], [1.33, 1.23, 1.38], [1.33, 1.55, 1.76], [0.0, 0.0, 0.0])


@pytest.mark.parametrize("values", [*FALLING, *STEADY])
@pytest.mark.parametrize("cut", range(8))
def test_help_that_held_out_sentences_lose_is_told_once(tmp_path, values, cut):
    """Also by a run that was interrupted anywhere; rows between evaluations do not have the number."""
    feed = []
    for at, value in enumerate(values):
        feed += [("pretrain", 20 * at, {"held_out_utility": value}), *rows(range(20 * at + 10, 20 * at + 20, 10))]
    run = Run(tmp_path, diagnoses())
    run.feed(*feed[:cut])
    resumed = Run(tmp_path, diagnoses())
    resumed.feed(*feed[cut:])
    assert [name for _, name in resumed.rung] == ["held_out"] * (values in FALLING)
    if values == FALLING[0]:
        assert resumed.rung == [(60, "held_out")] and "changed by -0.21 nats" in (run.said + resumed.said)[0]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_resumed_run_rings_as_the_whole_one(tmp_path, cut):
    feed = [*rows(range(300, 400, 20), marginal_utility=-2e-7), *rows(range(400, 460, 20)), *rows(range(460, 560, 20), distinct=0.01)]
    whole, killed = Run(tmp_path / "whole", diagnoses()), Run(tmp_path / "killed", diagnoses())
    whole.feed(*feed)
    killed.feed(*feed[:cut])
    resumed = Run(tmp_path / "killed", diagnoses())
    resumed.feed(*feed[cut:])
    assert resumed.rung == whole.rung == [(340, "utility"), (500, "distinct")]


def test_limits_are_those_of_the_recipe(tmp_path):
    def rings(values, highest):
        run = Run(tmp_path / str(len(list(tmp_path.iterdir()))), alarms_of(build_recipe(values), 1000))
        run.feed(*rows(range(20, 40, 20), staleness_highest=highest))
        return bool(run.rung)

    assert rings({"pretrain": {"refresh_every": 10}}, 50) and not rings({"pretrain": {"refresh_every": 10}}, 49)
    assert not rings({"pretrain": {"refresh_every": 10, "refresh": "frozen"}}, 1000)  # never refreshed: on purpose
