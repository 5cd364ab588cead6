"""Fewer dimensions for a published sentence embedder: along the principal components of the vectors that it gives to the corpus itself."""

import numpy as np
import torch
from torch import Tensor

from realm.data.blocks import BlockInputs
from realm.errors import ConfigError
from realm.nn.embedder import Embedder
from realm.refresh import embed_corpus

SAMPLE = 2048
"""Blocks, spread evenly over the corpus, whose vectors say which directions are kept: all 10,925 of squad-small gave no more recall."""


def principal_directions(vectors: Tensor, count: int, *, centred: bool) -> tuple[Tensor, Tensor]:
    """The directions along which vectors differ most, and the point that they are counted from.

    Args:
        vectors: [n, h].
        count: d, at most h.
        centred: whether that point is the mean of the vectors; else it is 0, which keeps inner products best.

    Returns:
        Orthonormal directions [d, h], the strongest first, and the point [h]; float32.
    """
    exact = vectors.double()
    centre = exact.mean(0) if centred else torch.zeros_like(exact[0])
    shifted = exact - centre
    strongest = torch.linalg.eigh(shifted.T @ shifted).eigenvectors.flip(-1)[:, :count].T  # eigh: the weakest first
    return strongest.float().contiguous(), centre.float()


def corpus_directions(embedder: Embedder, inputs: BlockInputs, count: int, *, sample: int = SAMPLE) -> tuple[Tensor, Tensor]:
    """:func:`principal_directions` of the vectors that an embedder gives to ``sample`` live blocks. Those of unit vectors are centred.

    Raises:
        ConfigError: the embedder has fewer than ``count`` dimensions.
    """
    width = embedder.spec.projection
    if count > width:
        problem = f"'model.projection' is {count}, and the body's embeddings have {width} dimensions"
        raise ConfigError(problem, cure="Leave model.projection out, or name fewer.")
    live = np.flatnonzero(inputs.store.live)
    rows = live[np.linspace(0, len(live) - 1, min(sample, len(live))).astype(np.int64)]
    training = embedder.training
    vectors = torch.from_numpy(embed_corpus(embedder, inputs, rows))
    embedder.train(training)
    return principal_directions(vectors, count, centred=embedder.unit)
