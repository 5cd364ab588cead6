"""An embedder gives every row what it would get alone, in the order asked; it stays as it is without bfloat16."""

import torch

from realm.models.bodies.body import rounded_once


def test_embeddings_keep_their_order_and_equal_one_by_one(any_spec, make_model, ragged, buckets):
    embedder, sequences = make_model(any_spec).embedder, ragged(17)
    together = embedder(sequences)
    assert together.shape == (17, 8) and together.dtype == torch.float32
    torch.testing.assert_close(together, torch.cat([embedder([s]) for s in sequences]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(embedder(sequences[::-1]), together.flip(0), rtol=1e-4, atol=1e-5)
    twice = embedder([*sequences, sequences[0]])
    torch.testing.assert_close(twice[-1], twice[0], rtol=1e-4, atol=1e-5)


def test_an_embedding_is_a_normalised_projection_with_dropout_in_training(bert, make_model, ragged):
    embedder = make_model(bert).embedder
    assert embedder is not None and embedder.norm.eps == 1e-12
    vectors = embedder(ragged(5))
    torch.testing.assert_close(vectors.mean(-1), torch.zeros(5), atol=1e-5, rtol=0)
    torch.testing.assert_close(vectors.var(-1, unbiased=False), torch.ones(5), atol=1e-4, rtol=0)
    assert torch.equal(embedder(ragged(5)), vectors)
    noisy = embedder.train()(ragged(5))
    assert (noisy == 0).any() and not torch.allclose(noisy, vectors)


def test_without_bfloat16_a_network_stays_as_it_is(bert, make_model, monkeypatch):
    monkeypatch.setattr("realm.models.bodies.body.has_bf16", lambda device: False)
    embedder = make_model(bert).embedder
    assert embedder is not None and rounded_once(embedder, "cpu") is embedder
