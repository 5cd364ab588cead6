"""Each network has a body of its own: what stands beside it does not change it, and neither does a save."""

from collections.abc import Callable
from pathlib import Path

import torch

from realm.data.types import Sequence
from realm.nn.model import RealmModel
from realm.nn.spec import BodySpec

Ragged = Callable[..., list[Sequence]]
Make = Callable[..., RealmModel]


def log_probs(model: RealmModel, sequences: list[Sequence]) -> torch.Tensor:
    """What the encoder says of two masks of each sequence."""
    with torch.inference_mode():
        return model.encoder.log_probs(sequences, torch.tensor([[0, 2]]).expand(len(sequences), -1))


def test_a_sentence_embedder_beside_a_bert_encoder_survives_a_save(
    bert: BodySpec, make_model: Make, ragged: Ragged, tmp_path: Path
) -> None:
    sentence = BodySpec(bert.config, pooling="mean", segments=False)
    model = make_model(sentence, "embedder", head="unit").with_parts(encoder=make_model(bert, "encoder").encoder).eval()
    model.save_pretrained(tmp_path)
    loaded = RealmModel.from_pretrained(tmp_path).eval()
    sequences = ragged(6)
    with torch.inference_mode():
        vectors = model.embedder(sequences)
        assert torch.equal(loaded.embedder(sequences), vectors)
    assert torch.allclose(vectors.norm(dim=-1), torch.ones(6)) and vectors.shape[1] == 16
    gap = float((log_probs(loaded, sequences) - log_probs(model, sequences)).abs().max())
    assert gap == 0, f"log-probabilities moved by {gap:.2f}"
