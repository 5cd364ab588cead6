"""Published directories in small: every tensor name of the released classes, random values, a real vocabulary."""

import json
import string

import pytest
import torch
from published_names import published_names, values_of
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


KINDS = published_names(words=len(VOCABULARY), layers=1, blocks=len(RECORDS))


@pytest.fixture
def publish(tmp_path):
    def write(kind, *, seed=0, file="model.safetensors", **config):
        directory = tmp_path / f"{kind}-{seed}"
        directory.mkdir()
        state = values_of(KINDS[kind], seed)
        if file == "model.safetensors":
            save_file(state, directory / file)
        else:
            torch.save(state, directory / file)  # noqa: TID251
        values = {**CONFIG, "vocab_size": len(VOCABULARY), **({"model_type": "bert"} if kind == "bert" else {}), **config}
        (directory / "config.json").write_text(json.dumps(values))
        (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", "utf-8")
        return directory

    return write
