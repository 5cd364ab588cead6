"""One step of pre-training and one of fine-tuning through our buckets and our reading of a few states equal transformers' own computation:
one padded batch, with its own attention. Losses and every gradient, for each family of bodies."""

import copy

import pytest
import torch
import torch.nn.functional as F

from realm.models import losses
from realm.models.embedder import Embedder
from realm.models.encoder import KnowledgeAugmentedEncoder
from realm.models.reader import Reader
from realm.models.spec import BodySpec

QUERIES, CANDIDATES, MASKS, SHORTEST, START = 3, 4, 2, 9, 3


@pytest.fixture(params=["mpnet", "xlm-roberta", "xlm-roberta-cls", "modernbert", "modernbert-cls", "minilm"])
def spec(request, specs):
    sizes = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    mpnet = {"model_type": "mpnet", "max_position_embeddings": 66, "pad_token_id": 1, **sizes}
    return {**specs, "mpnet": BodySpec(mpnet, pooling="mean", segments=False)}[request.param]


def plainly(network):
    """A copy whose body is what transformers makes of the configuration, with its attention and the same weights."""
    from transformers import AutoConfig, AutoModel

    found = copy.deepcopy(network)
    values = dict(found.body.spec.config)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    # ModernBERT's eager attention is NaN where a window holds nothing but padding.
    attention = "sdpa" if config.model_type == "modernbert" else "eager"
    model = AutoModel.from_config(config, attn_implementation=attention).to(torch.float64).eval()
    missing, unexpected = model.load_state_dict(found.body.model.state_dict(), strict=False)
    assert not unexpected and all(name.startswith("pooler.") for name in missing)
    found.body.model = model
    return found


def padded_states(body, sequences):
    """Hidden states [n, t, h] of all inputs in one padded batch, and the mask [n, t]."""
    shape = len(sequences), max(len(s) for s in sequences)
    ids, mask, segments = torch.full(shape, body.model.config.pad_token_id), torch.zeros(shape), torch.zeros(shape, dtype=torch.long)
    for i, sequence in enumerate(sequences):
        ids[i, : len(sequence)], mask[i, : len(sequence)] = torch.tensor(list(sequence.ids)), 1
        segments[i, : len(sequence)] = torch.tensor(list(sequence.segments))
    fed = {"token_type_ids": segments} if body.spec.segments else {}
    return body.model(input_ids=ids, attention_mask=mask, **fed).last_hidden_state, mask


def plain_embeddings(embedder, sequences):
    states, mask = padded_states(embedder.body, sequences)
    weights = mask.unsqueeze(-1).to(states)
    pooled = (states * weights).sum(1) / weights.sum(1) if embedder.body.spec.pooling == "mean" else states[:, 0]
    return embedder.norm(embedder.dense(pooled))


def plain_log_probs(encoder, sequences, places, targets):
    states, _ = padded_states(encoder.body, sequences)
    at = states[torch.arange(len(places)).unsqueeze(1), places]
    logits = encoder.head(at, encoder.body.model.get_input_embeddings().weight)
    return logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def plain_spans(reader, sequences):
    """Scores of all spans of each body [n, t, w], in a loop; -inf outside of it."""
    states, _ = padded_states(reader.body, sequences)
    longest = max(len(s) for s in sequences) - START - 1
    rows = []
    for own, sequence in zip(reader.dense(states), sequences, strict=True):
        start, end = own.split(reader.span_hidden, dim=-1)
        last = len(sequence) - 2
        scores = [
            torch.stack([_span(reader, start, end, a, a + w, last) for w in range(reader.max_span)]) for a in range(START, START + longest)
        ]
        rows.append(torch.stack(scores))
    return torch.stack(rows)


def _span(reader, start, end, first, last, limit):
    if last > limit:
        return start.new_tensor(-torch.inf)
    return reader.score(reader.norm(F.relu(start[first] + end[last]))).squeeze()


def assert_same_gradients(ours, plain):
    mine, theirs = dict(ours.named_parameters()), dict(plain.named_parameters())
    for name, parameter in theirs.items():
        own = mine[name].grad if name in mine else None
        assert (own is None) == (parameter.grad is None), name
        if own is not None:
            torch.testing.assert_close(own, parameter.grad, rtol=1e-5, atol=1e-9, msg=lambda said, name=name: f"{name}: {said}")


