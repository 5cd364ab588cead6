"""A datastore: (key, wanted token) pairs of a text, as a directory of published files, built part by part.

``DATASTORE/index/`` holds the keys as a generation of the index's own snapshot protocol (its ids are numbers of wanted tokens),
``DATASTORE/values.npy`` the wanted tokens, ``DATASTORE/datastore.json`` the model and the text they are of; it is written last."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import torch

from realm.errors import ConfigError, DataError, SnapshotError
from realm.knn.network import HubNetwork, Network
from realm.knn.windows import TextOptions, WindowSet, windows_of_texts
from realm.runs.mending import Damage, findings
from realm.search.index.base import RowIndex
from realm.search.index.choice import make_index
from realm.search.index.mips import MAX_DIM
from realm.search.publishing.snapshot import DTYPES, Snapshot, SnapshotFacts
from realm.search.publishing.writing import Parts, publish_snapshot
from realm.storage.arrays import publish_array, read_array
from realm.storage.files import make_directory
from realm.storage.locks import held
from realm.storage.manifests import Errors, read_sealed, write_sealed

FORMAT = 3
FACTS, INDEX, VALUES = "datastore.json", "index", "values.npy"
ELSEWHERE = "Choose another directory, or delete this one"
REMAKE = "Build the datastore again: realm knn build"
_damage = partial(SnapshotError, cure=REMAKE)
ERRORS = Errors(damaged=_damage, refused=_damage)
Progress = Callable[[int, int], None]
"""Called with (done, in all)."""


@dataclass(frozen=True)
class DatastoreFacts:
    """Identity of a datastore.

    ``kind``: causal or translation; ``model``: directory or hub name; ``windows_sha256`` of the text as read; ``text``:
    sources and options, or state of a run's corpus; ``seconds`` of computing the keys."""

    kind: str
    model: str
    layer: str
    model_sha256: str
    tokenizer_sha256: str
    windows_sha256: str
    text: dict[str, Any]
    dim: int
    dtype: str
    keys: int
    values_sha256: str = ""
    seconds: float = 0.0

    @classmethod
    def read(cls, path: Path) -> "DatastoreFacts":
        """Those of the datastore ``path``. Raises SnapshotError: none is there, unfinished, damaged, or of another version."""
        if not (path / FACTS).exists():
            unfinished = (path / INDEX).exists()
            problem = "this datastore is not finished" if unfinished else "no datastore here"
            cure = "Run the same realm knn build again" if unfinished else "Make one with: realm knn build"
            raise SnapshotError(problem, path=path, cure=cure)
        value = read_sealed(path / FACTS, ERRORS)
        if value.pop("format") != FORMAT:
            raise SnapshotError(f"a datastore of another format than {FORMAT}", path=path / FACTS, cure=REMAKE)
        return cls(**value)

    @property
    def owner(self) -> dict[str, Any]:
        """Owner of the generation of keys: the model and the windows."""
        embedder = f"{self.model_sha256}/{self.layer}"
        return {"corpus_id": self.windows_sha256, "tokenizer_sha256": self.tokenizer_sha256, "document_embedder_sha256": embedder}

    def check(self, path: Path, network: Network) -> None:
        """Refuse a model that did not make the datastore ``path``. Raises SnapshotError: it did not."""
        checks = (
            (self.kind == network.kind, f"made by a {self.kind} model, this one is {network.kind}"),
            (self.tokenizer_sha256 == network.tokenizer_sha256, "made with another tokenizer than the model's"),
            (self.layer == network.layer.name, f"its keys come from the layer '{self.layer}', not '{network.layer.name}'"),
            (self.dim == network.dim, f"its keys have {self.dim} dimensions, the model's have {network.dim}"),
            (self.model_sha256 == network.sha256, "made by another model"),
        )
        if wrong := next((problem for fits, problem in checks if not fits), None):
            raise SnapshotError(f"this datastore does not fit the model: {wrong}", path=path, cure=REMAKE)


