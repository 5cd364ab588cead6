"""The grid finds the best point, the gate learns whom to trust, and settings survive the disk."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

from realm.errors import ConfigError, DataError
from realm.knn.datastore import Neighbours
from realm.knn.scoring import ScoredTokens
from realm.knn.session import perplexities, translation_scores, tune, with_gate
from realm.knn.settings import FEATURES, Gate, Mixing, gate_features, neighbour_weights


def made_up(n=400, k=8, seed=0):
    """Near neighbours (distance below 5) hold the wanted token, far ones never do; the model gives every token .2."""
    rng = np.random.default_rng(seed)
    near = rng.random(n) < 0.5
    scores = -np.sort(np.where(near[:, None], rng.random((n, k)), 50 + rng.random((n, k))), 1).astype(np.float32)
    tokens = np.where(near[:, None], 3, rng.integers(4, 9, (n, k))).astype(np.int32)
    model = np.full(n, np.log(0.2), np.float32)
    return ScoredTokens(np.full(n, 3, np.int32), model, model, Neighbours(scores, tokens, np.ones((n, k), np.bool_)))


def test_the_grid_finds_the_best_point():
    scored = made_up()
    tuned = tune(scored, neighbours=(2, 8), shares=(0.1, 0.375, 0.9), temperatures=(1.0,))
    assert (tuned.best.a, tuned.best.temperature) == (0.375, 1.0) and len(tuned.rows) == 6
    for row in tuned.rows:
        expected = -float(scored.mixed(Mixing(int(row["k"]), row["a"], row["temperature"])).double().mean())
        assert abs(row["loss"] - expected) < 1e-5
    assert tuned.loss < tuned.model_loss == pytest.approx(-np.log(0.2))
    assert tune(scored).loss < tuned.model_loss


def test_the_gate_learns_whom_to_trust():
    scored = made_up()
    fixed = tune(scored).best
    gated, fresh = with_gate(scored, fixed), made_up(seed=1)
    _, a = fresh.knn_probs(gated)
    near = fresh.neighbours.scores[:, 0] > -5
    assert float(a[near].min()) > 0.9 and float(a[~near].max()) < 0.1
    assert float(fresh.mixed(gated).mean()) > float(fresh.mixed(fixed).mean()) + 0.2
    assert with_gate(scored, fixed) == gated, "the same gate again"


def test_features_are_their_definition():
    scores = torch.tensor([[-1.0, -2.0, -4.0], [-1.0, -1.0, -9.0], [0.0, 0.0, 0.0]])
    tokens, valid = torch.tensor([[5, 6, 5], [4, 4, 0], [1, 2, 3]]), torch.tensor([[True] * 3, [True, True, False], [False] * 3])
    weights = neighbour_weights(scores, valid, 2.0)
    found = gate_features(scores, tokens, valid, weights, 2.0, torch.tensor([-0.5, -0.1, -3.0]))
    share = np.exp([-0.5, -1.0, -2.0]) / np.exp([-0.5, -1.0, -2.0]).sum()
    first = [-0.5, -0.5 + 3.5 / 3, -(share * np.log(share)).sum(), share[0] + share[2], 2 / 3, np.exp(-0.5)]
    assert found.shape == (3, len(FEATURES))
    np.testing.assert_allclose(found[0], first, rtol=1e-5)
    np.testing.assert_allclose(found[1], [-0.5, 0, np.log(2), 1.0, 0.5, np.exp(-0.1)], rtol=1e-5, atol=1e-6)
    assert not found[2].any()


def test_settings_round_trip(tmp_path):
    gated = with_gate(made_up(), Mixing(4, 0.3, 2.5))
    for mixing in (Mixing(7, 0.1, 0.5), gated):
        mixing.save(tmp_path / "settings.json")
        assert Mixing.load(tmp_path / "settings.json") == mixing
    features = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Gate.from_dict(asdict(gated.gate))(features), gated.gate(features))


@pytest.mark.parametrize("text", [None, "{", "[]", '{"k": 1}', '{"k": 4, "a": 0.5, "temperature": 1, "gate": {"mean": [1]}}'])
def test_damaged_settings(tmp_path, text):
    if text is not None:
        (tmp_path / "s.json").write_text(text)
    with pytest.raises(DataError, match="realm knn tune"):
        Mixing.load(tmp_path / "s.json")


def test_nothing_to_tune_on():
    with pytest.raises(DataError, match="nothing to tune on"):
        tune(made_up().of(np.zeros(0, np.int64)))
    with pytest.raises(ConfigError, match="k = 9, and 8 neighbours"):
        tune(made_up(), neighbours=(9,))
    with pytest.raises(ConfigError, match=r"a = 1\.5"):
        tune(made_up(), shares=(1.5,))


def test_perplexity_of_tokens_and_words():
    found = perplexities(made_up(), Mixing(8, 0.0, 1.0), words=200)
    assert found["perplexity"] == found["knn_perplexity"] == pytest.approx(5, rel=1e-4)
    assert found["word_perplexity"] == pytest.approx(25, rel=1e-4) and found["mean_a"] == 0
    assert 0.4 < found["found"] < 0.6
    alone = perplexities(made_up(), Mixing(8, 1.0, 1.0), words=None)
    assert alone["knn_perplexity"] is None and alone["word_perplexity"] is None and alone["mean_a"] == 1, "some token has no probability"


def test_scores_of_translations():
    pytest.importorskip("sacrebleu")
    references = ["ein Hund sitzt auf der Wiese und schläft"] * 3
    assert translation_scores(references, references) == {"bleu": pytest.approx(100), "chrf": pytest.approx(100)}
