"""Forms beside the Hugging Face directories: sentence-transformers, TensorFlow originals, the hub, ONNX."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from realm import Realm, RealmModel
from realm.data.featurize import Featurizer
from realm.data.types import TokenInputs
from realm.errors import DataError, MissingExtra, RunError
from realm.nn import published_models, tensor_files
from realm.nn.model import state_sha256
from realm.nn.published_models import load_published
from realm.nn.published_tf import published_name
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
    reference = AutoModel.from_pretrained(directory).eval()
    ids = found.tokenizer.encode(["the pound", "who is alan turing ?"])
    special = found.tokenizer.special
    sequences = [Featurizer(special.cls, special.sep, special.mask, special.pad).query(one) for one in ids]
    assert found.model.embedder is not None
    with torch.inference_mode():
        ours = found.model.embedder(sequences)
        for row, sequence in enumerate(sequences):
            states = reference(input_ids=torch.tensor([sequence.ids])).last_hidden_state[0]
            vector = states.mean(0) if pooling == "mean_tokens" else states[0]
            assert torch.allclose(ours[row], vector / vector.norm(), atol=1e-5)
    # What the body of BERT does not read is named.
    assert set(found.unused) == ({"pooler.dense.weight", "pooler.dense.bias"} if family == "bert" else set())


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
    assert found.kind == kind and state_sha256(found.model) == state_sha256(load_published(torch_form).model)
    used = len(found.imported) + len(found.unused)
    assert used == len(variables) and {n for n in variables if "adam" in n or n == "global_step"} <= set(found.unused)
    if kind == "openqa":
        assert found.blocks is not None and len(found.blocks) == len(RECORDS)
        rows = torch.cat(list(found.blocks.file.rows("block_emb")))
        assert torch.equal(rows, tensors_of(KINDS[kind], 0)["block_emb"])
    (module / "bert_config.json").unlink()
    guessed = load_published(module).model.spec
    assert (guessed.body.config["num_hidden_layers"], guessed.body.hidden, guessed.body.config["intermediate_size"]) == (1, 32, 37)
    assert guessed.projection == (16 if "embedder" in guessed.parts else 128) and guessed.body.config["num_attention_heads"] == 1


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


def test_the_hub(publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, revisions and tokens go to the hub's own functions; the card has the hub's front matter."""
    import huggingface_hub

    asked: list[Any] = []
    hub = tmp_path / "hub"

    class FakeApi:
        def __init__(self, token: Any = None):
            asked.append(("token", token))

        def create_repo(self, name: str, *, private: bool | None, exist_ok: bool) -> Any:
            assert exist_ok
            asked.append(("repo", name, private))
            return type("Url", (), {"repo_id": f"me/{name}"})

        def create_branch(self, name: str, *, branch: str, exist_ok: bool) -> None:
            asked.append(("branch", name, branch))

        def upload_folder(self, *, repo_id: str, folder_path: Path, revision: str | None, commit_message: str) -> str:
            Path(folder_path).rename(hub)
            Path(folder_path).mkdir()
            return f"https://hub/{repo_id}/{revision}"

    def snapshot(name: str, *, revision: str | None, token: Any, allow_patterns: list[str]) -> str:
        asked.append(("download", name, revision, token))
        assert not any(pattern.endswith((".py", ".npy")) for pattern in allow_patterns)
        return str(hub if name == "me/realm" else publish("scorer"))

    monkeypatch.setattr(huggingface_hub, "HfApi", FakeApi)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    published = load_published(publish("openqa"))
    address = published.model.push_to_hub("realm", tokenizer=published.tokenizer, private=True, revision="v1", token="secret")
    assert address == "https://hub/me/realm/v1"
    assert asked == [("token", "secret"), ("repo", "realm", True), ("branch", "me/realm", "v1")]
    assert {path.name for path in hub.iterdir()} == {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "README.md",
    }
    front = (hub / "README.md").read_text().split("---")[1]
    assert (
        "library_name: realm" in front and "pipeline_tag: question-answering" in front and "secret" not in (hub / "README.md").read_text()
    )
    again = RealmModel.from_pretrained("me/realm", revision="v1", token="secret")
    assert state_sha256(again) == state_sha256(published.model) and asked[-1] == ("download", "me/realm", "v1", "secret")
    # A published model of Hugging Face's classes loads by its name as well.
    assert set(RealmModel.from_pretrained("google/realm-scorer").spec.parts) == {"embedder", "document_embedder"}

    def refuse(self: Any, name: str, **_: Any) -> None:
        raise OSError("no such owner\nand more")

    monkeypatch.setattr(FakeApi, "create_repo", refuse)
    with pytest.raises(RunError, match=r"'x/y' could not be written: no such owner\. Log in"):
        published.model.push_to_hub("x/y")


def test_a_tokenizer_of_vocab_txt(tmp_path: Path) -> None:
    """The same ids and offsets as transformers' BERT tokenizer of the same file."""
    from transformers import BertTokenizerFast

    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    ours = read_vocabulary(tmp_path / "vocab.txt")
    theirs: Tokenizer = BertTokenizerFast(str(tmp_path / "vocab.txt")).backend_tokenizer
    for text in [*RECORDS, "The Pound's ŌSAKA — 1912? 東京", "[MASK] is a city"]:
        reference = theirs.encode(text, add_special_tokens=False)
        assert ours.encode_offsets(text) == (reference.ids, reference.offsets)


@pytest.mark.slow
def test_onnx_agrees_with_torch(publish: Publish, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    pytest.importorskip("onnxscript", reason="the extra 'onnx' is not installed")
    from realm.cli import main
    from realm.nn.onnx import INPUTS

    import_published([publish("openqa")], tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--onnx"]) == 0
    model = load_published(tmp_path / "out" / "openqa").model.eval()
    assert model.embedder is not None and model.reader is not None
    sessions = {p: onnxruntime.InferenceSession(tmp_path / "out" / "onnx" / f"{p}.onnx") for p in ("embedder", "reader")}
    generator = torch.Generator().manual_seed(0)
    for rows, length in ((1, 3), (3, 20), (2, 64)):
        ids = torch.randint(0, len(VOCABULARY), (rows, length), generator=generator)
        mask = torch.ones(rows, length, dtype=torch.bool)
        mask[0, length // 2 + 1 :] = False
        inputs = TokenInputs(ids, mask, (torch.arange(length) > 2).long().expand(rows, length))
        feed = dict(zip(INPUTS, (t.long().numpy() for t in (inputs.ids, inputs.mask, inputs.segments)), strict=True))
        with torch.inference_mode():
            wanted = {
                "embedder": model.embedder.head(model.embedder.body.pooled(inputs)),
                "reader": model.reader.span_logits(model.reader.body(inputs)),
            }
        for part, session in sessions.items():
            (found,) = session.run(None, feed)
            assert found.shape == tuple(wanted[part].shape) and np.abs(found - wanted[part].numpy()).max() < 1e-4


def test_onnx_without_its_extra(publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from realm.nn.onnx import export_onnx

    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    embedder = load_published(publish("embedder")).model.embedder
    assert embedder is not None
    with pytest.raises(MissingExtra, match=r"realm-qa\[onnx\]"):
        export_onnx(embedder, tmp_path / "e.onnx")
