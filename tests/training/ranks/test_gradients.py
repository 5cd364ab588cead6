"""A batch gives the same gradient however it is shared out: on one rank, on two, in parts one after the other."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

STAGES = ("ict", "warm", "pretrain", "finetune")


@pytest.fixture
def run_copy(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


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
