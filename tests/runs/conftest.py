"""Published directories in small: every tensor name of the released classes, random values, a real vocabulary."""

import json
import string

import pytest
import torch
from safetensors.torch import save_file

CONFIG = {
    "model_type": "realm", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 37,
    "max_position_embeddings": 64, "retriever_proj_size": 16, "span_hidden_size": 8, "max_span_width": 4, "pad_token_id": 1,
}  # fmt: skip
RECORDS = [
    "The pound sterling is the currency of the United Kingdom.", "Zürich lies on the Limmat. It is the largest city of Switzerland.",
    "Alan Mathison Turing was a pioneer of computer science. He was born in 1912.", "", "Ōsaka and Kyōto are cities in Japan.",
    "The pound sterling is the currency of the United Kingdom.",
]  # fmt: skip
PIECES = ["the", "pound", "currency", "of", "is", "a", "city", "alan", "turing", "in", "who", "what", "##s", "##ing", ".", "?"]
LETTERS = [*string.ascii_lowercase, *string.digits]
VOCABULARY = list(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES, *LETTERS, *(f"##{c}" for c in LETTERS)]))


def linear(name, outputs, inputs):
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm(name, size):
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


def body(root):
    rows = (("word", len(VOCABULARY)), ("position", 64), ("token_type", 2))
    names = {f"{root}embeddings.{kind}_embeddings.weight": (n, 32) for kind, n in rows}
    names |= norm(f"{root}embeddings.LayerNorm", 32) | linear(f"{root}pooler.dense", 32, 32)
    layer = f"{root}encoder.layer.0."
    for part in ("self.query", "self.key", "self.value", "output.dense"):
        names |= linear(f"{layer}attention.{part}", 32, 32)
    names |= linear(f"{layer}intermediate.dense", 37, 32) | linear(f"{layer}output.dense", 32, 37)
    return names | norm(f"{layer}attention.output.LayerNorm", 32) | norm(f"{layer}output.LayerNorm", 32)


def mlm_head():
    names = linear("cls.predictions.transform.dense", 32, 32) | norm("cls.predictions.transform.LayerNorm", 32)
    return names | linear("cls.predictions.decoder", len(VOCABULARY), 32) | {"cls.predictions.bias": (len(VOCABULARY),)}


EMBEDDER = body("realm.") | mlm_head() | linear("cls.dense", 16, 32) | norm("cls.LayerNorm", 16)
ENCODER = body("realm.") | mlm_head()
READER = (
    ENCODER
    | linear("qa_outputs.dense_intermediate", 16, 32)
    | linear("qa_outputs.dense_output", 1, 8)
    | norm("qa_outputs.layer_normalization", 8)
)
KINDS = {
    "embedder": EMBEDDER,
    "scorer": {f"{p}.{n}": s for p in ("embedder", "query_embedder") for n, s in EMBEDDER.items()},
    "encoder": ENCODER,
    "reader": READER,
    "openqa": {f"embedder.{n}": s for n, s in EMBEDDER.items()}
    | {f"reader.{n}": s for n, s in READER.items()}
    | {"block_emb": (len(RECORDS), 16)},
    "bert": body("bert.") | mlm_head() | linear("cls.seq_relationship", 2, 32),
}


def tensors_of(names, seed):
    generator = torch.Generator().manual_seed(seed)
    state = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in names.items()}
    for name in state:
        for tied, twin in (("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"), ("cls.predictions.decoder.bias", "")):
            if name.endswith(tied):
                prefix = name.removesuffix(tied)
                root = "bert." if f"{prefix}bert.{twin}" in state else "realm."
                state[name] = state[prefix + root + twin if twin else f"{prefix}cls.predictions.bias"].clone()
    return state


@pytest.fixture
def publish(tmp_path):
    def write(kind, *, seed=0, file="model.safetensors", **config):
        directory = tmp_path / f"{kind}-{seed}"
        directory.mkdir()
        state = tensors_of(KINDS[kind], seed)
        if file == "model.safetensors":
            save_file(state, directory / file)
        else:
            torch.save(state, directory / file)  # noqa: TID251
        values = {**CONFIG, "vocab_size": len(VOCABULARY), **({"model_type": "bert"} if kind == "bert" else {}), **config}
        (directory / "config.json").write_text(json.dumps(values))
        (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", "utf-8")
        return directory

    return write