def test_a_step_of_pre_training(spec, make_model, ragged):
    """-log sum over z of p(z|x) p(y|z,x), with the gradient to embedder and encoder."""
    model = make_model(spec).double()
    queries, blocks = ragged(QUERIES, SHORTEST, 20), ragged(QUERIES * CANDIDATES, SHORTEST, 40, seed=1)
    joint = ragged(QUERIES * CANDIDATES, SHORTEST, 50, seed=2)
    rng = torch.Generator().manual_seed(0)
    places, targets = (torch.randint(low, high, (len(joint), MASKS), generator=rng) for low, high in ((1, SHORTEST), (5, 60)))
    every = torch.ones(QUERIES, CANDIDATES, dtype=torch.bool)

    def loss_of(query_emb, block_emb, log_probs):
        scores = (query_emb.unsqueeze(1) * block_emb.view(QUERIES, CANDIDATES, -1)).sum(-1)
        return -torch.logsumexp(scores.log_softmax(-1) + log_probs.view(QUERIES, CANDIDATES, MASKS).sum(-1), -1).sum()

    scores = losses.relevance_scores(model.embedder.embed_queries(queries), model.embedder(blocks).view(QUERIES, CANDIDATES, -1))
    filled = model.encoder(joint, places, targets).view(QUERIES, CANDIDATES, MASKS)
    ours, _ = losses.marginal_nll_joint(filled, losses.candidate_log_probs(scores, every), torch.ones(QUERIES, MASKS, dtype=torch.bool))
    embedder, encoder = plainly(model.embedder), plainly(model.encoder)
    assert isinstance(embedder, Embedder) and isinstance(encoder, KnowledgeAugmentedEncoder)
    theirs = loss_of(
        plain_embeddings(embedder, queries), plain_embeddings(embedder, blocks), plain_log_probs(encoder, joint, places, targets)
    )
    torch.testing.assert_close(ours.sum(), theirs, rtol=1e-6, atol=1e-8)
    ours.sum().backward()
    theirs.backward()
    assert_same_gradients(model.embedder, embedder)
    assert_same_gradients(model.encoder, encoder)


def test_a_step_of_fine_tuning(spec, make_model, ragged):
    """The retriever's mass on right blocks, and the mass on right spans with the block's relevance, over all candidates."""
    model = make_model(spec, "embedder", "reader").double()
    questions, joint = ragged(QUERIES, SHORTEST, 20), ragged(QUERIES * CANDIDATES, SHORTEST, 30, seed=1)
    frozen = torch.randn(QUERIES, CANDIDATES, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    right = torch.tensor([[True, False, True, False]]).expand(QUERIES, -1)
    scores = losses.relevance_scores(model.embedder.embed_queries(questions), frozen)
    retrieval, _ = losses.retriever_marginal(scores, right, torch.ones_like(right))
    spans = model.reader(joint, [START] * len(joint))
    logits = spans.logits.view(QUERIES, CANDIDATES, *spans.logits.shape[1:]) + scores[..., None, None]
    gold = torch.zeros_like(logits, dtype=torch.bool)
    gold[:, 1, 2, 1] = gold[:, 3, 0, 0] = True
    valid = spans.valid.view_as(gold)
    reading, _ = losses.span_marginal(logits.flatten(1), gold.flatten(1), valid.flatten(1))
    ours = (retrieval + reading).sum()
    embedder, reader = plainly(model.embedder), plainly(model.reader)
    assert isinstance(embedder, Embedder) and isinstance(reader, Reader)
    relevance = (plain_embeddings(embedder, questions).unsqueeze(1) * frozen).sum(-1)
    expected = plain_spans(reader, joint).view_as(logits) + relevance[..., None, None]
    masses = (expected.flatten(1).logsumexp(-1), expected.masked_fill(~gold, -torch.inf).flatten(1).logsumexp(-1))
    found = relevance.logsumexp(-1) - relevance.masked_fill(~right, -torch.inf).logsumexp(-1)
    theirs = (found + masses[0] - masses[1]).sum()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)
    ours.backward()
    theirs.backward()
    assert_same_gradients(model.embedder, embedder)
    assert_same_gradients(model.reader, reader)
