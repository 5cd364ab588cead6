"""Embedder and reader without torch against torch's: the same numbers in float32, near ones in 8 bits."""

import threading

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from realm.errors import MissingExtra, RunError
from realm.models.bodies.body import build_body
from realm.models.embedder import Embedder
from realm.models.reader import Reader
from realm.models.runtime.body import RuntimeBody
from realm.models.runtime.networks import RuntimeEmbedder, RuntimeReader
from realm.models.runtime.weights import SafetensorWeights
from realm.models.spec import BodySpec, EmbedderSpec, ReaderSpec
from realm.models.types import Sequence

SIZES = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
BERT = {"model_type": "bert", "max_position_embeddings": 64, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0, **SIZES}
OFFSET = {"max_position_embeddings": 70, "layer_norm_eps": 1e-5, "pad_token_id": 1, **SIZES}
ROBERTA = {"model_type": "xlm-roberta", "type_vocab_size": 1, **OFFSET}
MPNET = {"model_type": "mpnet", "relative_attention_num_buckets": 32, **OFFSET}
BODIES = {
    "bert": BodySpec(BERT, "mean"),
    "bert, tanh": BodySpec(BERT | {"hidden_act": "gelu_pytorch_tanh"}, "mean"),
    "bert, pooler": BodySpec(BERT, "pooler"),
    "bert, cls, no segments": BodySpec(BERT, "cls", segments=False),
    "xlm-roberta": BodySpec(ROBERTA, "mean", segments=False), "mpnet": BodySpec(MPNET, "mean", segments=False),
}  # fmt: skip
HEADS = {
    "projection": {"head": "projection", "projection": 8},
    "none": {"head": "none", "projection": 32},
    "unit": {"head": "unit", "projection": 32, "scale": 20.0, "null_offset": True},
    "unit, narrow": {"head": "unit", "projection": 12, "scale": 5.0},
}


def ragged(starts=(3, 9, 2, 20)):
    rng, lengths = np.random.default_rng(3), (12, 40, 5, 33)
    ids = [[2, *rng.integers(5, 60, length - 2).tolist(), 3] for length in lengths]
    return [Sequence(one, [0] * s + [1] * (len(one) - s)) for one, s in zip(ids, starts, strict=True)], list(starts)


def saved(network, path, far=0):
    """Its weights as a file, blown up so that every part of the computation shows; a channel inside each layer stands ``far`` from 0."""
    with torch.no_grad():
        for name, value in network.named_parameters():
            if value.dim() and "norm" not in name.lower():
                value.copy_(torch.randn(value.shape, generator=torch.Generator().manual_seed(len(name))) * 0.1)
            if "encoder.layer" in name and name.endswith((".LayerNorm.bias", ".dense.bias")) and ("attention" in name) == ("Norm" in name):
                value[3] += far if "attention" in name else -far * ("output" in name)
    save_file({f"part.{name}": value.contiguous() for name, value in network.state_dict().items()}, path)
    return SafetensorWeights(path, "part.")


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", BODIES)
def test_an_embedder_gives_torchs_vectors(tmp_path, name, head):
    spec = EmbedderSpec(BODIES[name], **HEADS[head])
    network = Embedder(build_body(spec.body, pooler=True), spec).eval()
    weights, (sequences, _) = saved(network, tmp_path / "w.safetensors"), ragged()
    runtime = RuntimeEmbedder(weights, spec, eight_bit=False, threads=1)
    with torch.inference_mode():
        np.testing.assert_allclose(runtime.embed_blocks(sequences), network(sequences), atol=1e-5)
        np.testing.assert_allclose(runtime.embed_questions(sequences), network.embed_queries(sequences), atol=5e-5)


@pytest.mark.parametrize("span_hidden", [0, 6])
@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_a_reader_gives_torchs_scores(tmp_path, name, span_hidden):
    spec = ReaderSpec(BODIES[name], span_hidden=span_hidden, max_span=5)
    network = Reader(build_body(spec.body, pooler=False), spec).eval()
    weights, (sequences, starts) = saved(network, tmp_path / "w.safetensors"), ragged()
    found = RuntimeReader(weights, spec, eight_bit=False, threads=1).read(sequences, starts)
    with torch.inference_mode():
        expected = network(sequences, starts)
    assert np.array_equal(found.valid, expected.valid.numpy())
    np.testing.assert_allclose(found.scores[found.valid], expected.logits.numpy()[found.valid], atol=2e-5)
    np.testing.assert_allclose(found.not_here, expected.not_here, atol=2e-5)


@pytest.mark.parametrize("far", [0, 300])
@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_eight_bits_are_near(tmp_path, name, far):
    spec = EmbedderSpec(BODIES[name], head="unit", projection=32)
    weights, (sequences, _) = saved(Embedder(build_body(spec.body, pooler=False), spec), tmp_path / "w.safetensors", far), ragged()
    networks = [RuntimeEmbedder(weights, spec, eight_bit=bits, threads=1) for bits in (False, True)]
    exact, rough = (network.embed_blocks(sequences) for network in networks)
    assert ((exact * rough).sum(-1) > 0.99995).all() and not np.array_equal(exact, rough)
    assert not any("_arrays" in vars(network.body) for network in networks), "the session alone holds weights"


def test_two_inputs_at_once_are_as_one_after_the_other(tmp_path, monkeypatch):
    spec = EmbedderSpec(BODIES["bert"], head="unit", projection=32)
    weights = saved(Embedder(build_body(spec.body, pooler=False), spec), tmp_path / "w.safetensors")
    sequences = [Sequence(list(range(5, 5 + length)), [0] * length) for length in (9, 4)]
    alone = RuntimeEmbedder(weights, spec, eight_bit=True, threads=1).embed_blocks(sequences)
    both, states = threading.Barrier(2, timeout=60), RuntimeBody.states

    def meeting(body, inputs):
        both.wait()
        return states(body, inputs)

    monkeypatch.setattr(RuntimeBody, "states", meeting)
    assert np.array_equal(RuntimeEmbedder(weights, spec, eight_bit=True, threads=2).embed_blocks(sequences), alone)


def test_what_runs_elsewhere_is_said_in_one_line(tmp_path):
    (tmp_path / "w").write_bytes(b"no tensors")
    with pytest.raises(RunError, match="cannot be read"):
        SafetensorWeights(tmp_path / "w")
    save_file({"a": torch.zeros(1)}, tmp_path / "w")
    with pytest.raises(RunError, match="b is missing"):
        SafetensorWeights(tmp_path / "w").array("b")
    with pytest.raises(MissingExtra, match=r"modernbert.*\[train\]"):
        RuntimeBody(SafetensorWeights(tmp_path / "w"), {"model_type": "modernbert"}, segments=False, eight_bit=False)
