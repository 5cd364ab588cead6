"""Models that ship as a difference to a published body: low-rank products beside its matrices (LoRA, Hu et al. 2021), and what is small
enough to ship whole.

The body is fetched, the difference added, and the sum written in 8 bits to the user's cache, in the vocabulary of the shipped model: one
index, and blocks of one tokenizer, serve both readers."""

from pathlib import Path

import numpy as np

from realm.models.bodies.known import WEIGHTS, check_digest, get_body, known_body
from realm.models.runtime.weights import SCALE, SafetensorWeights, in_eight_bits
from realm.storage.files import publish_directory
from realm.text.tokenizer import CONFIG_FILE, RELEASED, TOKENIZER_FILE, TextTokenizer, read_tokenizer

DIFFERENCE = "difference.safetensors"
DOWN, UP, KEPT = ".down", ".up", ".base."
"""Ends of the names of a matrix's two factors, already scaled, and the mark of a layer's own bias."""
BODY, WORDS = "body.model.", "embeddings.word_embeddings.weight"
READER, EMBEDDER = "reader.", "embedder."


def get_model(name: str) -> Path:
    """Directory of a known body, fetched or made if needed. Raises ConfigError: unknown, not available, or a damaged file."""
    known = known_body(name)
    if known is None or not known.base:
        return get_body(name)
    if not known.fetched.is_dir():
        base = get_body(known.base)
        check_digest(known.shipped / DIFFERENCE, known.sha256)
        with publish_directory(known.fetched) as staging:
            write_sum(base, known.shipped, staging)
    return known.fetched


def write_sum(base: Path, shipped: Path, out: Path) -> None:
    """Write the model that a body and its difference make, with the embedder and the tokenizer that ship."""
    from safetensors.numpy import save_file

    difference = SafetensorWeights(shipped / DIFFERENCE)
    whole = summed(SafetensorWeights(base / WEIGHTS), difference, rows_of(base))
    stored, metadata = in_eight_bits({READER + name: values for name, values in whole.items()})
    embedder = SafetensorWeights(RELEASED / WEIGHTS)
    for name in filter(lambda name: name.startswith(EMBEDDER), embedder.names()):
        stored[name] = embedder.read(name)
        if stored[name].dtype == np.int8:
            stored[name + SCALE] = embedder.read(name, SCALE)
    save_file(stored, out / WEIGHTS, metadata=metadata)
    (out / "config.json").write_bytes((shipped / "config.json").read_bytes())
    for file in (TOKENIZER_FILE, CONFIG_FILE):
        (out / file).write_bytes((RELEASED / file).read_bytes())


def summed(base: SafetensorWeights, difference: SafetensorWeights, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Tensors of the reader in float32 by name: those of the difference, and the base's with the products added, its words in the order
    of ``rows``."""
    own = difference.names()
    found = {name.replace(KEPT, "."): difference.array(name) for name in own if not name.endswith((DOWN, UP))}
    for name in base.names():
        whole = BODY + name
        if whole in found or "pooler" in name or name.endswith("position_ids"):
            continue
        values = base.array(name)
        layer = whole.removesuffix(".weight")
        if layer + UP in own:
            values = values + difference.array(layer + UP) @ difference.array(layer + DOWN)
        found[whole] = values[rows] if name == WORDS else values
    return found


def rows_of(base: Path) -> np.ndarray:
    """Row of the base's table of words for each word of the shipped vocabulary: its own, or that of the token with the same role."""
    theirs, ours = read_tokenizer(base), TextTokenizer.load(RELEASED)
    numbers = {theirs.token(number): number for number in range(theirs.vocab_size)}
    rows = np.array([numbers.get(ours.token(number), theirs.special.unk) for number in range(ours.vocab_size)])
    for role, number in vars(ours.special).items():
        rows[number] = getattr(theirs.special, role)
    return rows
