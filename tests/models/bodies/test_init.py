"""The structured start: what the first heads look at before any training, and that weights which are loaded overwrite it all."""

import functools
import math

import pytest
import torch
from torch import nn

import realm.models.bodies.body
from realm.models.bodies.body import build_body, load_body
from realm.models.bodies.init import match
from realm.models.model import state_sha256
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


@pytest.mark.parametrize("sizes", [{"layers": 1}, {"heads": 1}, {"hidden": 32, "heads": 2}], ids=str)
def test_bodies_that_are_too_small_keep_their_random_weights(sizes, monkeypatch):
    small = start(**sizes)
    monkeypatch.setattr(realm.models.bodies.body, "start_copying", lambda model: None)
    assert state_sha256(small) == state_sha256(start(**sizes))


def test_the_start_depends_on_the_seed_alone():
    assert state_sha256(start(0)) == state_sha256(start(0)) != state_sha256(start(1))
    assert all(parameter.requires_grad and torch.isfinite(parameter).all() for parameter in started().parameters())


def test_a_published_body_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(realm.models.bodies.body, "start_copying", lambda model: None)
    published = start(seed=5)
    monkeypatch.undo()
    published.save_pretrained(tmp_path / "body")
    body = load_body(str(tmp_path / "body"), pooling="cls", segments=True, pooler=False)
    assert state_sha256(body.model) == state_sha256(published) != state_sha256(start(seed=5))
