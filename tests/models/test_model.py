"""A model directory that other people can load, networks with bodies of their own, and a start from a published body."""

import json
import math

import pytest
import torch
from small import as_sentence_model

from realm.errors import RunError
from realm.models import losses
from realm.models.bodies.body import freeze_words
from realm.models.model import INITIAL_UNIT_SCALE, RealmModel, start_from_body, state_sha256
from realm.models.spec import PARTS, BodySpec, EmbedderSpec, EncoderSpec, ModelSpec, ReaderSpec, bert_spec, one_body


def refused(directory):
    with pytest.raises(RunError) as caught:
        RealmModel.from_pretrained(directory)
    assert "\n" not in str(caught.value) and str(directory) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "parts", [("embedder", "encoder"), ("embedder",), ("encoder",), ("embedder", "document_embedder", "reader"), ("reader",), PARTS, ()]
)
def test_round_trip_of_all_parts(bert, make_model, tmp_path, parts):
    model = make_model(bert, *parts) if parts else make_model(bert).with_parts(embedder=None, encoder=None)
    model.save_pretrained(tmp_path, card={"steps": 3})
    loaded = RealmModel.from_pretrained(str(tmp_path))
    assert loaded.spec == model.spec and loaded.spec.parts == parts
    assert state_sha256(loaded) == state_sha256(model)
    assert [name for name in PARTS if loaded.has(name)] == [name for name in PARTS if name in parts]
    card = (tmp_path / "README.md").read_text()
    assert "- steps: 3" in card and all(name in card for name in parts)
    assert json.loads((tmp_path / "config.json").read_text())["library"] == "realm"


def test_forked_embedder_survives_the_round_trip_apart(bert, make_model, ragged, tmp_path):
    model = make_model(bert).fork_document_embedder()
    assert state_sha256(model.embedder) == state_sha256(model.document_embedder)
    assert all(p.requires_grad for p in model.embedder.parameters())
    assert not any(p.requires_grad for p in model.document_embedder.parameters())
    model.embedder(ragged(3)).pow(3).sum().backward()
    torch.optim.SGD(model.embedder.parameters(), lr=0.1).step()
    assert state_sha256(model.embedder) != state_sha256(model.document_embedder)
    assert model.documents is model.document_embedder
    model.save_pretrained(tmp_path)
    loaded = RealmModel.from_pretrained(tmp_path)
    for name in ("embedder", "document_embedder"):
        assert state_sha256(getattr(loaded, name)) == state_sha256(getattr(model, name))
    assert not any(p.requires_grad for p in loaded.document_embedder.parameters()), "the frozen side stays frozen"


def test_before_the_fork_one_embedder_serves_both_sides_and_missing_parts_are_named(bert, make_model):
    model = make_model(bert)
    assert model.documents is model.embedder
    with pytest.raises(RunError, match="no model at 'nobody/nothing-of-that-name'"):
        RealmModel.from_pretrained("nobody/nothing-of-that-name")
    with pytest.raises(RunError, match="no embedder"):
        _ = model.with_parts(embedder=None).documents
    with pytest.raises(RunError, match="has no embedder"):
        model.with_parts(embedder=None).fork_document_embedder()
    with pytest.raises(RunError, match="no encoder"):
        model.with_parts(encoder=None).with_reader(0, span_hidden=12, max_span=4)


def test_parts_are_shared_and_the_reader_is_its_own(bert, make_model):
    model = make_model(bert)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second, third = (model.with_reader(seed, span_hidden=12, max_span=4) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected), "the seed of the caller is not touched"
    assert first.spec.reader == ReaderSpec(bert, 12, 4), "over the encoder's body"
    assert first.embedder is model.embedder and not first.has("encoder") and first.spec.parts == ("embedder", "reader")
    assert state_sha256(first.reader) == state_sha256(second.reader) != state_sha256(third.reader)
    assert state_sha256(first.reader.body) == state_sha256(model.encoder.body)
    assert first.reader.body is not model.encoder.body
    assert model.spec.parts == ("embedder", "encoder")


