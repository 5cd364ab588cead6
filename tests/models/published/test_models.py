"""Published names and ours: the exact list of every class, both ways, and every tensor of a file accounted for."""

import pytest
import torch
from published_names import body, published_names, values_of

from realm.errors import ConfigError, DataError
from realm.models.model import RealmModel
from realm.models.networks import parameter_shapes
from realm.models.published.names import PUBLISHED_PARTS, import_tensors, plan_import, published_kind, read_published_config

CONFIG = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37,
    "max_position_embeddings": 64, "retriever_proj_size": 16, "span_hidden_size": 8, "max_span_width": 3, "pad_token_id": 1,
}  # fmt: skip
COUNTS = {"embedder": 50, "scorer": 100, "encoder": 46, "reader": 52, "openqa": 103}
"""Tensors in a state dictionary of transformers 4.40.2 with two layers."""


NAMES = published_names(words=64, layers=2, blocks=5)


def shapes_of(tensors):
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def spec_of(kind, **changes):
    return read_published_config({**CONFIG, **changes}, kind)


@pytest.mark.parametrize("kind", COUNTS)
def test_the_lists_written_out_here_are_those_of_the_published_classes(kind):
    assert len(NAMES[kind]) == COUNTS[kind]


@pytest.mark.parametrize("kind", PUBLISHED_PARTS)
def test_shapes_without_a_model_are_those_of_the_model(kind):
    spec = spec_of(kind)
    assert parameter_shapes(spec) == shapes_of(RealmModel(spec).state_dict())


@pytest.mark.parametrize("kind", PUBLISHED_PARTS)
def test_every_tensor_is_taken_or_named(kind):
    names = NAMES[kind]
    assert published_kind(names) == kind
    plan = plan_import(kind, spec_of(kind), names)
    accounted = [*set(plan.taken.values()), *plan.repeats, *plan.unused]
    assert sorted(accounted) == sorted(names)
    assert {*plan.taken, *plan.fresh} == set(parameter_shapes(spec_of(kind)))
    assert not any("attention" in name or "cls.dense" in name or "qa_outputs" in name for name in plan.unused)
    assert all(plan.unused.values())
    expected_fresh = {"embedder.dense.weight", "embedder.dense.bias", "embedder.norm.weight", "embedder.norm.bias"}
    assert set(plan.fresh) == (expected_fresh if kind == "bert" else set())
    assert ("block_emb" in plan.unused) == (kind == "openqa")


def test_the_scorer_s_two_embedders_go_to_their_sides():
    tensors = values_of(NAMES["scorer"])
    state = import_tensors(plan_import("scorer", spec_of("scorer"), shapes_of(tensors)), tensors.__getitem__)
    assert torch.equal(state["embedder.dense.weight"], tensors["query_embedder.cls.dense.weight"])
    assert torch.equal(state["document_embedder.dense.weight"], tensors["embedder.cls.dense.weight"])


@pytest.mark.parametrize("kind", PUBLISHED_PARTS)
def test_each_missing_tensor_is_named(kind):
    names = NAMES[kind]
    plan = plan_import(kind, spec_of(kind), names)
    for name in [*plan.taken.values()]:
        left = {n: s for n, s in names.items() if n != name}
        twin = [n for n, original in plan.repeats.items() if original == name]
        if twin and kind == "encoder":
            assert plan_import(kind, spec_of(kind), left).taken  # the tied tensor stands in for it
        left = {n: s for n, s in left.items() if n not in twin}
        with pytest.raises(DataError, match=f"{name} is missing"):
            plan_import(kind, spec_of(kind), left)


@pytest.mark.parametrize("kind", PUBLISHED_PARTS)
def test_each_wrong_shape_is_named(kind):
    names = NAMES[kind]
    plan = plan_import(kind, spec_of(kind), names)
    for name in plan.taken.values():
        with pytest.raises(DataError, match=rf"{name} has the shape"):
            plan_import(kind, spec_of(kind), {**names, name: (*names[name][:-1], names[name][-1] + 1)})


