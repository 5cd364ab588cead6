"""The last layer only where it is read gives the numbers and the gradients of the whole layer."""

from collections.abc import Callable

import pytest
import torch

from realm.data.featurize import pad_batch
from realm.data.types import Sequence, TokenInputs
from realm.nn.bodies import Body, build_body, has_bert_layers
from realm.nn.model import RealmModel
from realm.nn.spec import BodySpec

Ragged = Callable[..., list[Sequence]]
Make = Callable[..., RealmModel]


def slow_states(body: Body, inputs: TokenInputs, positions: torch.Tensor) -> torch.Tensor:
    """Every state of every layer, then the few that are asked for."""
    states = body(inputs)
    return torch.stack([states[i, positions[i]] for i in range(len(states))])


def gradients(body: Body, states: torch.Tensor, weights: torch.Tensor) -> dict[str, torch.Tensor]:
    body.zero_grad()
    (states * weights).sum().backward()
    return {name: p.grad.clone() for name, p in body.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("longest", [40, 12], ids=["padded", "unpadded"])
def test_states_and_gradients_are_those_of_the_whole_layer(any_spec: BodySpec, ragged: Ragged, longest: int) -> None:
    torch.manual_seed(0)
    body = build_body(any_spec, pooler=False).double().eval()
    inputs = pad_batch([Sequence(s.ids[:longest], s.segments[:longest]) for s in ragged(5, 12)], 0)
    assert inputs.unpadded == (longest == 12) == bool(inputs.mask.all())
    positions = torch.randint(0, 11, (5, 3))
    fast, slow = body.states_at(inputs, positions), slow_states(body, inputs, positions)
    torch.testing.assert_close(fast, slow, rtol=1e-11, atol=1e-12)
    weights = torch.randn_like(slow)
    ours, whole = gradients(body, fast, weights), gradients(body, slow, weights)
    assert ours.keys() == whole.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-9, atol=1e-11, msg=name)


def test_which_bodies_have_it(specs: dict[str, BodySpec]) -> None:
    found = {name: has_bert_layers(build_body(spec, pooler=False).model) for name, spec in specs.items()}
    assert {name for name, has in found.items() if has} == {name for name in found if not name.startswith("modernbert")}
    eager = build_body(specs["bert"], pooler=False).model
    eager.set_attn_implementation("eager")
    assert not has_bert_layers(eager), "its masks are of another kind"


def test_the_last_layer_drops_in_training_and_the_seed_says_what(bert: BodySpec, ragged: Ragged) -> None:
    dropped = {**bert.config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_hidden_layers": 1}
    inputs, positions = pad_batch(ragged(4, 8), 0), torch.randint(0, 8, (4, 2))
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        body = build_body(BodySpec({**dropped, name: 0.3}), pooler=False)
        drawn = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            drawn.append(body.train().states_at(inputs, positions))
        assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
        assert not torch.allclose(drawn[0], body.eval().states_at(inputs, positions))


def test_slots_without_a_target_score_nothing(bert: BodySpec, make_model: Make, ragged: Ragged) -> None:
    encoder = make_model(bert).encoder
    assert encoder is not None
    sequences, positions, targets = ragged(6, 12), torch.randint(0, 12, (6, 4)), torch.randint(0, 60, (6, 4))
    slots = torch.rand(6, 4) < 0.6
    slots[2] = False
    every = encoder(sequences, positions, targets)
    found = encoder(sequences, positions, targets, slots)
    torch.testing.assert_close(found[slots], every[slots])
    assert (found[~slots] == 0).all() and found.dtype == torch.float32
    found.sum().backward()
    assert encoder.head.bias.grad is not None
    ours = encoder.head.bias.grad.clone()
    encoder.zero_grad()
    encoder(sequences, positions, targets)[slots].sum().backward()
    torch.testing.assert_close(ours, encoder.head.bias.grad)
    nothing = encoder(sequences, positions, targets, torch.zeros_like(slots))
    assert torch.equal(nothing, torch.zeros(6, 4)) and nothing.requires_grad