@dataclass(frozen=True)
class Neighbours:
    """Nearest pairs of m keys, nearest first.

    scores: float32 [m,k], -inf where invalid. tokens: int32 [m,k]. valid: bool [m,k]."""

    scores: np.ndarray
    tokens: np.ndarray
    valid: np.ndarray

    @classmethod
    def empty(cls, n: int, k: int) -> "Neighbours":
        return cls(np.full((n, k), -np.inf, np.float32), np.zeros((n, k), np.int32), np.zeros((n, k), np.bool_))

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return torch.from_numpy(self.scores), torch.from_numpy(self.tokens), torch.from_numpy(self.valid)


@dataclass(frozen=True)
class Datastore:
    """An open datastore; ``tokens`` int32 [n]: the wanted token of each key.

    >>> datastore = Datastore.open(Path("runs/knn"))  # doctest: +SKIP
    >>> find_neighbours(datastore.index(), keys, k=8).tokens.shape  # keys [m,d]  # doctest: +SKIP
    (4, 8)
    """

    path: Path
    facts: DatastoreFacts
    snapshot: Snapshot
    tokens: np.ndarray

    @classmethod
    def open(cls, path: Path, network: Network | None = None) -> "Datastore":
        """Open a datastore, of this network if one is given. Raises SnapshotError: missing, damaged, unfinished, or another model's."""
        facts = DatastoreFacts.read(path)
        if network is not None:
            facts.check(path, network)
        try:
            snapshot = Snapshot.open(path / INDEX, **facts.owner)
        except SnapshotError as error:
            raise SnapshotError(f"the keys cannot be used: {error.problem}", path=path, cure=REMAKE) from error
        if (snapshot.manifest.dim, snapshot.manifest.count) != (facts.dim, facts.keys):
            raise SnapshotError("keys and datastore.json do not belong together", path=path, cure=REMAKE)
        tokens = read_array(path / VALUES, (facts.keys,), np.dtype(np.int32), ERRORS, sha256=facts.values_sha256)
        return cls(path, facts, snapshot, tokens)

    def __len__(self) -> int:
        return self.facts.keys

    def index(self, kind: str = "auto") -> RowIndex:
        """A search over the keys by squared distance, as ``make_index``; hits carry the tokens as ``values``."""
        return make_index(self.snapshot.vectors, self.snapshot.block_ids, kind=kind, metric="l2", values=self.tokens)


def find_neighbours(index: RowIndex, keys: torch.Tensor, k: int) -> Neighbours:
    """The k nearest of each key, floating point [m,d]. Raises DataError: a key is not finite; SnapshotError: another dimension."""
    if keys.shape[1] != index.dim:
        raise SnapshotError(f"the datastore has keys of {index.dim} dimensions, the model's have {keys.shape[1]}", cure=REMAKE)
    if not bool(torch.isfinite(keys).all()):
        cure = "The model's weights are damaged or overflow: load it in float32"
        raise DataError("a state of the model is not finite, so it has no neighbours", cure=cure)
    hits = index.search(keys.detach().float().cpu().numpy(), k)
    assert hits.values is not None
    return Neighbours(hits.scores, hits.values, hits.valid)


class BuildOptions(TypedDict, total=False):
    """dtype: of the keys on disk: float16 (the default) or float32."""

    dtype: str
    progress: Progress | None


def build_from_texts(
    directory: Path, network: HubNetwork, sources: Sequence[Path], options: TextOptions | None = None, **how: Unpack[BuildOptions]
) -> Datastore:
    """A datastore of documents (for a language model) or of pairs of sentences (for a translation model)."""
    options = options or TextOptions()
    text = {"sources": [str(source) for source in sources], "options": asdict(options)}
    return build_datastore(directory, network, windows_of_texts(network, sources, options), text, **how)


