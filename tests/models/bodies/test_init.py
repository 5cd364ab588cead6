"""The structured start: what the first heads look at before any training, and that weights which are loaded overwrite it all."""

import functools
import math
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import realm.models.bodies.body
from realm.models.bodies.body import build_body, load_body
from realm.models.bodies.init import (
    AROUND_SHARPNESS,
    EMBEDDING_STD,
    MAX_FREQUENCY,
    MIN_FREQUENCY,
    look_aside,
    match,
    pass_on,
    rotation,
    start_positions,
)
from realm.models.model import RealmModel, state_sha256
from realm.models.spec import bert_spec

LENGTH = 120


def spec(*, hidden=128, layers=3, heads=2):
    sizes = {"vocab_size": 500, "hidden": hidden, "layers": layers, "heads": heads, "intermediate": hidden}
    return bert_spec(max_length=400, dropout=0.0, attention_dropout=0.0, **sizes)


def start(seed=0, **sizes):
    torch.manual_seed(seed)
    return build_body(spec(**sizes), pooler=False).model.eval()


@functools.cache
def started(**sizes):
    return start(**sizes)


@torch.no_grad()
def attention(module, states, heads):
    """Attention weights [b, heads, t, t] of one self-attention."""
    query, key = (side(states).unflatten(-1, (heads, -1)).transpose(1, 2) for side in (module.query, module.key))
    return (query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])).softmax(-1)


@torch.no_grad()
def embedded(model):
    """Embeddings of random wordpieces: a query of 40 and a document of 80."""
    ids = torch.randint(5, 500, (16, LENGTH), generator=torch.Generator().manual_seed(1))
    return model.embeddings(input_ids=ids, token_type_ids=(torch.arange(LENGTH) >= 40).long().expand(16, -1))


