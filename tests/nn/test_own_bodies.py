"""Each network has a body of its own: what stands beside it does not change it, and neither does a save."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from realm.data.types import Sequence
from realm.nn.model import RealmModel
from realm.nn.spec import PARTS, BodySpec, EmbedderSpec, EncoderSpec, ModelSpec, ReaderSpec, bert_spec

Ragged = Callable[..., list[Sequence]]
Make = Callable[..., RealmModel]


def outputs(model: RealmModel, sequences: list[Sequence]) -> dict[str, Tensor]:
    """What each network of a model says of the sequences."""
    masks = torch.tensor([[0, 2]]).expand(len(sequences), -1)
    ways: dict[str, Callable[[], Tensor]] = {
        "embedder": lambda: model.embedder(sequences),
        "document_embedder": lambda: model.document_embedder(sequences),
        "encoder": lambda: model.encoder.log_probs(sequences, masks),
        "reader": lambda: model.reader(sequences, [1] * len(sequences)).logits,
    }
    with torch.inference_mode():
        return {part: ways[part]() for part in model.eval().spec.parts}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for part, value in expected.items():
        gap = float((found[part] - value).abs().max())
        assert gap == 0, f"the {part} says something else: by {gap:.2f}"


def bert_of(hidden: int, layers: int, heads: int) -> BodySpec:
    sizes = {"vocab_size": 60, "hidden": hidden, "layers": layers, "heads": heads, "intermediate": 2 * hidden, "max_length": 64}
    return bert_spec(dropout=0.1, attention_dropout=0.0, **sizes)


def test_a_sentence_embedder_beside_a_bert_encoder_survives_a_save(
    bert: BodySpec, make_model: Make, ragged: Ragged, tmp_path: Path
) -> None:
    """Mean pooling, no segment ids and length 1 on one side; a pooler and segment ids on the other."""
    sentence = BodySpec(bert.config, pooling="mean", segments=False)
    model = make_model(sentence, "embedder", head="unit").with_parts(encoder=make_model(bert, "encoder").encoder)
    before = outputs(model, ragged(6))
    assert torch.allclose(before["embedder"].norm(dim=-1), torch.ones(6)) and before["embedder"].shape[1] == 16
    model.save_pretrained(tmp_path)
    loaded = RealmModel.from_pretrained(tmp_path)
    assert_same(outputs(loaded, ragged(6)), before)
    assert loaded.spec == model.spec
    read = loaded.with_reader(0, span_hidden=4, max_span=3)
    assert read.spec.reader == ReaderSpec(bert, 4, 3) and read.spec.embedder == model.spec.embedder


def test_widths_and_families_of_their_own(specs: dict[str, BodySpec], ragged: Ragged, tmp_path: Path) -> None:
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
    state = torch.get_rng_state()
    loaded = RealmModel.from_pretrained(tmp_path)
    assert loaded.spec == spec and torch.equal(torch.get_rng_state(), state), "weights that are loaded are not drawn first"
    assert_same(outputs(loaded, ragged(5)), before)
    for part in PARTS:
        model.with_parts(**{other: None for other in PARTS if other != part}).save_pretrained(tmp_path / part)
        assert_same(outputs(RealmModel.from_pretrained(tmp_path / part), ragged(5)), {part: before[part]})
