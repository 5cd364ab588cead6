"""The mixture of model and neighbours, its settings, and the scores that they are tried on."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from knn_models import OPTIONS

from realm.errors import ConfigError
from realm.knn.datastore import find_neighbours
from realm.knn.scoring import KnnLogitsProcessor, Mixing, mixed_log_probs, neighbour_weights, score_windows, token_probs, wanted_probs
from realm.knn.session import translate
from realm.knn.windows import windows_of_texts


def brute_force(scores, tokens, valid, temperature, v):
    """p_kNN over the vocabulary by its definition, float64 [b,v]."""
    p = np.zeros((len(scores), v))
    for i in range(len(scores)):
        mass = [math.exp((scores[i, j] - scores[i][valid[i]].max()) / temperature) if valid[i, j] else 0.0 for j in range(len(scores[i]))]
        for j, share in enumerate(mass):
            if sum(mass):
                p[i, tokens[i, j]] += share / sum(mass)
    return p


def draw(seed, b=5, k=7, v=11):
    rng = np.random.default_rng(seed)
    scores = -np.abs(rng.standard_normal((b, k))).astype(np.float32) * 10 ** rng.uniform(-2, 3)
    valid = rng.random((b, k)) < 0.8
    valid[0], scores[0, 0] = True, scores[0].max()
    valid[1] = False
    return scores, rng.integers(0, v, (b, k)), valid


@given(st.integers(0, 10**6), st.floats(0.01, 1000))
def test_p_knn_is_its_definition(seed, temperature):
    scores, tokens, valid = draw(seed)
    expected = brute_force(scores, tokens, valid, temperature, 11)
    weights = neighbour_weights(*map(torch.from_numpy, (scores, valid)), temperature)
    found = token_probs(weights, torch.from_numpy(tokens), 11).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found.sum(1), valid.any(1), atol=1e-9)
    wanted = torch.from_numpy(tokens[:, 0])
    np.testing.assert_allclose(wanted_probs(weights, torch.from_numpy(tokens), wanted), expected[np.arange(5), tokens[:, 0]], atol=1e-6)


@given(st.integers(0, 10**6), st.floats(0, 1))
def test_mixture_is_its_definition(seed, a):
    rng = np.random.default_rng(seed)
    model, near = rng.dirichlet(np.ones(6), 4), rng.dirichlet(np.ones(6), 4)
    near[0, :3] = 0
    mixed = mixed_log_probs(torch.from_numpy(model).log(), torch.from_numpy(near), torch.full((4,), a, dtype=torch.float64))
    np.testing.assert_allclose(mixed.exp(), a * near + (1 - a) * model, atol=1e-9)


@pytest.mark.parametrize("values", [{"a": 1.5}, {"a": -0.1}, {"a": float("nan")}, {"k": 0}, {"temperature": 0.0}, {"temperature": -1.0}])
def test_settings_out_of_range(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        Mixing(**values)


WAYS = [{"num_beams": 1}, {"num_beams": 3}, {"num_beams": 1, "do_sample": True}, {"num_beams": 2, "do_sample": True}]


def generated(network, datastore, mixing, **options):
    """Two sentences of unequal length, padded on the side that the kind of model wants."""
    tokenizer = network.tokenizer
    tokenizer.padding_side = "left" if network.kind == "causal" else "right"
    inputs = tokenizer(["the cat sat on the mat", "a bird"], return_tensors="pt", padding=True, return_token_type_ids=False)
    torch.manual_seed(3)
    settings = {"max_new_tokens": 8, "pad_token_id": 0, "do_sample": False, **options}
    if datastore is None:
        return network.model.generate(**inputs, **settings)
    with KnnLogitsProcessor(network, datastore.index("exact"), mixing) as knn:
        return network.model.generate(**inputs, **settings, logits_processor=[knn])


@pytest.mark.parametrize("way", WAYS)
def test_neighbours_alone_change_what_is_said(kind, way, built, networks):
    expected = generated(networks[kind], None, Mixing(), **way)
    assert torch.equal(generated(networks[kind], built(kind), Mixing(a=0.0), **way), expected)
    mixing = Mixing(k=8, a=0.9, temperature=0.5)
    first, again = (generated(networks[kind], built(kind), mixing, **way) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape != expected.shape or not torch.equal(first, expected)


@pytest.mark.parametrize("a", [0.3, 1.0])
def test_greedy_generation_is_its_definition(kind, a, built, networks):
    """Step by step without a cache: the key of the whole prefix, brute force over all keys, the mixture, its best token."""
    network, datastore, mixing = networks[kind], built(kind), Mixing(k=5, a=a, temperature=2.0)
    made = generated(network, datastore, mixing, num_beams=1)[1].tolist()
    ids = network.tokenizer("a bird")["input_ids"]
    prefix = ids if network.kind == "causal" else [2]
    keys, said = datastore.snapshot.vectors.astype(np.float64), []
    for _ in range(8):
        seen = []
        handle = network.layer.module.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0]))
        inputs = {"input_ids": [prefix]} if network.kind == "causal" else {"input_ids": [ids], "decoder_input_ids": [prefix]}
        with torch.no_grad():
            logits = network.model(**{name: torch.tensor(rows) for name, rows in inputs.items()}).logits[0, -1]
        handle.remove()
        scores = -np.square(keys - seen[0].reshape(-1, 24)[-1].double().numpy()).sum(1)
        nearest = np.argsort(-scores, kind="stable")[:5]
        share = np.exp((scores[nearest] - scores.max()) / 2.0)
        mixed = (1 - a) * logits.double().softmax(-1).numpy()
        np.add.at(mixed, datastore.tokens[nearest], a * share / share.sum())
        said.append(int(mixed.argmax()))
        prefix = [*prefix, said[-1]]
        if said[-1] == 3:
            break
    start = len(made) - 8 if network.kind == "causal" else 1
    assert made[start:][: len(said)] == said


def test_batch_scoring_is_its_definition(kind, built, networks, source_of):
    network, datastore = networks[kind], built(kind)
    windows = windows_of_texts(network, [source_of[kind]], OPTIONS)
    scored = score_windows(network, windows, datastore.index("exact"), 6)
    keys, start = datastore.snapshot.vectors.astype(np.float64), 0
    assert torch.equal(scored.mixed(Mixing(k=4, a=0.0)), torch.from_numpy(scored.log_probs))
    half, alone = (scored.mixed(Mixing(k=4, a=a, temperature=3.0)).double().exp().numpy() for a in (0.5, 1.0))
    for number in range(len(windows)):
        window = windows.window(number)
        states = network.read([window], log_probs=True)
        for place, (query, wanted) in enumerate(zip(states.keys.double().numpy(), window.targets.tolist(), strict=True)):
            model, scores = float(states.log_probs[place, wanted].exp()), -np.square(keys - query).sum(1)
            nearest = np.argsort(-scores, kind="stable")[:4]
            share = np.exp((scores[nearest] - scores.max()) / 3.0)
            p_knn = share[datastore.tokens[nearest] == wanted].sum() / share.sum()
            assert abs(np.exp(scored.log_probs[start]) - model) < 1e-5
            assert abs(alone[start] - p_knn) < 1e-3 and abs(half[start] - (p_knn + model) / 2) < 1e-3
            start += 1
    assert start == len(scored)


def test_empty_and_single_neighbourhoods(built, networks, source_of):
    """All keys hidden: the model answers, whatever a says, in scoring and in generation."""
    network, datastore = networks["causal"], built("causal")
    index = datastore.index("exact")
    index.set_live(np.zeros(len(datastore), np.bool_))
    scored = score_windows(network, windows_of_texts(network, [source_of["causal"]], OPTIONS), index, 4)
    assert torch.equal(scored.mixed(Mixing(k=4, a=1.0)), torch.from_numpy(scored.log_probs))
    ids = torch.tensor([[2, 4, 6]])
    with KnnLogitsProcessor(network, index, Mixing(a=1.0)) as knn:
        with_knn = network.model.generate(ids, max_new_tokens=6, do_sample=False, logits_processor=[knn])
    assert torch.equal(with_knn, network.model.generate(ids, max_new_tokens=6, do_sample=False))
    # a = 1 with one neighbour: its token, at every step.
    index, live = datastore.index("exact"), np.zeros(len(datastore), np.bool_)
    live[17] = True
    index.set_live(live)
    with KnnLogitsProcessor(network, index, Mixing(k=1, a=1.0)) as knn:
        made = network.model.generate(
            torch.tensor([[2, 4, 6]]), max_new_tokens=5, do_sample=False, logits_processor=[knn], eos_token_id=None
        )
    assert set(made[0, 3:].tolist()) == {int(datastore.tokens[17])}


def test_translations_do_not_depend_on_their_batch(built, networks):
    network, texts = networks["translation"], ["the cat sat", "a bird flew over the hill again", "dog ran"]
    index, mixing = built("translation").index(), Mixing(k=4, a=0.5, temperature=1.0)
    together = translate(network, texts, index=index, mixing=mixing, beams=2, longest=8).texts
    assert together == [translate(network, [text], index=index, mixing=mixing, beams=2, longest=8).texts[0] for text in texts]
    assert together != translate(network, texts, beams=2, longest=8).texts


@pytest.mark.parametrize("way", WAYS[:3])
def test_rows_that_have_ended_are_not_searched(kind, way, built, networks, monkeypatch):
    """A prompt may end in the padding token all the same: its first prediction is mixed like any other."""
    network, mixing = networks[kind], Mixing(k=5, a=0.9, temperature=2.0)
    inputs = {"input_ids": torch.tensor([[7, 9, 8], [6, 5, 0]]), "attention_mask": torch.ones(2, 3, dtype=torch.long)}
    searched = []

    def counted(index, keys, k):
        searched.append(len(keys))
        return find_neighbours(index, keys, k)

    monkeypatch.setattr("realm.knn.scoring.find_neighbours", counted)
    made, rows = [], []
    for padding in (None, 0):
        with KnnLogitsProcessor(network, built(kind).index(), mixing, padding) as knn:
            torch.manual_seed(3)
            made.append(network.model.generate(**inputs, **way, max_new_tokens=20, pad_token_id=0, logits_processor=[knn]))
        rows.append(list(searched))
        searched.clear()
    assert torch.equal(*made)
    assert rows[0][0] == rows[1][0] and len(rows[0]) == len(rows[1])
    if way["num_beams"] == 1:
        assert rows[1][1:] == (made[0][:, 3 if kind == "causal" else 1 :][:, :-1] != 0).sum(0).tolist()
    if kind == "causal" and way == WAYS[0]:
        assert sum(rows[1]) < sum(rows[0]), "no row has ended: this shows nothing"