def test_names_of_tensors_old_unknown_and_of_another_model():
    tensors = values_of(NAMES["bert"])
    old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t for n, t in tensors.items()}
    state = import_tensors(plan_import("bert", spec_of("bert"), shapes_of(old)), old.__getitem__)
    name = "encoder.body.model.embeddings.LayerNorm.weight"
    assert torch.equal(state[name], tensors["bert.embeddings.LayerNorm.weight"])
    names = {**NAMES["encoder"], "realm.embeddings.position_ids": (1, 64), "adapter.down.weight": (4, 32)}
    unused = plan_import("encoder", spec_of("encoder"), names).unused
    assert {"realm.embeddings.position_ids", "adapter.down.weight", "realm.pooler.dense.weight"} <= set(unused)
    with pytest.raises(DataError, match="no REALM or BERT"):
        published_kind(["decoder.layers.0.weight", "embed.weight"])


@pytest.mark.parametrize("root", ["", "bert."])
def test_a_bert_without_a_head_leaves_the_head_fresh(root):
    names = body(root, 64, 2)
    assert published_kind(names) == "bert"
    plan = plan_import("bert", spec_of("bert"), names)
    assert {n for n in plan.fresh if n.startswith("encoder.")} == {n for n in parameter_shapes(spec_of("bert")) if "head." in n}
    assert not plan.unused


def test_tied_tensors_that_differ_are_refused():
    tensors = values_of(NAMES["encoder"])
    plan = plan_import("encoder", spec_of("encoder"), shapes_of(tensors))
    tensors["cls.predictions.decoder.weight"][3, 4] += 1
    with pytest.raises(DataError, match=r"decoder.weight and realm.embeddings.word_embeddings.weight differ"):
        import_tensors(plan, tensors.__getitem__)


@pytest.mark.parametrize("damage", [float("nan"), float("inf"), None])
def test_tensors_that_hold_no_finite_numbers_are_refused(damage):
    tensors = values_of(NAMES["embedder"])
    plan, name = plan_import("embedder", spec_of("embedder"), shapes_of(tensors)), "cls.dense.weight"
    tensors[name] = tensors[name].long() if damage is None else tensors[name].index_fill(0, torch.tensor([2]), damage)
    with pytest.raises(DataError, match=f"{name} holds no finite numbers"):
        import_tensors(plan, tensors.__getitem__)


def test_values_of_the_configuration_arrive():
    spec = spec_of("openqa", reader_layer_norm_eps=0.002, hidden_act="gelu")
    assert spec.parts == ("embedder", "reader") and spec.embedder is not None and spec.reader is not None
    assert spec.reader.layer_norm_eps == 0.002 and spec.embedder.body.config["pad_token_id"] == 0
    assert (spec.embedder.projection, spec.reader.span_hidden, spec.reader.max_span) == (16, 8, 3)


@pytest.mark.parametrize(("changes", "message"), [
    ({"hidden_size": 10**12}, "hidden_size = 1000000000000"), ({"num_hidden_layers": 0}, "num_hidden_layers = 0"),
    ({"vocab_size": "30522"}, "vocab_size = '30522'"), ({"intermediate_size": True}, "intermediate_size = True"),
    ({"num_attention_heads": 5}, "not a multiple of num_attention_heads"),
    ({"hidden_dropout_prob": 1.5}, "hidden_dropout_prob = 1.5"),
    ({"layer_norm_eps": "small"}, "layer_norm_eps = 'small'"),
    ({"position_embedding_type": "relative_key"}, "relative_key"), ({"hidden_act": "quick_thing"}, "quick_thing"),
    ({"retriever_proj_size": -1}, "retriever_proj_size = -1"),
])  # fmt: skip
def test_bad_configurations_are_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=message):
        spec_of("openqa", **changes)
