"""Models in 8 bits: what comes back, what it weighs, what is refused."""

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from realm.errors import RunError
from realm.models.bodies.known import WEIGHTS
from realm.models.model import RealmModel
from realm.models.runtime.weights import SafetensorWeights, rounded
from realm.models.spec import BodySpec, one_body, spec_to_json
from realm.storage.files import write_json
from tests.shared.small import write_rounded


@pytest.fixture
def trained(bert):
    """Embedder and reader that share their words, as a reader taught with frozen words does."""
    torch.manual_seed(1)
    model = RealmModel(one_body(BodySpec(bert.config, pooling="mean"), projection=8, dropout=0.0, null_offset=True))
    model = model.with_reader(3, span_hidden=8, max_span=4, pointer=True)
    words = model.embedder.body.model.embeddings.word_embeddings.weight
    model.reader.body.model.embeddings.word_embeddings.weight = torch.nn.Parameter(words.detach().clone())
    return model


def shipped(model, out):
    out.mkdir(exist_ok=True)
    write_json(out / "config.json", spec_to_json(model.spec))
    write_rounded(model.state_dict(), out / WEIGHTS)
    return out


def test_rounding_is_within_half_a_step_of_each_row():
    values = torch.randn(7, 10) * torch.logspace(-3, 3, 7).unsqueeze(1)
    values[3] = 0
    whole, scales = map(torch.from_numpy, rounded(values.numpy()))
    back = whole.float() * (scale := scales[:, None])
    assert whole.dtype == torch.int8
    assert ((back - values).abs() <= scale * 0.5001).all() and not back[3].any()
    assert torch.allclose(back.abs().amax(1), values.abs().amax(1), rtol=1e-5)


def test_what_was_shipped_comes_back_and_equal_matrices_are_stored_once(trained, tmp_path):
    directory = shipped(trained, tmp_path / "shipped")
    back = RealmModel.from_pretrained(directory)
    assert back.spec.parts == trained.spec.parts == ("embedder", "reader") and back.reader.spec.pointer
    stored = load_file(directory / WEIGHTS)
    assert len([name for name in stored if name.endswith("word_embeddings.weight")]) == 1
    assert stored["embedder.null_offset"].shape == ()
    for (name, before), after in zip(trained.state_dict().items(), back.state_dict().values(), strict=True):
        allowed = before.abs().amax(1, keepdim=True) / 127 * 0.5001 + 1e-7 if before.dim() == 2 else torch.zeros(())
        assert ((before - after).abs() <= allowed).all(), name
    assert (shipped(trained, tmp_path / "again") / WEIGHTS).read_bytes() == (directory / WEIGHTS).read_bytes(), "bit for bit"


def test_rows_are_those_of_the_whole_table_though_the_file_was_removed_since(trained, tmp_path):
    weights, ids = SafetensorWeights(shipped(trained, tmp_path / "shipped") / WEIGHTS), np.array([[3, 0], [3, 9]])
    name = "embedder.body.model.embeddings.word_embeddings.weight"
    weights.path.unlink()
    np.testing.assert_array_equal(weights.rows(name, ids), weights.array(name)[ids])


def test_a_lost_scale_and_a_cut_file_are_refused(trained, tmp_path):
    path = shipped(trained, tmp_path / "shipped") / WEIGHTS
    with safe_open(path, framework="pt") as file:
        facts = file.metadata()
    save_file({name: v for name, v in load_file(path).items() if ":" not in name}, path, metadata=facts)
    with pytest.raises(RunError, match=r"model.safetensors: the tensor .* has no scale"):
        RealmModel.from_pretrained(path.parent)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RunError, match=r"model.safetensors: the weights cannot be read"):
        RealmModel.from_pretrained(path.parent)
