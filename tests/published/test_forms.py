"""Forms beside the Hugging Face directories: sentence-transformers, TensorFlow originals, the hub, ONNX."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from realm import Realm, RealmModel
from realm.data.featurize import Featurizer
from realm.errors import DataError, MissingExtra
from realm.nn import tensor_files
from realm.nn.model import state_sha256
from realm.nn.published import models as published_models
from realm.nn.published.models import load_published
from realm.nn.published.tf import published_name
from realm.opening import open_run
from realm.pipeline.importing import import_published
from realm.text.tokenizer import read_vocabulary

from .conftest import CONFIG, KINDS, RECORDS, VOCABULARY, Publish, tensors_of

BODY = {key: value for key, value in CONFIG.items() if not key.startswith(("retriever", "span", "max_span", "model_type"))}


@pytest.fixture
def sentence_model(tmp_path: Path) -> Callable[..., Path]:
    """Writes a sentence-transformers directory of any family in small."""

    def write(family: str, pooling: str = "pooling_mode_mean_tokens", *more: str) -> Path:
        from transformers import AutoConfig, AutoModel

        directory = tmp_path / family
        config = AutoConfig.for_model(family, **{**BODY, "vocab_size": len(VOCABULARY) + 3})
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(directory)
        (directory / "1_Pooling").mkdir()
        (directory / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, pooling: True}))
        kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), *((kind, f"2_{kind}") for kind in more)]
        modules = [{"idx": n, "path": path, "type": f"sentence_transformers.models.{kind}"} for n, (kind, path) in enumerate(kinds)]
        (directory / "modules.json").write_text(json.dumps(modules))
        (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        return directory

    return write


@pytest.mark.parametrize("family", ["bert", "mpnet"])
@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
def test_a_sentence_embedder(sentence_model: Callable[..., Path], family: str, pooling: str) -> None:
    """The same vectors as transformers' own model with the pooling written out."""
    from transformers import AutoModel

    directory = sentence_model(family, f"pooling_mode_{pooling}", "Normalize")
    found = load_published(directory)
    embedder = RealmModel.from_published(found).embedder
    reference = AutoModel.from_pretrained(directory).eval()
    ids = found.tokenizer.encode(["the pound", "who is alan turing ?"])
    special = found.tokenizer.special
    sequences = [Featurizer(special.cls, special.sep, special.mask, special.pad).query(one) for one in ids]
    with torch.inference_mode():
        ours = embedder(sequences)
        for row, sequence in enumerate(sequences):
            states = reference(input_ids=torch.tensor([sequence.ids])).last_hidden_state[0]
            vector = states.mean(0) if pooling == "mean_tokens" else states[0]
            assert torch.allclose(ours[row], vector / vector.norm(), atol=1e-5)
    # What the body does not read is named.
    assert set(found.unused) == {"pooler.dense.weight", "pooler.dense.bias"}


def test_a_sentence_embedder_searches(sentence_model: Callable[..., Path], tmp_path: Path) -> None:
    documents = tmp_path / "docs.jsonl"
    documents.write_text("".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(RECORDS[:3])))
    import_published([sentence_model("bert")], tmp_path / "run", documents=[documents])
    assert len(Realm.open(tmp_path / "run").search("pound", k=2)) == 2


def test_other_sentence_models_are_refused(sentence_model: Callable[..., Path]) -> None:
    directory = sentence_model("bert", "pooling_mode_max_tokens")
    with pytest.raises(DataError, match="the pooling pooling_mode_max_tokens is neither mean nor"):
        load_published(directory)
    modules = directory / "modules.json"
    for text, problem in [("{}", "not a list"), ("[]", "the modules none"), ('[{"type": "a.Transformer"}, {"type": "b.Dense"}]', "Dense")]:
        modules.write_text(text)
        with pytest.raises(DataError, match=problem):
            load_published(directory)


class FakeReader:
    """What TensorFlow's checkpoint reader answers."""

    def __init__(self, variables: dict[str, np.ndarray]):
        self.variables = variables

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        return {name: list(value.shape) for name, value in self.variables.items()}

    def get_tensor(self, name: str) -> np.ndarray:
        return self.variables[name]


