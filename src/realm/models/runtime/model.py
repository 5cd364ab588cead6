"""The networks of a RealmModel's directory without torch: what answers, searches and indexes where nothing learns."""

import os
from dataclasses import replace
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from realm.errors import ConfigError, RunError, by_torch
from realm.models.hub import is_own
from realm.models.runtime.body import runs_here
from realm.models.runtime.networks import RuntimeEmbedder, RuntimeReader
from realm.models.runtime.weights import open_weights
from realm.models.spec import PARTS, ModelSpec, read_spec

if TYPE_CHECKING:
    from realm.models.model import RealmModel


PRODUCTS = "REALM_PRODUCTS"  # of the environment: int8 or float32; if not set, what the processor is faster at
DOT_PRODUCTS = ("AVX512VNNI", "ASIMDDP")
"""Features of processors, in numpy's names, with exact dot products of 8-bit integers. Those of AVX2 alone overflow."""


@cache
def multiplies_integers() -> bool:
    """Return whether products are of 8-bit integers. Raises ConfigError: the environment asks for other ones."""
    chosen = os.environ.get(PRODUCTS, "")
    if chosen not in ("", "int8", "float32"):
        raise ConfigError(f"{PRODUCTS}={chosen}", cure="Set it to int8 or float32, or leave it out.")
    features = getattr(import_module("numpy._core._multiarray_umath"), "__cpu_features__", {})
    return chosen == "int8" or (not chosen and any(features.get(name) for name in DOT_PRODUCTS))


class RuntimeModel:
    """Embedders and reader of a directory that ``RealmModel.save_pretrained`` wrote, each made when it is first asked for; asking for a
    missing one raises RunError.

    Args:
        eight_bit: whether products are of 8-bit integers; None: those of weights stored so, where :func:`multiplies_integers`.
        threads: inputs that run at once; 0: as many as there are cores."""

    def __init__(self, directory: Path, spec: ModelSpec, *, eight_bit: bool | None = None, threads: int = 0):
        self.spec = spec
        self._weights = open_weights(directory)
        eight_bit = self._weights.eight_bit and multiplies_integers() if eight_bit is None else eight_bit
        self._options: dict[str, Any] = {"eight_bit": eight_bit, "threads": threads}

    def has(self, part: str) -> bool:
        """Return whether the model has this network, of ``PARTS``."""
        return getattr(self.spec, part) is not None

    @cached_property
    def embedder(self) -> RuntimeEmbedder:
        """The embedder of questions."""
        return RuntimeEmbedder(self._weights.below("embedder."), self._of("embedder"), **self._options)

    @cached_property
    def documents(self) -> RuntimeEmbedder:
        """The embedder of the document side: the frozen fork, or the one embedder of both sides."""
        if not self.has("document_embedder"):
            return self.embedder
        return RuntimeEmbedder(self._weights.below("document_embedder."), self._of("document_embedder"), **self._options)

    def documents_sha256(self) -> str:
        """Return the identity of the document side's parameters."""
        return self._weights.below("document_embedder." if self.has("document_embedder") else "embedder.").sha256()

    def reading(self, *, bf16: bool = False) -> RuntimeReader:
        """Return the reader; nothing here multiplies in bfloat16."""
        return RuntimeReader(self._weights.below("reader."), self._of("reader"), **self._options)

    def _of(self, part: str) -> Any:
        found = getattr(self.spec, part)
        if found is None:
            raise RunError(f"this model has no {part.replace('_', ' ')}")
        return found


def runtime_model(directory: Path, *, without: tuple[str, ...] = (), **options: Any) -> RuntimeModel | None:
    """Open a RealmModel's directory, some parts left out, without torch; None where one needs torch. Raises RunError: damaged."""
    if not is_own(directory):
        return None
    spec = replace(read_spec(directory / "config.json"), **dict.fromkeys(without))
    answering = [getattr(spec, part) for part in PARTS if part != "encoder"]
    runs = all(runs_here(network.body.config) for network in answering if network is not None)
    return RuntimeModel(directory, spec, **options) if runs else None


def load_model(directory: Path, device: Any = "cpu") -> "RuntimeModel | RealmModel":
    """Load networks that answer: without torch on a CPU where they run so, and by torch otherwise. Raises MissingExtra: torch is not
    installed; RunError: no such model, or a damaged file."""
    found = runtime_model(directory) if str(device) == "cpu" else None
    return found or learning_model(directory).to(device).eval().requires_grad_(False)


def learning_model(directory: Path) -> "RealmModel":
    """Load networks by torch. Raises MissingExtra: it is not installed."""
    with by_torch("this model"):
        from realm.models.model import RealmModel
    return RealmModel.from_pretrained(directory)