def test_sha256_changes_with_any_bit_name_shape_or_type(bert, make_model):
    model = make_model(bert)
    seen = {state_sha256(model)}
    with torch.no_grad():
        for tensor in model.state_dict().values():
            bits = tensor.view(-1)[-1:].view(torch.int32)
            bits ^= 1
            seen.add(state_sha256(model))
    assert len(seen) == len(model.state_dict()) + 1
    assert state_sha256(make_model(bert)) not in seen - {state_sha256(make_model(bert))}

    class Holder(torch.nn.Module):
        def __init__(self, name, value):
            super().__init__()
            self.register_buffer(name, value)

    values = [torch.zeros(4), torch.zeros(2, 2), torch.zeros(4, dtype=torch.int32), torch.tensor(0.0), torch.tensor(1.0)]
    values += [torch.zeros(4, dtype=torch.bfloat16), torch.tensor(0.0, dtype=torch.bfloat16), torch.zeros(0)]
    hashes = [state_sha256(Holder("a", v)) for v in values] + [state_sha256(Holder("b", values[0]))]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_truncated_weights(bert, make_model, tmp_path, size):
    make_model(bert).save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])
    error = refused(tmp_path)
    assert "weights cannot be read" in str(error) and error.path == weights and error.cure


def test_weights_that_do_not_fit(bert, make_model, tmp_path):
    make_model(bert).save_pretrained(tmp_path)
    make_model(bert, "embedder").save_pretrained(tmp_path / "other")
    make_model(BodySpec({**bert.config, "intermediate_size": 64})).save_pretrained(tmp_path / "wider")
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    for other, problem in (("other", "missing tensors"), ("wider", "intermediate")):
        weights.write_bytes((tmp_path / other / "model.safetensors").read_bytes())
        assert problem in str(refused(tmp_path))
    (tmp_path / "other" / "model.safetensors").write_bytes(whole)
    assert "unknown tensors" in str(refused(tmp_path / "other"))
    weights.unlink()
    assert "weights cannot be read" in str(refused(tmp_path))


@pytest.mark.parametrize(("text", "problem"), [
    (None, "missing"), ("{", "not valid JSON"), ("[1]", "not a JSON object"),
    ('{"format": 1}', "made by an earlier version of realm. Build it again."),
    ('{"hidden_size": 8}', "not a model's configuration"), ('{"format": 2, "embedder": 3}', "does not fit"),
    ('{"format": 2, "reader": null}', "does not fit"),
    ('{"format": 2, "embedder": {}}', "does not fit"), ('{"format": 2, "embedder": {"body": 3}}', "does not fit"),
    ('{"format": 2, "encoder": {"body": {}, "more": 1}}', "does not fit"),
    ('{"format": 2, "encoder": {"body": {"config": {}}}}', "does not fit"),
    ('{"format": 2, "reader": {"body": {"config": {"model_type": "nothing"}}}}', "does not fit"),
    ('{"format": 2, "imagination": {"body": {"config": {}}}}', "does not fit"),
])  # fmt: skip
def test_foreign_configurations(bert, make_model, tmp_path, text, problem):
    make_model(bert).save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.unlink() if text is None else config.write_text(text)
    error = refused(tmp_path)
    assert problem in str(error) and error.path == config


def test_the_same_model_gives_the_same_bytes(bert, make_model, tmp_path):
    for name in ("a", "b"):
        make_model(bert).save_pretrained(tmp_path / name)
    for file in ("model.safetensors", "config.json", "README.md"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def outputs(model, sequences):
    masks = torch.tensor([[0, 2]]).expand(len(sequences), -1)
    ways = {
        "embedder": lambda: model.embedder(sequences),
        "document_embedder": lambda: model.document_embedder(sequences),
        "encoder": lambda: model.encoder.log_probs(sequences, masks),
        "reader": lambda: model.reader(sequences, [1] * len(sequences)).logits,
    }
    with torch.inference_mode():
        return {part: ways[part]() for part in model.eval().spec.parts}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for part, value in expected.items():
        gap = float((found[part] - value).abs().max())
        assert gap == 0, f"the {part} says something else: by {gap:.2f}"


def bert_of(hidden, layers, heads):
    sizes = {"vocab_size": 60, "hidden": hidden, "layers": layers, "heads": heads, "intermediate": 2 * hidden, "max_length": 64}
    return bert_spec(dropout=0.1, attention_dropout=0.0, **sizes)


def test_widths_and_families_of_their_own(specs, ragged, tmp_path):
    minilm = BodySpec(bert_of(384, 6, 12).config, pooling="mean", segments=False)
    spec = ModelSpec(
        embedder=EmbedderSpec(specs["xlm-roberta"], head="none", projection=16, dropout=0.0),
        document_embedder=EmbedderSpec(minilm, head="unit", projection=384, dropout=0.0),
        encoder=EncoderSpec(specs["modernbert"]),
        reader=ReaderSpec(bert_of(128, 2, 2), span_hidden=12, max_span=4, layer_norm_eps=1e-5),
    )
    torch.manual_seed(0)
    model = RealmModel(spec)
    before = outputs(model, ragged(5))
    assert [before[part].shape[-1] for part in PARTS] == [16, 384, 60, 4]
    model.save_pretrained(tmp_path)
    state, loaded = torch.get_rng_state(), RealmModel.from_pretrained(tmp_path)
    assert loaded.spec == spec and torch.equal(torch.get_rng_state(), state), "weights that are loaded are not drawn first"
    assert_same(outputs(loaded, ragged(5)), before)
    for part in PARTS:
        model.with_parts(**{other: None for other in PARTS if other != part}).save_pretrained(tmp_path / part)
        assert_same(outputs(RealmModel.from_pretrained(tmp_path / part), ragged(5)), {part: before[part]})


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(55))]


