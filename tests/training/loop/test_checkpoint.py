"""A damaged checkpoint is never loaded: the older one is, and a warning says so."""

import math

import pytest
import torch
from torch import nn

from realm.training.loop.checkpoint import CheckpointDirectory, Verdict, better_of


def flipped(name, place):
    def harm(directory):
        data = bytearray((directory / name).read_bytes())
        data[place(bytes(data))] ^= 1
        (directory / name).write_bytes(data)

    return harm


HARMS = {
    "a weight": flipped("weights.safetensors", lambda data: len(data) - 3),
    "a moment": flipped("optimizer.safetensors", lambda data: len(data) - 3),
    "what the task said": flipped("state.json", lambda data: data.index(b"7", data.index(b'"seen"'))),
    "gone": lambda directory: (directory / "weights.safetensors").unlink(),
    "empty": lambda directory: (directory / "state.json").write_bytes(b""),
}


@pytest.mark.parametrize("harm", HARMS)
def test_the_older_one_is_loaded(tmp_path, harm, caplog):
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 2)
    optimizer, kept = torch.optim.AdamW(module.parameters()), {}
    directory = CheckpointDirectory(tmp_path, fingerprint="one")
    for step in (1, 2):
        module(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        kept[step] = module.weight.flatten().tolist()
        directory.save(step, module, optimizer, {"task": {"seen": 70 + step}})
    HARMS[harm](tmp_path / "step-0000002")
    found = directory.restore(module, optimizer)
    assert found is not None and found.step == 1 and found.extra == {"task": {"seen": 71}}
    assert module.weight.flatten().tolist() == kept[1] and "using an older one" in caplog.text


@pytest.mark.parametrize(
    ("before", "after", "kept"), [(0.2, 0.3, "after"), (0.3, 0.2, "before"), (0.3, 0.3, "after"), (0.3, math.nan, "before")]
)
def test_a_network_is_left_with_the_better_weights(before, after, kept):
    network = nn.Linear(2, 1)
    start = {name: torch.zeros_like(value) for name, value in network.state_dict().items()}
    learnt = {name: value.clone() for name, value in network.state_dict().items()}

    def measure():
        return before if not network.weight.any() else after

    verdict = better_of(network, start, "a measure", measure)
    assert verdict == Verdict("a measure", before, pytest.approx(after, nan_ok=True))
    assert verdict.facts()["kept"] == kept
    assert all(torch.equal(value, (learnt if kept == "after" else start)[name]) for name, value in network.state_dict().items())
