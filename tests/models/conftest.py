"""Small bodies of four families, and ragged inputs for them."""

import numpy as np
import pytest
import torch
from corpus_with_twins import corpus, featurizer, inputs, store  # noqa: F401

import realm.models.bodies.body
from realm.models.model import RealmModel
from realm.models.spec import BodySpec, bert_spec, one_body
from realm.models.types import Sequence

VOCABULARY = 60


def body_specs():
    """One tiny specification per family whose bodies differ in what this package reads of them: pooler, segments, layers."""
    shape = {"vocab_size": VOCABULARY, "hidden": 16, "layers": 2, "heads": 2, "intermediate": 32, "max_length": 64}
    bert = bert_spec(dropout=0.1, attention_dropout=0.0, **shape)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 32}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 2}
    positions = {"max_position_embeddings": 514, "pad_token_id": 1}
    xlm_roberta = {"model_type": "xlm-roberta", "type_vocab_size": 1, "layer_norm_eps": 1e-5, **positions, **sizes}
    special = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    attention = {"max_position_embeddings": 512, "global_attn_every_n_layers": 2, "local_attention": 8}
    modern = {"model_type": "modernbert", **attention, **special, **sizes}
    return {
        "bert": bert,
        "bert-cls": BodySpec(bert.config, pooling="cls", segments=False),
        "minilm": BodySpec({**bert.config, "hidden_act": "gelu", "type_vocab_size": 2}, pooling="mean"),
        "xlm-roberta": BodySpec(xlm_roberta, pooling="mean", segments=False),
        "xlm-roberta-cls": BodySpec(xlm_roberta, pooling="cls", segments=False),
        "modernbert": BodySpec(modern, pooling="mean", segments=False),
        "modernbert-cls": BodySpec(modern, pooling="cls", segments=False),
    }


FAMILIES = list(body_specs())


@pytest.fixture(params=FAMILIES)
def any_spec(request):
    return body_specs()[request.param]


@pytest.fixture
def specs():
    return body_specs()


@pytest.fixture
def bert():
    return body_specs()["bert"]


@pytest.fixture
def make_model():
    """A model with random weights of a fixed seed: make_model(body specification, part, ...)."""

    def make(body, *parts, head="projection"):
        torch.manual_seed(0)
        names = parts or ("embedder", "encoder")
        width = 8 if head == "projection" else int(body.config["hidden_size"])
        return RealmModel(one_body(body, projection=width, span_hidden=12, max_span=4, head=head, parts=names)).eval()

    return make


@pytest.fixture
def ragged():
    """n random inputs of many lengths: ragged(n, shortest, longest)."""

    def make(n, shortest=3, longest=40, seed=0):
        rng, sequences = np.random.default_rng(seed), []
        for _ in range(n):
            length = int(rng.integers(shortest, longest + 1))
            border = int(rng.integers(1, length))
            sequences.append(Sequence(rng.integers(5, VOCABULARY, length).tolist(), [0] * border + [1] * (length - border)))
        return sequences

    return make


@pytest.fixture(params=[4096, 70])
def buckets(request, monkeypatch):
    """All rows in one bucket, or many buckets of two or three rows."""
    monkeypatch.setattr(realm.models.bodies.body, "CPU_BUCKET_TOKENS", request.param)
    return int(request.param)