@pytest.fixture
def published(bert, tmp_path):
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
def sentence_embedder(published):
    """The same weights as a sentence embedder with mean pooling and vectors of length 1."""
    return as_sentence_model(published, 16, "mean_tokens", "Normalize")


def start(spec, directory, **rates):
    wanted = one_body(spec, projection=8, dropout=0.0, null_offset=True)
    return start_from_body(wanted, directory, **{"dropout": 0.0, "attention_dropout": 0.0, **rates})


def test_a_sentence_embedder_gives_its_own_vectors_and_scores_at_its_temperature(bert, sentence_embedder, ragged, tmp_path):
    from transformers import AutoModel

    model = start(bert, sentence_embedder).eval()
    reference, sequences = AutoModel.from_pretrained(sentence_embedder).eval(), ragged(4, 7)
    vectors = model.embedder(sequences)
    for sequence, vector in zip(sequences, vectors, strict=True):
        states = reference(input_ids=torch.tensor([sequence.ids])).last_hidden_state[0].mean(0)
        assert torch.allclose(vector, states / states.norm(), atol=1e-6)
    assert model.embedder.spec.head == "unit" and model.embedder.spec.projection == 16
    assert torch.allclose(model.embedder.embed_queries(sequences), INITIAL_UNIT_SCALE * vectors)
    assert model.encoder.spec.body.segments and not model.embedder.spec.body.segments
    model.save_pretrained(tmp_path / "ours")
    loaded = RealmModel.from_pretrained(tmp_path / "ours").eval()
    assert state_sha256(loaded) == state_sha256(model) and torch.equal(loaded.embedder.embed_queries(sequences), 20 * vectors)


def test_bert_keeps_its_head_for_masks(bert, published, ragged):
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
def test_the_recipes_dropout_reaches_published_bodies(bert, published, ragged, rate):
    model, sequences = start(bert, published, dropout=rate, attention_dropout=0.0).train(), ragged(3, 6)
    torch.manual_seed(0)
    assert torch.equal(model.embedder(sequences), model.embedder(sequences)) == (rate == 0.0)
    assert model.encoder.spec.body.config["hidden_dropout_prob"] == rate


def test_frozen_words_get_no_gradient_and_the_rest_does(bert, published, ragged):
    model = start(bert, published)
    freeze_words(model)
    model.embedder(ragged(3)).pow(3).sum().backward()
    table = model.embedder.body.model.get_input_embeddings().weight
    assert table.grad is None
    assert all(p.grad is not None for p in model.embedder.body.parameters() if p is not table)


def test_scores_are_float32_under_autocast():
    """Scores near 120 in bfloat16 are steps of .5: the best of a beam could not be told apart."""
    torch.manual_seed(0)
    query_emb, block_emb = torch.randn(2, 128), torch.randn(50, 128)
    exact = query_emb @ block_emb.T
    with torch.autocast("cpu", torch.bfloat16):
        assert (query_emb @ block_emb.T).dtype == torch.bfloat16
        both = losses.inner_products(query_emb, block_emb), losses.relevance_scores(query_emb, block_emb.expand(2, -1, -1))
    for scores in both:
        assert scores.dtype == torch.float32 and torch.allclose(scores, exact, atol=1e-4)


def test_the_null_document_starts_where_it_gets_a_gradient():
    """After ICT p(null) is 1e-7 and less; with its offset it is 1/k, and the offset's own gradient is not 0."""
    torch.manual_seed(0)
    scores = torch.randn(6, 8, dtype=torch.float64) * 3
    scores[:, 0] -= 20
    valid, null = torch.ones(6, 8, dtype=torch.bool), torch.zeros(6, 8, dtype=torch.bool)
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
    assert float(losses.even_null_offset(torch.tensor([[0.0, -math.inf, -math.inf]]))) == 0.0, "null has no company"
