"""Directories that are damaged, hostile or something else: refused in one line, nothing executed, nothing left behind."""

import json
import os
import pickle  # noqa: TID251  the tests make hostile files with it
import shutil
import struct

import pytest
import torch
from safetensors.torch import save_file

from realm.cli import main

from .conftest import VOCABULARY


@pytest.fixture
def refused(refused, tmp_path):
    """Imports directories, which must end in one line and exit code 2 and leave nothing; returns that line."""

    def run(*directories, more=()):
        line = refused("import", *directories, "--out", tmp_path / "refused", *more)
        assert not (tmp_path / "refused").exists() and not list(tmp_path.glob("*.staging"))
        return line

    return run


class Hostile:
    """Unpickling it would make a file."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def reconfigure(directory, **values):
    config = directory / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **values}))
    return directory


def test_damaged_safetensors(publish, refused):
    """Cut at any place; a header that claims another length, or tensors where the file has none."""
    directory = publish("embedder")
    weights = directory / "model.safetensors"
    whole = weights.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header, name, lies = json.loads(whole[8 : 8 + length]), "cls.dense.weight", []
    for lie in ({"shape": [16, 64]}, {"data_offsets": [0, 2**60]}, {"shape": [2**40, 32]}, {"dtype": "F64"}):
        text = json.dumps({**header, name: {**header[name], **lie}}).encode()
        lies.append(struct.pack("<Q", len(text)) + text + whole[8 + length :])
    cuts = [whole[:end] for end in (0, 4, 8, 100, 8 + length, len(whole) - 1)]
    lengths = [struct.pack("<Q", claimed) + whole[8:] for claimed in (2**62, length + 1000, length - 1, 0)]
    for content in [*cuts, *lengths, *lies, whole + b"more"]:
        weights.write_bytes(content)
        line = refused(directory)
        assert str(weights) in line and "safetensors" in line and "Fetch" in line


def test_pickles_as_weights(publish, refused, tmp_path):
    """A pickle named model.safetensors, one named pytorch_model.bin, and one inside torch's own format."""
    trap, directory = tmp_path / "trap", publish("embedder")
    (directory / "model.safetensors").write_bytes(pickle.dumps(Hostile(trap)))
    assert "not a complete safetensors file" in refused(directory)
    (directory / "model.safetensors").unlink()
    weights = directory / "pytorch_model.bin"
    weights.write_bytes(pickle.dumps(Hostile(trap)))
    assert "no code in it was run" in refused(directory)
    torch.save({"cls.dense.weight": Hostile(trap)}, weights)  # noqa: TID251
    assert "no code in it was run" in refused(directory)
    assert not trap.exists()
    for value, problem in [([1, 2], "does not hold tensors by name"), ({"a": 3}, "does not hold tensors by name")]:
        torch.save(value, weights)  # noqa: TID251
        assert problem in refused(directory)
    torch.save({"cls.dense.weight": torch.zeros(1).expand(2**40)}, weights)  # noqa: TID251
    assert "claims more than the file holds" in refused(directory)


@pytest.mark.parametrize("sizes", [
    {"num_hidden_layers": 2**24}, {"hidden_size": 2**20, "num_attention_heads": 4}, {"vocab_size": 2**24},
    {"max_position_embeddings": 2**24}, {"intermediate_size": 2**24}, {"retriever_proj_size": 2**24},
    {"hidden_size": 10**30}, {"num_hidden_layers": -1}, {"hidden_size": "huge"}, {"hidden_size": 32.5},
    {"num_attention_heads": 5}, {"hidden_act": "relu"}, {"position_embedding_type": "relative_key"},
])  # fmt: skip
def test_a_configuration_that_does_not_fit(publish, refused, sizes):
    """A terabyte is asked for, or nonsense: refused from names and shapes, before a network is built."""
    line = refused(reconfigure(publish("embedder"), **sizes))
    assert "config" in line or "the tensor" in line


def test_vocabularies(publish, refused):
    directory = publish("embedder")
    file = directory / "vocab.txt"
    file.write_text("\n".join([*VOCABULARY, "more"]) + "\n")
    assert f"the tokenizer has {len(VOCABULARY) + 1} entries, and the weights have {len(VOCABULARY)}" in refused(directory)
    file.write_text("\n".join([*VOCABULARY[:-1], VOCABULARY[7]]) + "\n")
    assert "vocab.txt:8: a repeated wordpiece" in refused(directory)
    file.write_text("\n".join("mask" if piece == "[MASK]" else piece for piece in VOCABULARY) + "\n")
    assert "the vocabulary has no [MASK]" in refused(directory)
    file.write_bytes(b"\xff\xfe")
    assert "vocab.txt: no vocabulary" in refused(directory)
    file.unlink()
    assert "no tokenizer here" in refused(directory)
    (directory / "tokenizer.json").write_text("{}")
    assert "not a tokenizer file" in refused(directory)


def test_something_else(publish, refused, tmp_path, tiny_run):
    assert "no such directory" in refused(tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no weights of a published model here" in refused(empty)
    assert "a run of this program" in refused(tiny_run)
    save_file({"wte.weight": torch.zeros(4, 4)}, empty / "model.safetensors")
    assert "config.json: missing" in refused(empty)
    (empty / "config.json").write_text('{"model_type": "gpt2"}')
    assert "a model of the family 'gpt2', neither REALM nor BERT" in refused(empty)
    (empty / "config.json").write_text('{"model_type": "bert"}')
    assert "belong to no REALM or BERT model" in refused(empty)
    for text, problem in [("{", "not valid JSON"), ("[]", "not a JSON object"), ("[" * 100_000, "not valid JSON")]:
        (empty / "config.json").write_text(text)
        assert problem in refused(empty)
    (empty / "model.safetensors").unlink()
    for text in ("{", "{}", '{"weight_map": {"a": "../a.safetensors"}}', '{"weight_map": {"a": 3}}'):
        (empty / "model.safetensors.index.json").write_text(text)
        assert "no index of weights" in refused(empty)


def test_models_that_do_not_belong_together(publish, refused, tmp_path):
    embedder, encoder = publish("embedder"), publish("encoder")
    assert "both hold the embedder" in refused(embedder, shutil.copytree(embedder, tmp_path / "twin"))
    (encoder / "vocab.txt").write_text("\n".join([*VOCABULARY[:-2], VOCABULARY[-1], VOCABULARY[-2]]) + "\n")
    assert "its vocabulary is not that of" in refused(embedder, encoder)
    reader = reconfigure(publish("reader"), num_attention_heads=2)
    assert "num_attention_heads is 2, and 4 in" in refused(embedder, reader)
    documents = tmp_path / "docs.jsonl"
    documents.write_text('{"id": "a", "text": "Some words."}\n')
    assert "documents need an embedder" in refused(reader, more=("--documents", str(documents)))
    assert "nowhere.jsonl" in refused(embedder, more=("--documents", str(tmp_path / "nowhere.jsonl")))


def test_targets_that_exist(publish, tmp_path, capsys, tiny_run):
    taken = tmp_path / "taken"
    taken.mkdir()
    assert main(["import", str(publish("encoder")), "--out", str(taken)]) == 2
    assert main(["export", str(tiny_run), "--out", str(taken)]) == 2
    assert main(["export", str(tiny_run), "--out", str(tmp_path / "new")]) == 2  # its embedder has a projection
    assert capsys.readouterr().err.count("error: ") == 3 and not list(taken.iterdir())
