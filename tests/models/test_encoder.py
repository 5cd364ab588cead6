"""An encoder scores masks as its distributions say, and nothing where there is no target."""

import torch


def test_encoder_scores_are_a_gather_of_its_distributions(any_spec, make_model, ragged, buckets):
    encoder, sequences, rng = make_model(any_spec).encoder, ragged(9, 12), torch.Generator().manual_seed(3)
    positions, targets = torch.randint(0, 12, (9, 4), generator=rng), torch.randint(0, 60, (9, 4), generator=rng)
    log_probs, scores = encoder.log_probs(sequences, positions), encoder(sequences, positions, targets)
    assert log_probs.shape == (9, 4, 60) and log_probs.dtype == scores.dtype == torch.float32
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(9, 4))
    torch.testing.assert_close(scores, log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1), rtol=1e-5, atol=1e-5)
    for i, sequence in enumerate(sequences):
        torch.testing.assert_close(scores[i], encoder([sequence], positions[i : i + 1], targets[i : i + 1])[0], rtol=1e-4, atol=1e-5)


def test_the_decoder_is_tied_to_the_word_embeddings(bert, make_model, ragged):
    encoder = make_model(bert).encoder
    names = [n for n, p in encoder.named_parameters() if p.shape[0] == 60]
    assert names == ["body.model.embeddings.word_embeddings.weight", "head.bias"]
    before = encoder.log_probs(ragged(1), torch.tensor([[1]]))
    with torch.no_grad():
        encoder.body.model.get_input_embeddings().weight[4, 0] += 1.0  # stands in no input: only the decoder sees it
    assert not torch.equal(encoder.log_probs(ragged(1), torch.tensor([[1]])), before)


def test_slots_without_a_target_score_nothing(bert, make_model, ragged):
    encoder = make_model(bert).encoder
    sequences, positions, targets = ragged(6, 12), torch.randint(0, 12, (6, 4)), torch.randint(0, 60, (6, 4))
    slots = torch.rand(6, 4) < 0.6
    slots[2] = False
    every, found = encoder(sequences, positions, targets), encoder(sequences, positions, targets, slots)
    torch.testing.assert_close(found[slots], every[slots])
    assert (found[~slots] == 0).all() and found.dtype == torch.float32
    found.sum().backward()
    ours = encoder.head.bias.grad.clone()
    encoder.zero_grad()
    encoder(sequences, positions, targets)[slots].sum().backward()
    torch.testing.assert_close(ours, encoder.head.bias.grad)
    nothing = encoder(sequences, positions, targets, torch.zeros_like(slots))
    assert torch.equal(nothing, torch.zeros(6, 4)) and nothing.requires_grad
