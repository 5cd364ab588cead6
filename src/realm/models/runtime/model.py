"""The networks of a RealmModel's directory without torch: what answers, searches and indexes where nothing learns."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from realm.errors import RunError, by_torch
from realm.models.hub import is_own
from realm.models.runtime.body import runs_here
from realm.models.runtime.networks import RuntimeEmbedder, RuntimeReader
from realm.models.runtime.weights import open_weights
from realm.models.spec import PARTS, ModelSpec, read_spec

if TYPE_CHECKING:
    from realm.models.model import RealmModel


class RuntimeModel:
    """Embedders and reader of one directory, each made when it is first asked for; asking for a missing one raises RunError.

    Args:
        directory: that ``RealmModel.save_pretrained`` wrote.
        spec: its specification, of networks that run here.
        eight_bit: whether products are of 8-bit integers.
        threads: of one product; 0: all cores.
    """

    def __init__(self, directory: Path, spec: ModelSpec, *, eight_bit: bool = False, threads: int = 0):
        self.spec = spec
        self._weights = open_weights(directory)
        self._options: dict[str, Any] = {"eight_bit": eight_bit, "threads": threads}

    def has(self, part: str) -> bool:
        """Return whether the model has this network, of ``PARTS``."""
        return getattr(self.spec, part) is not None

    @cached_property
    def embedder(self) -> RuntimeEmbedder:
        """The embedder of questions."""
        return self._embedder("embedder")

    @cached_property
    def documents(self) -> RuntimeEmbedder:
        """The embedder of the document side: the frozen fork, or the one embedder of both sides."""
        return self._embedder("document_embedder") if self.has("document_embedder") else self.embedder

    def documents_sha256(self) -> str:
        """Return the identity of the document side's parameters."""
        return self._weights.below("document_embedder." if self.has("document_embedder") else "embedder.").sha256()

    def reading(self, *, bf16: bool = False) -> RuntimeReader:
        """Return the reader; nothing here multiplies in bfloat16."""
        return RuntimeReader(self._weights.below("reader."), self._of("reader"), **self._options)

    def _embedder(self, part: str) -> RuntimeEmbedder:
        return RuntimeEmbedder(self._weights.below(f"{part}."), self._of(part), **self._options)

    def _of(self, part: str) -> Any:
        found = getattr(self.spec, part)
        if found is None:
            raise RunError(f"this model has no {part.replace('_', ' ')}")
        return found


def runtime_model(directory: Path, *, without: tuple[str, ...] = (), **options: Any) -> RuntimeModel | None:
    """Open a RealmModel's directory, some parts left out, without torch; None where a network of it needs torch.

    Raises:
        RunError: a file is damaged.
    """
    if not is_own(directory):
        return None
    spec = replace(read_spec(directory / "config.json"), **dict.fromkeys(without))
    answering = [getattr(spec, part) for part in PARTS if part != "encoder"]
    runs = all(runs_here(network.body.config) for network in answering if network is not None)
    return RuntimeModel(directory, spec, **options) if runs else None


def load_model(directory: Path, device: Any = "cpu") -> "RuntimeModel | RealmModel":
    """Load networks that answer: without torch on a CPU where they run so, and by torch otherwise.

    Raises:
        MissingExtra: they need torch, which is not installed.
        RunError: no such model, or a damaged file.
    """
    found = runtime_model(directory) if str(device) == "cpu" else None
    return found or learning_model(directory).to(device).eval().requires_grad_(False)


def learning_model(directory: Path) -> "RealmModel":
    """Load networks by torch. Raises MissingExtra: it is not installed."""
    with by_torch("this model"):
        from realm.models.model import RealmModel
    return RealmModel.from_pretrained(directory)
