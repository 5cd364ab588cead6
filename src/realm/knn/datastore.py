"""A datastore: (key, wanted token) pairs of a corpus, as a directory of published files.

``DATASTORE/windows/`` holds what the model read and the wanted tokens, ``DATASTORE/index/`` the keys as a generation of the index's own
snapshot protocol (its ids are numbers of wanted tokens), ``DATASTORE/datastore.json`` what made them; it is written last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from realm.decoding import json_value
from realm.errors import ConfigError, DataError, SnapshotError
from realm.index.base import RowIndex
from realm.index.choice import KINDS, make_index
from realm.index.mips import Metric
from realm.index.snapshot import Snapshot
from realm.knn.network import Network
from realm.knn.windows import ERRORS, REMAKE, WindowSet, mapped_array
from realm.storage.manifests import unsealed

FORMAT = 1
FACTS, WINDOWS, INDEX, COUNTS = "datastore.json", "windows", "index", "counts.npy"


@dataclass(frozen=True)
class DatastoreFacts:
    """What a datastore says of itself.

    Attributes:
        kind: causal, translation or masked.
        model: where its model came from.
        tokenizer: where the model's tokenizer came from, if not from there.
        model_sha256, tokenizer_sha256: checked when it is used.
        vocab_size: every token is below.
        dtype: of the keys on disk.
        seconds: what computing the keys took.
        pruned: what was done to it, in order.
        counts_sha256: of the file of counts; None: one pair a key.
    """

    kind: str
    model: str
    tokenizer: str
    layer: str
    model_sha256: str
    tokenizer_sha256: str
    dim: int
    vocab_size: int
    dtype: str
    keys: int
    seconds: float = 0.0
    pruned: tuple[dict[str, Any], ...] = ()
    counts_sha256: str | None = None


@dataclass(frozen=True)
class Neighbours:
    """What is nearest to m keys, nearest first.

    scores: float32 [m,k], -inf where invalid. tokens: int32 [m,k]. valid: bool [m,k]. counts: int32 [m,k], None: one pair each.
    """

    scores: np.ndarray
    tokens: np.ndarray
    valid: np.ndarray
    counts: np.ndarray | None

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        counts = None if self.counts is None else torch.from_numpy(self.counts)
        return torch.from_numpy(self.scores), torch.from_numpy(self.tokens), torch.from_numpy(self.valid), counts


def owner(facts: DatastoreFacts, windows: WindowSet) -> dict[str, Any]:
    """What the generation of keys must say of itself: whose they are, and of which windows."""
    return {
        "corpus_id": windows.sha256,
        "tokenizer_sha256": facts.tokenizer_sha256,
        "document_embedder_sha256": f"{facts.model_sha256}/{facts.layer}",
    }


@dataclass(frozen=True)
class Datastore:
    """An open datastore.

    Attributes:
        counts: int32 [n], pairs merged into each key; None: one each.
    """

    path: Path
    facts: DatastoreFacts
    windows: WindowSet
    snapshot: Snapshot
    counts: np.ndarray | None

    @classmethod
    def open(cls, path: Path, network: Network | None = None, *, verify: bool = True) -> "Datastore":
        """Open a datastore, for the network that is to use it if one is given.

        Args:
            verify: read every file and compare its SHA-256.

        Raises:
            SnapshotError: missing, damaged, unfinished, or made by another model, tokenizer, layer or dimension.
        """
        facts = read_facts(path)
        if network is not None:
            check_network(path, facts, network)
        windows = WindowSet(path / WINDOWS, verify=verify)
        try:
            snapshot = Snapshot.open(path / INDEX, **owner(facts, windows), verify=verify)
        except SnapshotError as error:
            raise SnapshotError(f"the keys cannot be used: {error.problem}", path=path, cure=REMAKE) from error
        manifest = snapshot.manifest
        if (manifest.dim, manifest.count) != (facts.dim, facts.keys) or (manifest.count and snapshot.block_ids[-1] >= windows.count):
            raise SnapshotError("keys, tokens and datastore.json do not belong together", path=path, cure=REMAKE)
        described = {"count": facts.keys, "sha256": facts.counts_sha256}
        return cls(path, facts, windows, snapshot, mapped_array(path / COUNTS, described, True) if facts.counts_sha256 else None)

    def __len__(self) -> int:
        return self.facts.keys

    @cached_property
    def tokens(self) -> np.ndarray:
        """The wanted token of each key, int32 [n]."""
        return np.asarray(self.windows.targets[self.snapshot.block_ids])

    def index(self, kind: str = "auto", metric: Metric = "l2") -> RowIndex:
        """A search over the keys; hits carry the token, and the count where there are counts.

        Raises:
            ConfigError: no such kind or metric.
            MissingExtra: "clustered" without faiss.
        """
        if kind not in ("auto", *KINDS) or metric not in ("ip", "l2"):
            cure = f"Kinds are auto, {', '.join(KINDS)}; metrics are l2, ip"
            raise ConfigError(f"no index '{kind}' with metric '{metric}'", cure=cure)
        values = self.tokens if self.counts is None else np.stack([self.tokens, self.counts], 1)
        return make_index(self.snapshot.vectors, self.snapshot.block_ids, kind=kind, metric=metric, values=values)


def find_neighbours(index: RowIndex, keys: torch.Tensor, k: int, exclude: Sequence[np.ndarray] | None = None) -> Neighbours:
    """The k nearest of each key, floating point [m,d].

    Args:
        exclude: for each key the numbers of wanted tokens (int64) that it must not get.

    Raises:
        DataError: a key is not finite.
        SnapshotError: keys of another dimension.
    """
    if keys.shape[1] != index.dim:
        raise SnapshotError(f"the datastore has keys of {index.dim} dimensions, the model's have {keys.shape[1]}", cure=REMAKE)
    if not bool(torch.isfinite(keys).all()):
        cure = "The model's weights are damaged or overflow: load it in float32"
        raise DataError("a state of the model is not finite, so it has no neighbours", cure=cure)
    hits = index.search(keys.float(), k, exclude)
    assert hits.values is not None
    pairs = hits.values if hits.values.ndim == 3 else None
    return Neighbours(hits.scores, hits.values if pairs is None else pairs[..., 0], hits.valid, None if pairs is None else pairs[..., 1])


def check_network(path: Path, facts: DatastoreFacts, network: Network) -> None:
    """Refuse a model that did not make this datastore. Raises SnapshotError: it did not."""
    checks = (
        (facts.kind == network.kind, f"made by a {facts.kind} model, this one is {network.kind}"),
        (facts.tokenizer_sha256 == network.tokenizer_sha256, "made with another tokenizer than the model's"),
        (facts.layer == network.layer.name, f"its keys come from the layer '{facts.layer}', not '{network.layer.name}'"),
        (facts.dim == network.dim, f"its keys have {facts.dim} dimensions, the model's have {network.dim}"),
        (facts.model_sha256 == network.sha256, "made by another model"),
    )
    if wrong := next((said for fits, said in checks if not fits), None):
        raise SnapshotError(f"this datastore does not fit the model: {wrong}", path=path, cure=REMAKE)


def read_facts(path: Path) -> DatastoreFacts:
    """What the datastore ``path`` says of itself.

    Raises:
        SnapshotError: none is there, its build has not ended, it is damaged, or another version's.
    """
    file = path / FACTS
    try:
        value = unsealed(json_value(file.read_text("utf-8")), ERRORS, file)
        if value.pop("format") != FORMAT:
            raise SnapshotError(f"a datastore of another format than {FORMAT}", path=file, cure=REMAKE)
        value["pruned"] = tuple(value["pruned"])
        return DatastoreFacts(**value)
    except FileNotFoundError:
        unfinished = (path / WINDOWS).exists()
        problem = "this datastore is not finished" if unfinished else "no datastore here"
        cure = "Run the same realm knn build again" if unfinished else "Make one with: realm knn build"
        raise SnapshotError(problem, path=path, cure=cure) from None
    except OSError as error:
        raise SnapshotError(error.strerror or "cannot be read", path=file, cure="Check the path") from error
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SnapshotError("damaged", path=file, cure=REMAKE) from None
