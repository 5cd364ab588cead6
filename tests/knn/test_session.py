"""The grid finds the best point, and settings survive the disk."""

import numpy as np
import pytest

from realm.errors import ConfigError, DataError
from realm.knn.datastore import Neighbours
from realm.knn.scoring import Mixing, ScoredTokens
from realm.knn.session import perplexities, translation_scores, tune


def made_up(n=400, k=8, seed=0):
    """Near neighbours (distance below 5) hold the wanted token, far ones never do; the model gives every token .2."""
    rng = np.random.default_rng(seed)
    near = rng.random(n) < 0.5
    scores = -np.sort(np.where(near[:, None], rng.random((n, k)), 50 + rng.random((n, k))), 1).astype(np.float32)
    tokens = np.where(near[:, None], 3, rng.integers(4, 9, (n, k))).astype(np.int32)
    model = np.full(n, np.log(0.2), np.float32)
    return ScoredTokens(np.full(n, 3, np.int32), model, Neighbours(scores, tokens, np.ones((n, k), np.bool_)))


def test_the_grid_finds_the_best_point():
    scored = made_up()
    tuned = tune(scored, neighbours=(2, 8), shares=(0.1, 0.375, 0.9), temperatures=(1.0,))
    assert (tuned.best.a, tuned.best.temperature) == (0.375, 1.0) and len(tuned.rows) == 6
    for row in tuned.rows:
        expected = -float(scored.mixed(Mixing(int(row["k"]), row["a"], row["temperature"])).double().mean())
        assert abs(row["loss"] - expected) < 1e-5
    assert tuned.loss < tuned.model_loss == pytest.approx(-np.log(0.2))
    assert tune(scored).loss < tuned.model_loss


def test_settings_round_trip(tmp_path):
    mixing = Mixing(7, 0.1, 0.5)
    mixing.save(tmp_path / "settings.json")
    assert Mixing.load(tmp_path / "settings.json") == mixing


@pytest.mark.parametrize("text", [None, "{", "[]", '{"k": 1}', '{"k": 4, "a": "half", "temperature": 1}'])
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