def by_offset(weights):
    """Mean weight of each offset, from [b, t, t]."""
    mean = weights.mean(0)
    return {offset: float(mean.diagonal(offset).mean()) for offset in range(-LENGTH // 2, LENGTH // 2 + 1)}


@pytest.mark.parametrize(("hidden", "heads"), [(64, 2), (128, 2), (256, 4)])
@pytest.mark.parametrize(("head", "offset"), [(0, -1), (1, 1)])
def test_the_first_heads_look_at_the_neighbours(hidden, heads, head, offset):
    model = started(hidden=hidden, heads=heads)
    module = model.encoder.layer[0].attention.self
    # Positions alone: as good as all look exactly there.
    positions = model.embeddings.position_embeddings.weight[:LENGTH]
    looks = attention(module, nn.functional.layer_norm(positions, positions.shape[1:]).unsqueeze(0), heads)[0, head].argmax(-1)
    assert float((looks == torch.arange(LENGTH) + offset)[1:-1].float().mean()) > 0.98
    # Among random words: more than at any other offset, and many times what it would be by chance.
    shares = by_offset(attention(module, embedded(model), heads)[:, head])
    assert max(shares, key=shares.__getitem__) == offset
    assert shares[offset] > 15 / LENGTH and shares[offset] > 2 * sorted(shares.values())[-2]


def test_other_heads_and_random_starts_do_not(monkeypatch):
    model = started(hidden=256, heads=4)
    weights = attention(model.encoder.layer[0].attention.self, embedded(model), 4)
    assert all(max(by_offset(weights[:, head]).values()) < 3 / LENGTH for head in (2, 3))
    monkeypatch.setattr(realm.models.bodies.body, "start_copying", lambda model: None)
    plain = start(hidden=256, heads=4)
    weights = attention(plain.encoder.layer[0].attention.self, embedded(plain), 4)
    assert all(max(by_offset(weights[:, head]).values()) < 3 / LENGTH for head in range(4))


@pytest.mark.parametrize("offset", [-7, -1, 0, 1, 4, 100])
def test_an_offset_is_a_rotation(offset):
    frequencies = torch.logspace(math.log10(MAX_FREQUENCY), math.log10(MIN_FREQUENCY), 32)
    weight = torch.empty(300, 64)
    start_positions(weight, frequencies)
    turn, first, last = rotation(frequencies, offset), max(0, -offset), 300 - max(0, offset)
    torch.testing.assert_close(weight[first:last] @ turn.T, weight[first + offset : last + offset], rtol=0, atol=2e-5)
    torch.testing.assert_close(turn @ turn.T, torch.eye(64), rtol=0, atol=1e-5)
    torch.testing.assert_close(turn @ rotation(frequencies, 3), rotation(frequencies, offset + 3), rtol=0, atol=5e-5)


def test_positions_are_spread_like_words():
    model = started()
    positions, words = (getattr(model.embeddings, f"{kind}_embeddings").weight.detach() for kind in ("position", "word"))
    torch.testing.assert_close(positions.norm(dim=1), torch.full((len(positions),), EMBEDDING_STD * math.sqrt(128)))
    assert float(words.std()) == pytest.approx(EMBEDDING_STD, rel=0.02)
    distance = torch.cdist(positions[:400], positions[:400]) + torch.eye(400) * 9
    assert float(distance.min()) > EMBEDDING_STD, "two positions of a block cannot be told apart"


@torch.no_grad()
def test_slower_heads_take_in_the_stretch_on_each_side():
    model = start()
    module = model.encoder.layer[2].attention.self
    frequencies = torch.logspace(math.log10(MAX_FREQUENCY), math.log10(MIN_FREQUENCY), 64)
    look_aside(module, frequencies, torch.eye(128)[16:80] * AROUND_SHARPNESS, 4)
    positions = model.embeddings.position_embeddings.weight[:LENGTH]
    weights = attention(module, nn.functional.layer_norm(positions, positions.shape[1:]).unsqueeze(0), 2)
    for head, side in ((0, -1), (1, 1)):
        shares = by_offset(weights[:, head])
        assert sum(share for offset, share in shares.items() if 0 < side * offset < 12) > 0.5
        assert sum(share for offset, share in shares.items() if -12 < side * offset < 0) < 0.2


@pytest.mark.parametrize(("hidden", "heads", "head"), [(128, 2, 1), (256, 4, 2)])
@torch.no_grad()
def test_a_head_of_the_third_layer_takes_in_the_question_from_everywhere(hidden, heads, head):
    model = started(hidden=hidden, heads=heads)
    ids = torch.randint(5, 500, (4, LENGTH), generator=torch.Generator().manual_seed(1))
    states = model(input_ids=ids, token_type_ids=(torch.arange(LENGTH) >= 20).long().expand(4, -1), output_hidden_states=True).hidden_states
    weights = attention(model.encoder.layer[2].attention.self, states[2], heads)
    on_question = weights[..., 20:, :20].sum(-1).mean(dim=(0, 2))
    assert float(on_question[head]) > 0.9
    assert all(float(on_question[other]) < 0.75 for other in range(heads) if other != head), on_question
    assert float(weights[:, head, :, :20].max()) < 0.6, "it takes in the whole question, not one wordpiece of it"


@torch.no_grad()
def test_matching_heads_look_at_a_like_state():
    module = start().encoder.layer[1].attention.self
    match(module, 128)
    assert torch.equal(module.query.weight, module.key.weight) and module.query.weight is not module.key.weight
    states = torch.randn(1, LENGTH, 128, generator=torch.Generator().manual_seed(2))
    states[0, 90] = states[0, 10]
    without_itself = attention(module, states, 1)[0, 0].masked_fill(torch.eye(LENGTH, dtype=torch.bool), 0.0)
    assert int(without_itself[10].argmax()) == 90 and int(without_itself[90].argmax()) == 10


@pytest.mark.parametrize("undo", [True, False])
@torch.no_grad()
def test_what_is_attended_to_keeps_its_length(undo):
    part = SimpleNamespace(self=SimpleNamespace(value=nn.Linear(64, 64)), output=SimpleNamespace(dense=nn.Linear(64, 64)))
    pass_on(part, undo=undo)
    states = torch.randn(5, 64)
    passed = states @ part.self.value.weight.T @ part.output.dense.weight.T
    torch.testing.assert_close(passed.norm(dim=1), states.norm(dim=1))
    assert torch.allclose(passed, states, atol=1e-5) == undo


@pytest.mark.parametrize("sizes", [{"layers": 1}, {"heads": 1}, {"hidden": 32, "heads": 2}], ids=str)
def test_bodies_that_are_too_small_keep_their_random_weights(sizes, monkeypatch):
    small = start(**sizes)
    monkeypatch.setattr(realm.models.bodies.body, "start_copying", lambda model: None)
    assert state_sha256(small) == state_sha256(start(**sizes))


def test_the_start_depends_on_the_seed_alone():
    assert state_sha256(start(0)) == state_sha256(start(0)) != state_sha256(start(1))
    assert all(parameter.requires_grad and torch.isfinite(parameter).all() for parameter in started().parameters())


def test_loaded_weights_overwrite_the_start(make_model, tmp_path):
    model = make_model(spec())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1)
    model.save_pretrained(tmp_path / "model")
    saved = load_file(tmp_path / "model" / "model.safetensors")
    loaded = RealmModel.from_pretrained(tmp_path / "model").state_dict()
    assert loaded.keys() == saved.keys() and all(torch.equal(loaded[name], value) for name, value in saved.items())


def test_a_published_body_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(realm.models.bodies.body, "start_copying", lambda model: None)
    published = start(seed=5)
    monkeypatch.undo()
    published.save_pretrained(tmp_path / "body")
    body = load_body(str(tmp_path / "body"), pooling="cls", segments=True, pooler=False)
    assert state_sha256(body.model) == state_sha256(published) != state_sha256(start(seed=5))