def in_tensorflow(tensors: dict[str, torch.Tensor], roots: dict[str, str]) -> dict[str, np.ndarray]:
    """Published PyTorch tensors under TensorFlow's names, written out apart from the code under test."""
    variables: dict[str, np.ndarray] = {"global_step": np.array(7)}
    for name, tensor in tensors.items():
        if "decoder" in name:
            continue  # TensorFlow ties it
        root = next(old for old in sorted(roots, key=len, reverse=True) if name.startswith(old))
        path = (roots[root] + name.removeprefix(root)).replace("layer.0", "layer_0").replace(".", "/")
        value = tensor.numpy()
        path = path.replace("LayerNorm/weight", "LayerNorm/gamma").replace("LayerNorm/bias", "LayerNorm/beta")
        path = path.replace("layer_normalization/weight", "layer_normalization/gamma").replace("normalization/bias", "normalization/beta")
        path = path.replace("predictions/bias", "predictions/output_bias").replace("_embeddings/weight", "_embeddings")
        if path.endswith("/weight"):
            path, value = path.removesuffix("weight") + "kernel", value.T
        variables[path] = value
        variables[f"{path}/adam_m"] = np.zeros_like(value)
    return variables


TF_ROOTS = {
    "embedder": {
        "realm.": "module/module/module/bert/",
        "cls.predictions.": "module/module/module/cls/predictions/",
        "cls.": "module/module/",
    },
    "encoder": {"realm.": "bert/", "cls.": "cls/"},
    "openqa": {
        "embedder.realm.": "module/module/module/module/bert/",
        "embedder.cls.predictions.": "module/module/module/module/cls/predictions/",
        "embedder.cls.": "module/module/module/",
        "reader.realm.": "reader/module/bert/",
        "reader.cls.": "reader/module/cls/",
        "reader.qa_outputs.dense_intermediate.": "reader/dense/",
        "reader.qa_outputs.dense_output.": "reader/dense_1/",
        "reader.qa_outputs.layer_normalization.": "reader/layer_normalization/",
        "block_emb": "block_emb",
    },
}


