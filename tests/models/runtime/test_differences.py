"""A model from a published body and the difference that ships: the sum, in the vocabulary of the blocks, read by torch and without it."""

import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from realm.cli import main
from realm.errors import ConfigError
from realm.models.bodies import known as known_bodies
from realm.models.bodies.known import WEIGHTS, KnownBody
from realm.models.model import RealmModel
from realm.models.runtime import differences
from realm.models.runtime.differences import DIFFERENCE, get_model, rows_of, summed, write_sum
from realm.models.runtime.model import runtime_model
from realm.models.runtime.weights import SafetensorWeights
from realm.models.types import Sequence
from realm.storage.files import sha256_file
from realm.text.tokenizer import RELEASED, TextTokenizer
from tests.shared.small import write_rounded

CONFIG = {
    "model_type": "mpnet", "vocab_size": 30527, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 514, "pad_token_id": 1, "layer_norm_eps": 1e-5,
}  # fmt: skip
ROLES = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[UNK]": "<unk>", "[MASK]": "<mask>"}
QUERY = "encoder.layer.0.attention.attn.q"


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A body with a vocabulary in another order, and a difference to it."""
    from transformers import AutoConfig, AutoModel

    base, shipped = (tmp_path_factory.mktemp(name) for name in ("base", "shipped"))
    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.for_model(**CONFIG)).save_pretrained(base)
    described = json.loads((RELEASED / "tokenizer.json").read_text("utf-8"))
    words = [word for word in sorted(described["model"]["vocab"], reverse=True) if word not in ROLES]
    described["model"] |= {"vocab": {word: at for at, word in enumerate([*ROLES.values(), *words])}, "unk_token": "<unk>"}
    described |= {"added_tokens": [], "post_processor": None}
    TextTokenizer(Tokenizer.from_str(json.dumps(described))).save(base)
    change = {f"body.model.{QUERY}.down": torch.randn(2, 24), f"body.model.{QUERY}.up": torch.randn(24, 2)}
    change |= {f"body.model.{QUERY}.base.bias": torch.randn(24), "dense.weight": torch.randn(2, 24), "dense.bias": torch.zeros(2)}
    write_rounded(change, shipped / DIFFERENCE)
    spec = json.loads((RELEASED / "config.json").read_text("utf-8"))
    spec["reader"]["body"] = {"config": {**CONFIG, "vocab_size": 30522}, "pooling": "cls", "segments": False}
    (shipped / "config.json").write_text(json.dumps(spec))
    return base, shipped


@pytest.fixture
def made(parts, tmp_path, monkeypatch):
    known = KnownBody("small-sum", "", "", sha256_file(parts[1] / DIFFERENCE), "", 24, 1, 1, "English", base="small-base")
    monkeypatch.setattr(KnownBody, "shipped", parts[1])
    monkeypatch.setattr(known_bodies, "_BY_NAME", {"small-sum": known})
    monkeypatch.setattr(differences, "get_body", lambda name: parts[0])
    monkeypatch.setattr(known_bodies, "models_directory", lambda: tmp_path)
    return get_model("small-sum")


def test_the_sum_is_the_matrix_and_its_product_word_for_word(parts):
    base, shipped = parts
    whole, change = SafetensorWeights(base / WEIGHTS), SafetensorWeights(shipped / DIFFERENCE)
    found = summed(whole, change, rows_of(base))
    product = change.array(f"body.model.{QUERY}.up") @ change.array(f"body.model.{QUERY}.down")
    assert np.array_equal(found[f"body.model.{QUERY}.weight"], whole.array(f"{QUERY}.weight") + product)
    assert np.array_equal(found[f"body.model.{QUERY}.bias"], change.array(f"body.model.{QUERY}.base.bias"))
    theirs, ours = TextTokenizer.load(base), TextTokenizer.load(RELEASED)
    table, own = found["body.model.embeddings.word_embeddings.weight"], whole.array("embeddings.word_embeddings.weight")
    for text in ("Who replaced the boiler?", "naïve 東京"):
        assert np.array_equal(table[ours.encode([text])[0]], own[theirs.encode([text])[0]])
    assert np.array_equal(table[ours.special.cls], own[theirs.special.cls]) and np.array_equal(table[ours.special.mask], own[4])


def test_it_reads_as_by_torch_and_keeps_the_embedder(made, monkeypatch):
    monkeypatch.setattr(differences, "write_sum", None)
    assert get_model("small-sum") == made, "what is made is not made again"
    assert made.name == f"small-sum-{known_bodies.known_body('small-sum').sha256[:8]}", "unless its digest is another"
    model = runtime_model(made, eight_bit=False)
    assert model.documents_sha256() == runtime_model(RELEASED).documents_sha256(), "one index serves both"
    sequence = Sequence(ids := [101, *range(2000, 2008), 102, *range(3000, 3020), 102], [0] * len(ids))
    with torch.inference_mode():
        expected = RealmModel.from_pretrained(made).eval().reader([sequence], [10])
    found = model.reading().read([sequence], [10])
    assert np.allclose(found.scores[found.valid], expected.logits.numpy()[found.valid], atol=1e-4)
    assert np.std(found.scores[found.valid]) > 0.1


def test_nothing_is_left_of_a_damaged_difference(made, tmp_path, monkeypatch):
    made.rename(tmp_path / "other")
    (tmp_path / DIFFERENCE).write_bytes(b"cut short")
    monkeypatch.setattr(KnownBody, "shipped", tmp_path)
    with pytest.raises(ConfigError, match="not the published ones"):
        get_model("small-sum")
    assert not list(tmp_path.glob("small-sum*"))


def test_it_answers_over_the_shipped_index_and_one_that_is_not_here_is_one_line(parts, tmp_path, capsys):
    (tmp_path / "note.txt").write_text("The boiler was replaced by Ada in March.")
    (tmp_path / "sum").mkdir()
    write_sum(*parts, tmp_path / "sum")
    assert main(["ask", str(tmp_path / "note.txt"), "Who replaced the boiler?", "--reader", str(tmp_path / "sum")]) == 0
    for name, cure in (("minilm-l12", "Download sentence-transformers/"), (str(tmp_path), "that save_pretrained wrote")):
        assert main(["ask", str(tmp_path / "note.txt"), "Who replaced the boiler?", "--reader", name]) == 2
        assert (error := capsys.readouterr().err.splitlines()[-1]).startswith("error: ") and cure in error
