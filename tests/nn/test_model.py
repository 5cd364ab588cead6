"""A model directory that other people can load, and refuses to be loaded when it is not whole."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from realm.data.types import Sequence
from realm.errors import RunError
from realm.nn.model import RealmModel, state_sha256
from realm.nn.spec import PARTS, BodySpec

Ragged = Callable[..., list[Sequence]]
Make = Callable[..., RealmModel]


def refused(directory: Path) -> RunError:
    """The error of loading ``directory``, checked to be one line."""
    with pytest.raises(RunError) as caught:
        RealmModel.from_pretrained(directory)
    assert "\n" not in str(caught.value) and str(directory) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "parts", [("embedder", "encoder"), ("embedder",), ("encoder",), ("embedder", "document_embedder", "reader"), ("reader",), PARTS, ()]
)
def test_round_trip_of_all_parts(bert: BodySpec, make_model: Make, tmp_path: Path, parts: tuple[str, ...]) -> None:
    model = make_model(bert, *parts) if parts else make_model(bert).with_parts(embedder=None, encoder=None)
    model.save_pretrained(tmp_path, card={"steps": 3})
    loaded = RealmModel.from_pretrained(str(tmp_path))
    assert loaded.spec == model.spec and loaded.spec.parts == parts
    assert state_sha256(loaded) == state_sha256(model)
    assert [name for name in PARTS if loaded.has(name)] == [name for name in PARTS if name in parts]
    card = (tmp_path / "README.md").read_text()
    assert "- steps: 3" in card and all(name in card for name in parts)
    assert json.loads((tmp_path / "config.json").read_text())["library"] == "realm"


def test_forked_embedder_survives_the_round_trip_apart(bert: BodySpec, make_model: Make, ragged: Ragged, tmp_path: Path) -> None:
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


def test_before_the_fork_one_embedder_serves_both_sides(bert: BodySpec, make_model: Make) -> None:
    model = make_model(bert)
    assert model.documents is model.embedder
    with pytest.raises(RunError, match="no embedder"):
        _ = model.with_parts(embedder=None).documents
    with pytest.raises(RunError, match="has no embedder"):
        model.with_parts(embedder=None).fork_document_embedder()
    with pytest.raises(RunError, match="no encoder"):
        model.with_parts(encoder=None).with_reader(0, span_hidden=12, max_span=4)


def test_parts_are_shared_and_the_reader_is_its_own(bert: BodySpec, make_model: Make) -> None:
    model = make_model(bert)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second, third = (model.with_reader(seed, span_hidden=12, max_span=4) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected), "the seed of the caller is not touched"
    assert first.embedder is model.embedder and not first.has("encoder") and first.spec.parts == ("embedder", "reader")
    assert state_sha256(first.reader) == state_sha256(second.reader) != state_sha256(third.reader)
    assert state_sha256(first.reader.body) == state_sha256(model.encoder.body)
    assert first.reader.body is not model.encoder.body
    assert model.spec.parts == ("embedder", "encoder")


def test_sha256_changes_with_any_bit(bert: BodySpec, make_model: Make) -> None:
    model = make_model(bert)
    seen = {state_sha256(model)}
    with torch.no_grad():
        for tensor in model.state_dict().values():
            bits = tensor.view(-1)[-1:].view(torch.int32)
            bits ^= 1
            seen.add(state_sha256(model))
    assert len(seen) == len(model.state_dict()) + 1
    assert state_sha256(make_model(bert)) not in seen - {state_sha256(make_model(bert))}


def test_sha256_knows_names_shapes_types_and_single_numbers() -> None:
    class Holder(torch.nn.Module):
        def __init__(self, name: str, value: torch.Tensor):
            super().__init__()
            self.register_buffer(name, value)

    values = [torch.zeros(4), torch.zeros(2, 2), torch.zeros(4, dtype=torch.int32), torch.tensor(0.0), torch.tensor(1.0)]
    values += [torch.zeros(4, dtype=torch.bfloat16), torch.tensor(0.0, dtype=torch.bfloat16), torch.zeros(0)]
    hashes = [state_sha256(Holder("a", v)) for v in values] + [state_sha256(Holder("b", values[0]))]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_truncated_weights(bert: BodySpec, make_model: Make, tmp_path: Path, size: int) -> None:
    make_model(bert).save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])
    error = refused(tmp_path)
    assert "weights cannot be read" in str(error) and error.path == weights and error.cure


def test_weights_that_do_not_fit(bert: BodySpec, make_model: Make, tmp_path: Path) -> None:
    make_model(bert).save_pretrained(tmp_path)
    make_model(bert, "embedder").save_pretrained(tmp_path / "other")
    wider = BodySpec({**bert.config, "intermediate_size": 64})
    make_model(wider).save_pretrained(tmp_path / "wider")
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    for other, problem in (("other", "missing tensors"), ("wider", "intermediate")):
        weights.write_bytes((tmp_path / other / "model.safetensors").read_bytes())
        assert problem in str(refused(tmp_path))
    (tmp_path / "other" / "model.safetensors").write_bytes(whole)
    assert "unknown tensors" in str(refused(tmp_path / "other"))
    weights.unlink()
    assert "weights cannot be read" in str(refused(tmp_path))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "no model here"),
        ("{", "not JSON"),
        ("[1]", "not a model's configuration"),
        ('{"format": 1}', "made by an earlier version of realm. Build it again."),
        ('{"hidden_size": 8}', "not a model's configuration"),
        ('{"format": 2, "embedder": 3}', "does not fit"),
        ('{"format": 2, "embedder": {}}', "does not fit"),
        ('{"format": 2, "embedder": {"body": 3}}', "does not fit"),
        ('{"format": 2, "encoder": {"body": {}, "more": 1}}', "does not fit"),
        ('{"format": 2, "encoder": {"body": {"config": {}}}}', "does not fit"),
        ('{"format": 2, "reader": {"body": {"config": {"model_type": "nothing"}}}}', "does not fit"),
        ('{"format": 2, "imagination": {"body": {"config": {}}}}', "does not fit"),
    ],
)
def test_foreign_configurations(bert: BodySpec, make_model: Make, tmp_path: Path, text: str | None, problem: str) -> None:
    make_model(bert).save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.unlink() if text is None else config.write_text(text)
    error = refused(tmp_path)
    assert problem in str(error) and error.path == config


def test_a_name_that_is_nowhere() -> None:
    with pytest.raises(RunError, match="no model at 'nobody/nothing-of-that-name'"):
        RealmModel.from_pretrained("nobody/nothing-of-that-name")


def test_the_same_model_gives_the_same_bytes(bert: BodySpec, make_model: Make, tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_model(bert).save_pretrained(tmp_path / name)
    for file in ("model.safetensors", "config.json", "README.md"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