def build_datastore(
    directory: Path, network: Network, windows: WindowSet, text: dict[str, Any], **options: Unpack[BuildOptions]
) -> Datastore:
    """Compute the keys of all windows and publish them. A killed build continues after its last part; a finished one is only opened.

    Memory: windows, network, one batch and one part of keys. Raises SnapshotError: another datastore is here, or the disk refuses;
    DataError: a key that is not finite; ConfigError: an unknown dtype, or keys that are too wide."""
    dtype, progress = options.get("dtype", "float16"), options.get("progress")
    if dtype not in DTYPES:
        raise ConfigError(f"no dtype '{dtype}' for keys", cure=f"It is one of: {', '.join(DTYPES)}")
    if network.dim > MAX_DIM:
        raise ConfigError(f"keys of {network.dim} dimensions, an index takes at most {MAX_DIM}", cure="Name a narrower layer.")
    make_directory(directory)

    def parts(first_row: int) -> Iterator[np.ndarray]:
        for first, stop in windows.parts(first_row):
            yield _keys_of_part(network, windows, first, stop)
            if progress is not None:
                progress(windows.rows(first, stop).stop, windows.count)

    problem, cure = "another process{} is building this datastore", "Wait until it has ended"
    with held(directory, lambda who: SnapshotError(problem.format(who), path=directory, cure=cure)):
        identity = (network.kind, network.name, network.layer.name, network.sha256, network.tokenizer_sha256, windows.sha256)
        facts = DatastoreFacts(*identity, {**windows.counts, **text}, network.dim, dtype, windows.count)
        if (directory / FACTS).exists() and DatastoreFacts.read(directory).owner != facts.owner:
            raise SnapshotError("holds the datastore of other sources or of another model", path=directory, cure=ELSEWHERE)
        publish_datastore(directory, facts, parts, windows.targets)
    return Datastore.open(directory)


def _keys_of_part(network: Network, windows: WindowSet, first: int, stop: int) -> np.ndarray:
    """Keys of a run of windows in the order of the wanted tokens: float32 [r,d]. Raises DataError: a key that is not finite."""
    rows = windows.rows(first, stop)
    keys = np.empty((rows.stop - rows.start, network.dim), np.float32)
    for at, batch in windows.batches(first, stop):
        keys[at] = network.read(batch, log_probs=False).keys.cpu().numpy()
    if not (finite := np.isfinite(keys).all(axis=1)).all():
        row = rows.start + int(np.flatnonzero(~finite)[0])
        cure = "The model's weights are damaged or overflow: load it in float32, or name another layer."
        raise DataError(f"the key of token {row} at the layer '{network.layer.name}' is not finite", cure=cure)
    return keys


def publish_datastore(directory: Path, facts: DatastoreFacts, parts: Parts, tokens: np.ndarray) -> None:
    """Publish keys, unless they are there, and their wanted tokens, int32 [n]; ``datastore.json`` comes last.

    Raises SnapshotError: keys of another dtype are there, or the disk refuses."""
    try:
        manifest = Snapshot.open(directory / INDEX, **facts.owner).manifest
    except SnapshotError:
        about = SnapshotFacts(params_generation=0, step=0, corpus_version=0, dtype=facts.dtype, **facts.owner)
        manifest = publish_snapshot(directory / INDEX, parts, np.arange(len(tokens)), about)
    if (manifest.dtype, manifest.count) != (facts.dtype, len(tokens)):
        raise SnapshotError(f"holds {manifest.count} keys of dtype {manifest.dtype}", path=directory, cure=ELSEWHERE)
    facts = replace(facts, values_sha256=publish_array(directory / VALUES, tokens), seconds=manifest.seconds)
    write_sealed(directory / FACTS, json.loads(json.dumps({"format": FORMAT, **asdict(facts)})))  # the checksum covers JSON as it is read


def is_datastore(place: Path) -> bool:
    """Tell a datastore, even one whose datastore.json is lost, from a run or a corpus."""
    return (place / FACTS).exists() or (place / VALUES).exists()


def verify_datastore(place: Path) -> list[Damage]:
    """Read everything in a datastore; opening one does."""
    return list(findings(lambda: Datastore.open(place), place))