@pytest.mark.parametrize("kind", list(TF_ROOTS))
def test_a_tensorflow_checkpoint(publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The same networks as from the PyTorch form of the same tensors, to the bit; with the sizes from the configuration or the shapes."""
    torch_form = publish(kind)
    variables = in_tensorflow(tensors_of(KINDS[kind], 0), TF_ROOTS[kind])
    monkeypatch.setattr(tensor_files, "tf_reader", lambda prefix: FakeReader(variables))
    module = tmp_path / "module"
    (module / "variables").mkdir(parents=True)
    (module / "assets").mkdir()
    (module / "variables" / "variables.index").write_bytes(b"")
    (module / "assets" / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (module / "bert_config.json").write_text((torch_form / "config.json").read_text())
    found = load_published(module)
    assert found.kind == kind and state_sha256(RealmModel.from_published(found)) == state_sha256(
        RealmModel.from_published(load_published(torch_form))
    )
    used = len(found.imported) + len(found.unused)
    assert used == len(variables) and {n for n in variables if "adam" in n or n == "global_step"} <= set(found.unused)
    if kind == "openqa":
        assert found.blocks is not None and len(found.blocks) == len(RECORDS)
        rows = torch.cat(list(found.blocks.file.rows("block_emb")))
        assert torch.equal(rows, tensors_of(KINDS[kind], 0)["block_emb"])
    (module / "bert_config.json").unlink()
    spec = load_published(module).spec
    guessed = next(iter(spec.networks.values())).body.config
    assert (guessed["num_hidden_layers"], guessed["hidden_size"], guessed["intermediate_size"]) == (1, 32, 37)
    assert spec.embedder is None or spec.embedder.projection == 16
    assert guessed["num_attention_heads"] == 1


def tfrecords(records: list[bytes]) -> bytes:
    return b"".join(struct.pack("<QI", len(record), 0) + record + b"\0\0\0\0" for record in records)


def test_the_original_release_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fine-tuned model, and the pre-trained embedder with its encoded blocks and blocks.tfr, all in TensorFlow's form."""
    embeddings = tensors_of(KINDS["openqa"], 0)
    block_emb = embeddings.pop("block_emb").numpy()
    files = {
        tmp_path / "tuned" / "model.ckpt-7": in_tensorflow(embeddings, TF_ROOTS["openqa"]),
        tmp_path / "embedder" / "variables" / "variables": in_tensorflow(tensors_of(KINDS["embedder"], 1), TF_ROOTS["embedder"]),
        tmp_path / "embedder" / "encoded" / "encoded.ckpt": {"block_emb": block_emb},
    }
    for prefix in files:
        prefix.parent.mkdir(parents=True)
        prefix.with_name(f"{prefix.name}.index").write_bytes(b"")
    for model in (tmp_path / "tuned", tmp_path / "embedder"):
        (model / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        (model / "bert_config.json").write_text(json.dumps({**CONFIG, "vocab_size": len(VOCABULARY)}))
    monkeypatch.setattr(tensor_files, "tf_reader", lambda prefix: FakeReader(files[prefix]))
    monkeypatch.setattr(published_models, "tf_reader", lambda prefix: FakeReader(files[prefix]))
    whole = tfrecords([record.encode() for record in RECORDS])
    blocks = tmp_path / "embedder" / "blocks.tfr"
    for cut in (whole[:-1], whole[:7], whole[:40], struct.pack("<QI", 2**60, 0) + whole):
        blocks.write_bytes(cut)
        with pytest.raises(DataError, match=r"blocks.tfr: damaged or cut short"):
            import_published([tmp_path / "tuned", tmp_path / "embedder"], tmp_path / "run")
    blocks.write_bytes(whole)
    result = import_published([tmp_path / "tuned", tmp_path / "embedder"], tmp_path / "run")
    assert result["blocks"] == len(RECORDS) and not result["notes"]
    opened = Realm.open(tmp_path / "run")
    assert {e.text for e in opened.ask("Who is Alan Turing?", k=6).evidence} == set(RECORDS)
    assert np.array_equal(open_run(tmp_path / "run").generation.snapshot.vectors, block_emb)
    files[tmp_path / "embedder" / "encoded" / "encoded.ckpt"] = {"block_emb": block_emb[:, :3]}
    with pytest.raises(DataError, match=r"block_emb has the shape \[6, 3\]"):
        load_published(tmp_path / "embedder")


def test_tensorflow_names() -> None:
    """Both depths of the embedder, and names that are no part of REALM."""
    for variable, name in [
        ("module/module/module/bert/pooler/dense/kernel", "realm.pooler.dense.weight"),
        ("module/module/module/module/bert/embeddings/LayerNorm/beta", "realm.embeddings.LayerNorm.bias"),
        ("module/module/LayerNorm/gamma", "cls.LayerNorm.weight"),
        ("bert/encoder/layer_11/attention/self/query/bias", "realm.encoder.layer.11.attention.self.query.bias"),
        ("cls/predictions/output_bias", "cls.predictions.bias"),
        ("something/else", "something/else"),
    ]:
        assert published_name(variable, beside_reader=False) == name


def test_tensorflow_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorflow", None)
    monkeypatch.setitem(__import__("sys").modules, "tensorflow.train", None)
    (tmp_path / "model.ckpt-7.index").write_bytes(b"")
    with pytest.raises(MissingExtra, match=r"pip install 'realm-qa\[tf\]'"):
        load_published(tmp_path)
    (tmp_path / "model.ckpt-8.index").write_bytes(b"")
    with pytest.raises(DataError, match=r"several TensorFlow checkpoints \(model.ckpt-7, model.ckpt-8\)"):
        load_published(tmp_path)


def test_a_tokenizer_of_vocab_txt(tmp_path: Path) -> None:
    """The same ids and offsets as transformers' BERT tokenizer of the same file."""
    from transformers import BertTokenizerFast

    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    ours = read_vocabulary(tmp_path / "vocab.txt")
    theirs: Tokenizer = BertTokenizerFast(str(tmp_path / "vocab.txt")).backend_tokenizer
    for text in [*RECORDS, "The Pound's ŌSAKA — 1912? 東京", "[MASK] is a city"]:
        reference = theirs.encode(text, add_special_tokens=False)
        assert ours.encode_offsets(text) == (reference.ids, reference.offsets)
