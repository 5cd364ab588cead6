"""Name and shape of every tensor of the published classes (transformers 4.40.2) in small, written out apart from the code under test."""

import torch

HIDDEN, INNER, PROJECTION, SPAN_HIDDEN = 32, 37, 16, 8


def linear(name, outputs, inputs):
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm(name, size):
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


def body(root, words, layers):
    rows = (("word", words), ("position", 64), ("token_type", 2))
    names = {f"embeddings.{kind}_embeddings.weight": (n, HIDDEN) for kind, n in rows}
    names |= norm("embeddings.LayerNorm", HIDDEN) | linear("pooler.dense", HIDDEN, HIDDEN)
    for n in range(layers):
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            names |= linear(f"encoder.layer.{n}.{part}", HIDDEN, HIDDEN)
        names |= linear(f"encoder.layer.{n}.intermediate.dense", INNER, HIDDEN) | linear(f"encoder.layer.{n}.output.dense", HIDDEN, INNER)
        names |= norm(f"encoder.layer.{n}.attention.output.LayerNorm", HIDDEN) | norm(f"encoder.layer.{n}.output.LayerNorm", HIDDEN)
    return {root + name: shape for name, shape in names.items()}


def below(prefix, names):
    return {prefix + name: shape for name, shape in names.items()}


def published_names(words, layers, blocks):
    """The tensors of each class."""
    head = linear("cls.predictions.transform.dense", HIDDEN, HIDDEN) | norm("cls.predictions.transform.LayerNorm", HIDDEN)
    head |= {"cls.predictions.bias": (words,), **linear("cls.predictions.decoder", words, HIDDEN)}
    encoder = body("realm.", words, layers) | head
    embedder = encoder | linear("cls.dense", PROJECTION, HIDDEN) | norm("cls.LayerNorm", PROJECTION)
    span = linear("qa_outputs.dense_intermediate", 2 * SPAN_HIDDEN, HIDDEN) | linear("qa_outputs.dense_output", 1, SPAN_HIDDEN)
    reader = encoder | span | norm("qa_outputs.layer_normalization", SPAN_HIDDEN)
    return {
        "embedder": embedder, "scorer": below("embedder.", embedder) | below("query_embedder.", embedder), "encoder": encoder,
        "reader": reader, "openqa": {"block_emb": (blocks, PROJECTION)} | below("embedder.", embedder) | below("reader.", reader),
        "bert": body("bert.", words, layers) | head | linear("cls.seq_relationship", 2, HIDDEN),
    }  # fmt: skip


def values_of(names, seed=0):
    """Random tensors of these names; what is tied is equal."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in names.items()}
    for name in [n for n in names if n.endswith("cls.predictions.decoder.weight")]:
        prefix = name.removesuffix("cls.predictions.decoder.weight")
        root = "bert." if f"{prefix}bert.embeddings.word_embeddings.weight" in tensors else "realm."
        tensors[name] = tensors[f"{prefix}{root}embeddings.word_embeddings.weight"].clone()
        tensors[f"{prefix}cls.predictions.decoder.bias"] = tensors[f"{prefix}cls.predictions.bias"].clone()
    return tensors
