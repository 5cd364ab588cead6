"""Networks as what they differ by from a published body: what comes back, what it weighs, what is refused."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from realm.errors import ConfigError, RunError
from realm.models.bodies.known import DIFFERENCE
from realm.models.differences import rounded, write_difference
from realm.models.model import RealmModel, start_from_body
from realm.models.runtime.weights import unpacked
from realm.models.spec import BodySpec, one_body, spec_to_json
from realm.storage.files import write_json


@pytest.fixture
def published(bert, tmp_path):
    """The weights of a BERT without heads, as sentence embedders have them."""
    from transformers import AutoConfig, BertModel

    values = dict(bert.config)
    torch.manual_seed(1)
    BertModel(AutoConfig.for_model(values.pop("model_type"), **values), add_pooling_layer=False).save_pretrained(tmp_path / "published")
    return tmp_path / "published"


@pytest.fixture
def trained(bert, published):
    """Embedder and reader from that body, their layers changed as training would, the words as they were."""
    wanted = one_body(BodySpec(bert.config, pooling="mean"), projection=8, dropout=0.0, null_offset=True)
    model = start_from_body(wanted, published, dropout=0.0, attention_dropout=0.0).with_reader(3, span_hidden=8, max_span=4, pointer=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "word_embeddings" not in name:
                parameter += 0.01 * torch.randn_like(parameter)
    return model


def shipped(model, base, out, **bits):
    out.mkdir(exist_ok=True)
    write_json(out / "config.json", spec_to_json(model.spec))
    write_difference(model.state_dict(), str(base), out, {"embedder": 8, "reader": 8, **bits})
    return out


@pytest.mark.parametrize("bits", [8, 4])
def test_rounding_is_within_half_a_step_of_each_row(bits):
    values = torch.randn(7, 10) * torch.logspace(-3, 3, 7).unsqueeze(1)
    values[3] = 0
    whole, scale = rounded(values, bits)
    assert whole.shape == (7, 10 * bits // 8) and whole.element_size() == 1
    back = torch.from_numpy(unpacked(whole.numpy())) * scale
    assert ((back - values).abs() <= scale * 0.5001).all() and not back[3].any()
    assert torch.allclose(back.abs().amax(1), values.abs().amax(1), rtol=1e-5)


def test_what_was_shipped_comes_back_from_a_third_of_the_weights(trained, published, tmp_path):
    directory = shipped(trained, published, tmp_path / "shipped", embedder=4)
    back = RealmModel.from_pretrained(directory)
    assert back.spec.parts == trained.spec.parts == ("embedder", "reader") and back.reader.spec.pointer
    stored = load_file(directory / DIFFERENCE)
    assert not any("word_embeddings" in name for name in stored), "what is the body's own is not stored"
    scales = {name.removesuffix(":scale"): value for name, value in stored.items() if name.endswith(":scale")}
    assert scales and {stored[name].dtype for name in scales if name.startswith("embedder")} == {torch.uint8}
    for (name, before), after in zip(trained.state_dict().items(), back.state_dict().values(), strict=True):
        allowed = scales[name] * 0.5001 + 1e-7 if name in scales else torch.zeros(())
        assert ((before - after).abs() <= allowed).all(), name
    again = shipped(trained, published, tmp_path / "again", embedder=4)
    assert (again / DIFFERENCE).read_bytes() == (directory / DIFFERENCE).read_bytes(), "bit for bit"
    trained.save_pretrained(tmp_path / "whole")
    matrices = sum(v.numel() for name, v in trained.state_dict().items() if v.dim() == 2 and "word_embeddings" not in name)
    stored = sum(v.numel() for v in load_file(shipped(trained, published, tmp_path / "d") / DIFFERENCE).values() if v.dtype == torch.int8)
    assert 0.8 * matrices < stored <= matrices


def test_other_weights_or_a_damaged_file_are_refused(trained, published, tmp_path):
    directory = shipped(trained, published, tmp_path / "shipped")
    good = (directory / DIFFERENCE).read_bytes()
    with safe_open(directory / DIFFERENCE, framework="pt") as file:
        facts = file.metadata()
    save_file({name: v for name, v in load_file(directory / DIFFERENCE).items() if ":" not in name}, directory / DIFFERENCE, metadata=facts)
    with pytest.raises(RunError, match=r"difference.safetensors: the tensor .* has no scale"):
        RealmModel.from_pretrained(directory)
    (directory / DIFFERENCE).write_bytes(good)
    weights = load_file(published / "model.safetensors")
    first = next(iter(weights))
    save_file({**weights, first: weights[first] + 1}, published / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"model.safetensors: the weights are not the published ones"):
        RealmModel.from_pretrained(directory)
    (published / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="the body has no weights"):
        RealmModel.from_pretrained(directory)
    (directory / DIFFERENCE).write_bytes((directory / DIFFERENCE).read_bytes()[:100])
    with pytest.raises(RunError, match=r"difference.safetensors: the weights cannot be read"):
        RealmModel.from_pretrained(directory)
