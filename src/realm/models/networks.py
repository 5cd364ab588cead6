"""Networks from their specifications: with weights, or with names and shapes alone."""

import torch
from torch import nn

from realm.models.bodies.body import build_body
from realm.models.embedder import Embedder
from realm.models.encoder import KnowledgeAugmentedEncoder
from realm.models.reader import Reader
from realm.models.spec import EmbedderSpec, ModelSpec, NetworkSpec, ReaderSpec


def build_network(part: str, spec: NetworkSpec, *, drawn: bool = True) -> nn.Module:
    """Build one network. A document embedder is always frozen: it belongs to the index."""
    body = build_body(spec.body, pooler=isinstance(spec, EmbedderSpec), drawn=drawn)
    if isinstance(spec, EmbedderSpec):
        return Embedder(body, spec).requires_grad_(part == "embedder")
    return Reader(body, spec) if isinstance(spec, ReaderSpec) else KnowledgeAugmentedEncoder(body)


def parameter_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Name and shape of every parameter of such a model; no memory is allocated."""
    with torch.device("meta"):
        networks = {part: build_network(part, network, drawn=False) for part, network in spec.networks.items()}
    return {f"{part}.{name}": tuple(tensor.shape) for part, network in networks.items() for name, tensor in network.state_dict().items()}
