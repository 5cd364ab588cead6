"""Every family of bodies behind the one seam: built, pooled, saved and loaded alike; the last layer only where it is read."""

import math

import pytest
import torch
import torch.nn.functional as F

from realm.errors import ConfigError
from realm.models.bodies import body as bodies
from realm.models.bodies.body import build_body, has_bert_layers, has_bf16, load_body, pad_batch
from realm.models.model import RealmModel, start_from_body, state_sha256
from realm.models.spec import BodySpec, one_body
from realm.models.types import Sequence


def test_a_body_runs_and_padding_reaches_no_real_wordpiece(any_spec, ragged):
    body, inputs = build_body(any_spec, pooler=True).eval(), pad_batch(ragged(5), 0)
    states = body(inputs)
    assert states.shape == (*inputs.ids.shape, 16) and body.pooled(inputs).shape == (5, 16)
    assert torch.isfinite(states).all()
    body, sequences = build_body(any_spec, pooler=True).eval(), ragged(6)
    together, pooled = body(pad_batch(sequences, 0)), body.pooled(pad_batch(sequences, 0))
    for i, sequence in enumerate(sequences):
        alone = pad_batch([sequence], 0)
        torch.testing.assert_close(together[i, : len(sequence)], body(alone)[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(pooled[i], body.pooled(alone)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["pooler", "cls", "mean"])
def test_pooling_is_what_it_says(bert, ragged, pooling):
    body, sequences = build_body(BodySpec(bert.config, pooling=pooling), pooler=True).eval(), ragged(4)
    pooled, states = body.pooled(pad_batch(sequences, 0)), body(pad_batch(sequences, 0))
    for i, sequence in enumerate(sequences):
        expected = states[i, 0] if pooling != "mean" else states[i, : len(sequence)].mean(0)
        if pooling == "pooler":
            expected = torch.tanh(body.model.pooler.dense(expected))
        torch.testing.assert_close(pooled[i], expected, rtol=1e-4, atol=1e-5)
    assert (body.model.pooler is not None) == (pooling == "pooler")


def test_segments_matter_only_where_they_are_fed(bert):
    first, second = (pad_batch([Sequence([5, 6, 7, 8], segments)], 0) for segments in ([0, 0, 1, 1], [0, 0, 0, 0]))
    fed = build_body(bert, pooler=False).eval()
    assert not torch.allclose(fed(first), fed(second))
    unfed = build_body(BodySpec(bert.config, segments=False), pooler=False).eval()
    assert torch.equal(unfed(first), unfed(second))


def test_published_weights_start_embedder_and_encoder(any_spec, ragged, tmp_path):
    """A directory as transformers writes it; then our own directory, which needs the first no more."""
    published = build_body(any_spec, pooler=True).eval()
    published.model.save_pretrained(tmp_path / "published")
    model = start_from_body(one_body(any_spec, projection=8), tmp_path / "published", dropout=0.1, attention_dropout=0.0).eval()
    assert model.spec.parts == ("embedder", "encoder")
    inputs = pad_batch(ragged(4), 0)
    for body in (model.embedder.body.eval(), model.encoder.body.eval()):
        assert torch.equal(body(inputs), published(inputs))
    assert torch.equal(model.embedder.body.pooled(inputs), published.pooled(inputs))
    model.save_pretrained(tmp_path / "ours")
    assert state_sha256(RealmModel.from_pretrained(tmp_path / "ours")) == state_sha256(model)


def test_every_parameter_learns(any_spec, make_model, ragged):
    """DDP and a tidy checkpoint both want no parameter that nothing reads."""
    model, sequences = make_model(any_spec, "embedder", "encoder", "reader").train(), ragged(4, 12)
    scores = model.reader(sequences, [3, 4, 5, 6])
    losses = {
        "embedder": model.embedder(sequences).pow(3).sum(),
        "encoder": model.encoder(sequences, torch.tensor([[1, 2]] * 4), torch.tensor([[7, 8]] * 4)).sum(),
        "reader": scores.logits[scores.valid].pow(2).sum(),
    }
    for name, loss in losses.items():
        part = getattr(model, name)
        loss.backward()
        unused = [n for n, p in part.named_parameters() if p.grad is None]
        assert not unused, f"{name}: {unused}"


def test_a_source_that_is_no_body_is_named(tmp_path):
    for source in (str(tmp_path), str(tmp_path / "none"), "nobody/nothing-of-that-name"):
        with pytest.raises(ConfigError, match="no body can be loaded") as caught:
            load_body(source, pooling="cls", segments=True, pooler=False)
        assert "\n" not in str(caught.value) and source in str(caught.value)


NOTHING = {"model_type": "no-such-family", "hidden_size": 16}
ODD = {"model_type": "bert", "hidden_size": 15, "num_attention_heads": 2, "vocab_size": 60}


@pytest.mark.parametrize(("config", "options", "problem"), [
    (NOTHING, {}, "cannot be built"), ({"hidden_size": 16, "vocab_size": 60}, {}, "cannot be built"), (ODD, {}, "cannot be built"),
    ("modernbert", {"pooling": "pooler", "segments": False}, "pool"), ("modernbert", {"pooling": "cls", "segments": True}, "segment"),
    ("xlm-roberta", {"pooling": "cls", "segments": True}, "segment"),
])  # fmt: skip
def test_what_cannot_be_built_is_named(config, options, problem, specs):
    spec = BodySpec(specs[config].config if isinstance(config, str) else config, **options)
    with pytest.raises(ConfigError, match=problem) as caught:
        build_body(spec, pooler=spec.pooling == "pooler")
    assert "\n" not in str(caught.value)


def slow_states(body, inputs, positions):
    states = body(inputs)
    return torch.stack([states[i, positions[i]] for i in range(len(states))])


def gradients(body, states, weights):
    body.zero_grad()
    (states * weights).sum().backward()
    return {name: p.grad.clone() for name, p in body.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("longest", [40, 12], ids=["padded", "unpadded"])
def test_states_and_gradients_are_those_of_the_whole_layer(any_spec, ragged, longest):
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


def test_which_bodies_have_it(specs):
    found = {name: has_bert_layers(build_body(spec, pooler=False).model) for name, spec in specs.items()}
    assert {name for name, has in found.items() if has} == {name for name in found if not name.startswith("modernbert")}
    eager = build_body(specs["bert"], pooler=False).model
    eager.set_attn_implementation("eager")
    assert not has_bert_layers(eager), "its masks are of another kind"


def test_the_last_layer_drops_in_training_and_the_seed_says_what(bert, ragged):
    dropped = {**bert.config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_hidden_layers": 1}
    inputs, positions = pad_batch(ragged(4, 8), 0), torch.randint(0, 8, (4, 2))
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        body, drawn = build_body(BodySpec({**dropped, name: 0.3}), pooler=False), []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            drawn.append(body.train().states_at(inputs, positions))
        assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
        assert not torch.allclose(drawn[0], body.eval().states_at(inputs, positions))


@pytest.fixture(params=["mpnet", "xlm-roberta", "xlm-roberta-cls", "modernbert", "modernbert-cls", "minilm"])
def spec(request, specs):
    sizes = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    mpnet = {"model_type": "mpnet", "max_position_embeddings": 66, "pad_token_id": 1, **sizes}
    return {**specs, "mpnet": BodySpec(mpnet, pooling="mean", segments=False)}[request.param]


def plainly(body):
    """What transformers makes of a body's configuration, with its attention and the same weights."""
    from transformers import AutoConfig, AutoModel

    values = dict(body.spec.config)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    # ModernBERT's eager attention is NaN where a window holds nothing but padding.
    attention = "sdpa" if config.model_type == "modernbert" else "eager"
    model = AutoModel.from_config(config, attn_implementation=attention).to(torch.float64).eval()
    missing, unexpected = model.load_state_dict(body.model.state_dict(), strict=False)
    assert not unexpected and all(name.startswith("pooler.") for name in missing)
    return model


def test_states_and_gradients_are_those_of_transformers(spec, ragged):
    """In our padding and with our attention: what embedder, encoder and reader are made over."""
    body, inputs = build_body(spec, pooler=False).double().eval(), pad_batch(ragged(6, 9), 0)
    plain, fed = plainly(body), {"token_type_ids": inputs.segments} if spec.segments else {}
    theirs = plain(input_ids=inputs.ids, attention_mask=inputs.mask.long(), **fed).last_hidden_state[inputs.mask]
    ours = body(inputs)[inputs.mask]
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)
    weights = torch.randn_like(theirs)
    (theirs * weights).sum().backward()
    found = gradients(body, ours, weights)
    for name, parameter in plain.named_parameters():
        own = found.get(f"model.{name}")
        assert (own is None) == (parameter.grad is None), name
        if own is not None:
            torch.testing.assert_close(own, parameter.grad, rtol=1e-5, atol=1e-9, msg=lambda said, name=name: f"{name}: {said}")


def enumerated(query, key, value, keep):
    found = torch.zeros_like(query)
    for b, h, q in torch.cartesian_prod(*(torch.arange(n) for n in query.shape[:3])).tolist():
        seen = keep[b, 0, 0].nonzero().flatten()
        scores = torch.stack([(query[b, h, q] * key[b, h, t]).sum() / math.sqrt(query.shape[-1]) for t in seen])
        weights = scores.exp() / scores.exp().sum()
        found[b, h, q] = sum(w * value[b, h, t] for w, t in zip(weights, seen, strict=True))
    return found


def heads(dtype, seed=0):
    torch.manual_seed(seed)
    query = torch.randn(3, 2, 4, 8, dtype=dtype)
    key, value = torch.randn(2, 3, 2, 6, 8, dtype=dtype)
    return query, key, value, (torch.arange(6) < torch.tensor([[6], [3], [1]]))[:, None, None]


def test_products_are_the_explicit_sum_with_its_gradients():
    *inputs, keep = heads(torch.float64)
    leaves = [tensor.requires_grad_() for tensor in inputs]
    weights = torch.randn(3, 2, 4, 8, dtype=torch.float64)
    slow, fast = enumerated(*leaves, keep), bodies.by_products(*leaves, keep)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-13)
    for ours, theirs in zip(*(torch.autograd.grad((found * weights).sum(), leaves) for found in (fast, slow)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("masked", [True, False])
def test_bfloat16_on_a_cpu_is_as_near_to_float32_as_the_fused_way(masked):
    *inputs, keep = heads(torch.float32)
    mask = keep if masked else None
    exact = F.scaled_dot_product_attention(*inputs, attn_mask=mask)
    halves = [tensor.bfloat16() for tensor in inputs]
    ours, fused = bodies.attend(*halves, mask), F.scaled_dot_product_attention(*halves, attn_mask=mask)
    assert ours.dtype == torch.bfloat16
    error, allowed = ((found.float() - exact).abs().max() for found in (ours, fused))
    assert error <= 2 * allowed + 1e-3


def test_probabilities_are_dropped_by_the_seed():
    *inputs, keep = heads(torch.bfloat16)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(bodies.attend(*inputs, keep, 0.3))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    many = torch.stack([bodies.by_products(*(t.float() for t in inputs), keep, 0.3) for _ in range(4000)]).mean(0)
    torch.testing.assert_close(many, bodies.by_products(*(t.float() for t in inputs), keep), atol=0.08, rtol=0.0)


def test_the_name_is_not_saved(bert):
    model = build_body(bert, pooler=False).model
    assert model.config._attn_implementation == bodies.ATTENTION_NAME and bodies.ATTENTION_NAME not in str(model.config.to_dict())


@pytest.mark.parametrize(("capabilities", "has"), [
    ({"avx2": True, "avx512_bf16": False, "amx_bf16": False, "cpu_name": "bf16"}, False),
    ({"avx2": True, "avx512_bf16": True, "amx_bf16": False, "l2_cache_size": 1048576}, True),
    ({"avx512_bf16": False, "amx_bf16": True}, True), ({"neon": True, "bf16": True}, True), ({}, False),
])  # fmt: skip
def test_a_cpu_has_it_when_one_of_its_extensions_does(capabilities, has, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert has_bf16("cpu") is has
