"""A run starts where its published body already is: the head, the scale, the null document, the head for masks, the dropout."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from realm import losses
from realm.data.types import Sequence
from realm.nn.bodies import build_body, freeze_words
from realm.nn.model import UNIT_SCALE, RealmModel, start_from_body, state_sha256
from realm.nn.spec import BodySpec, one_body

Ragged = Callable[..., list[Sequence]]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(55))]


@pytest.fixture
def published(bert: BodySpec, tmp_path: Path) -> Path:
    """A BERT as transformers writes it, with its head for masked wordpieces."""
    from transformers import AutoConfig, BertForPreTraining

    values = dict(bert.config)
    torch.manual_seed(1)
    model = BertForPreTraining(AutoConfig.for_model(values.pop("model_type"), **values))
    torch.nn.init.normal_(model.cls.predictions.bias)
    model.save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return tmp_path / "bert"


@pytest.fixture
def sentence_embedder(published: Path) -> Path:
    """The same weights as a sentence embedder with mean pooling and vectors of length 1."""
    (published / "1_Pooling").mkdir()
    (published / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}))
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    modules = [{"idx": n, "path": path, "type": f"sentence_transformers.models.{kind}"} for n, (kind, path) in enumerate(kinds)]
    (published / "modules.json").write_text(json.dumps(modules))
    return published


def start(spec: BodySpec, directory: Path, **rates: float) -> RealmModel:
    wanted = one_body(spec, projection=8, dropout=0.0, null_offset=True)
    return start_from_body(wanted, directory, **{"dropout": 0.0, "attention_dropout": 0.0, **rates})


def test_a_sentence_embedder_gives_its_own_vectors_and_scores_at_its_temperature(
    bert: BodySpec, sentence_embedder: Path, ragged: Ragged, tmp_path: Path
) -> None:
    from transformers import AutoModel

    model = start(bert, sentence_embedder).eval()
    reference = AutoModel.from_pretrained(sentence_embedder).eval()
    sequences = ragged(4, 7)
    vectors = model.embedder(sequences)
    for sequence, vector in zip(sequences, vectors, strict=True):
        states = reference(input_ids=torch.tensor([sequence.ids])).last_hidden_state[0].mean(0)
        assert torch.allclose(vector, states / states.norm(), atol=1e-6)
    assert model.embedder.spec.head == "unit" and model.embedder.spec.projection == 16
    assert torch.allclose(model.embedder.embed_queries(sequences), UNIT_SCALE * vectors)
    assert model.encoder.spec.body.segments and not model.embedder.spec.body.segments
    model.save_pretrained(tmp_path / "ours")
    loaded = RealmModel.from_pretrained(tmp_path / "ours").eval()
    assert state_sha256(loaded) == state_sha256(model) and torch.equal(loaded.embedder.embed_queries(sequences), 20 * vectors)


def test_a_unit_head_without_its_scale_would_say_nothing(bert: BodySpec, sentence_embedder: Path, ragged: Ragged) -> None:
    """Entropy of p(z|x) over 8 candidates: nearly log 8 for inner products of unit vectors, far below it with the learned scale."""
    model = start(bert, sentence_embedder).eval()
    blocks, queries = model.embedder(ragged(8, 9)), ragged(8, 5)
    valid = torch.ones(8, 8, dtype=torch.bool)

    def certainty(query_emb: torch.Tensor) -> float:
        """How far the entropy lies below that of knowing nothing."""
        log_p = losses.candidate_log_probs(losses.inner_products(query_emb, blocks), valid).detach()
        return math.log(8) + float((log_p.exp() * log_p).sum(-1).mean())

    flat, scaled = certainty(model.embedder(queries)), certainty(model.embedder.embed_queries(queries))
    assert flat < 0.01 and scaled > 100 * flat


def test_bert_keeps_its_head_for_masks(bert: BodySpec, published: Path, ragged: Ragged) -> None:
    """The same log-probabilities as the published model: pre-training may begin without a warm stage."""
    from transformers import BertForPreTraining

    model, reference = start(bert, published).eval(), BertForPreTraining.from_pretrained(published).eval()
    (sequence,) = ragged(1, 8)
    where = torch.tensor([[2, 5]])
    with torch.inference_mode():
        ours = model.encoder.log_probs([sequence], where)[0]
        theirs = reference(torch.tensor([sequence.ids]), token_type_ids=torch.tensor([sequence.segments])).prediction_logits
    assert torch.allclose(ours, theirs[0, where[0]].log_softmax(-1), atol=1e-5)
    assert model.embedder.spec.head == "projection" and model.embedder.log_scale is None


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_the_recipes_dropout_reaches_published_bodies(bert: BodySpec, published: Path, ragged: Ragged, rate: float) -> None:
    model = start(bert, published, dropout=rate, attention_dropout=0.0).train()
    sequences = ragged(3, 6)
    torch.manual_seed(0)
    first = model.embedder(sequences)
    assert torch.equal(first, model.embedder(sequences)) == (rate == 0.0)
    assert model.encoder.spec.body.config["hidden_dropout_prob"] == rate


def test_frozen_words_get_no_gradient_and_the_rest_does(bert: BodySpec, published: Path, ragged: Ragged) -> None:
    model = start(bert, published)
    freeze_words(model)
    model.embedder(ragged(3)).pow(3).sum().backward()
    table = model.embedder.body.model.get_input_embeddings().weight
    assert table.grad is None
    assert all(p.grad is not None for p in model.embedder.body.parameters() if p is not table)


def test_families_without_segments_start_too(specs: dict[str, BodySpec], tmp_path: Path) -> None:
    for name in ("xlm-roberta", "modernbert"):
        build_body(specs[name], pooler=False).model.save_pretrained(tmp_path / name)
        wanted = BodySpec(pooling="mean", segments=False)
        model = start_from_body(one_body(wanted, projection=8), tmp_path / name, dropout=0.1, attention_dropout=0.0)
        assert not model.encoder.spec.body.segments


def test_scores_are_float32_under_autocast() -> None:
    """Scores near 120 in bfloat16 are steps of .5: the best of a beam could not be told apart."""
    torch.manual_seed(0)
    query_emb, block_emb = torch.randn(2, 128), torch.randn(50, 128)
    exact = query_emb @ block_emb.T
    with torch.autocast("cpu", torch.bfloat16):
        assert (query_emb @ block_emb.T).dtype == torch.bfloat16
        both = losses.inner_products(query_emb, block_emb), losses.relevance_scores(query_emb, block_emb.expand(2, -1, -1))
    for scores in both:
        assert scores.dtype == torch.float32 and torch.allclose(scores, exact, atol=1e-4)


def test_the_null_document_starts_where_it_gets_a_gradient() -> None:
    """After ICT p(null) is 1e-7 and less; with its offset it is 1/k, and the offset's own gradient is not 0."""
    torch.manual_seed(0)
    scores = torch.randn(6, 8, dtype=torch.float64) * 3
    scores[:, 0] -= 20
    valid = torch.ones(6, 8, dtype=torch.bool)
    null = torch.zeros(6, 8, dtype=torch.bool)
    null[:, 0] = True
    before = losses.candidate_log_probs(scores, valid)
    offset = losses.even_null_offset(before).requires_grad_()
    log_p_z = losses.candidate_log_probs(scores + torch.where(null, offset, 0.0), valid)
    odds = log_p_z[:, 0] - torch.logsumexp(log_p_z[:, 1:], -1)
    assert before[:, 0].max() < math.log(1e-5) and float(odds.detach().mean()) == pytest.approx(math.log(1 / 7))
    target_log_probs = torch.log(torch.rand(6, 8, 1, dtype=torch.float64))
    loss, _ = losses.marginal_nll_joint(target_log_probs, log_p_z, torch.ones(6, 1, dtype=torch.bool))
    loss.sum().backward()
    expected = losses.retriever_gradient(target_log_probs, log_p_z, torch.ones(6, 1, dtype=torch.bool))[:, 0].sum()
    assert offset.grad is not None and float(offset.grad) == pytest.approx(-float(expected.detach())) and abs(float(offset.grad)) > 1e-3


def test_no_offset_where_null_has_no_company() -> None:
    log_p_z = torch.tensor([[0.0, -math.inf, -math.inf]])
    assert float(losses.even_null_offset(log_p_z)) == 0.0


def test_the_weights_are_read_once_and_each_network_has_its_own(
    bert: BodySpec, published: Path, ragged: Ragged, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModel

    read: list[Path] = []
    original = AutoModel.from_pretrained
    monkeypatch.setattr(AutoModel, "from_pretrained", lambda source, **options: read.append(source) or original(source, **options))
    wanted = one_body(BodySpec(config=bert.config, pooling="pooler"), projection=8)
    model = start_from_body(wanted, published, dropout=0.0, attention_dropout=0.0)
    assert len(read) == 1
    assert model.embedder.body.model.pooler is not None and model.encoder.body.model.pooler is None
    mine, other = (dict(network.body.model.named_parameters()) for network in (model.embedder, model.encoder))
    assert set(mine) - set(other) == {"pooler.dense.weight", "pooler.dense.bias"}
    assert all(torch.equal(mine[name], tensor) and mine[name] is not tensor for name, tensor in other.items())
