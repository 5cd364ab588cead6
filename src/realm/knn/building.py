"""Building a datastore: windows first, then their keys part by part; a killed build continues after its last complete part."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from realm.errors import ConfigError, DataError, SnapshotError
from realm.index.building import Parts
from realm.index.checks import MAX_DIM
from realm.index.manifest import DTYPES, SnapshotFacts
from realm.index.shards import STORED, stored_width
from realm.index.snapshot import Snapshot, publish_snapshot
from realm.knn.datastore import FACTS, FORMAT, INDEX, WINDOWS, Datastore, DatastoreFacts, owner
from realm.knn.network import Network
from realm.knn.windows import Window, WindowSet, write_windows
from realm.storage.files import make_directory
from realm.storage.locks import held
from realm.storage.manifests import write_sealed

ID_BYTES, TOKEN_BYTES = 8, 16
"""On disk for each pair beside its key: its id; its token, its place and what the model reads for it (twice, with half a context kept)."""
SPARE = 1 << 26

Progress = Callable[[int, int], None]
Announce = Callable[[dict[str, int]], None]


def forecast(windows: int, keys: int, dim: int, dtype: str) -> dict[str, int]:
    """What a datastore will take: {"windows", "keys", "dim", "disk_bytes", "memory_bytes"}; memory is that of searching it.

    Raises:
        ConfigError: an unknown dtype, or a dimension that no index takes.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"no dtype '{dtype}' for keys", cure=f"It is one of: {', '.join(DTYPES)}")
    if dim > MAX_DIM:
        raise ConfigError(f"keys of {dim} dimensions, an index takes at most {MAX_DIM}", cure="Name a narrower layer.")
    on_disk = stored_width(dim, dtype) * STORED[dtype].itemsize + ID_BYTES + TOKEN_BYTES
    widened = 0 if dtype == "float32" else 4 * dim  # float32 keys are mapped, others widened in memory
    memory = keys * (widened + dim + ID_BYTES + TOKEN_BYTES // 4)
    return {"windows": windows, "keys": keys, "dim": dim, "disk_bytes": keys * on_disk, "memory_bytes": memory}


class DatastoreOptions(TypedDict, total=False):
    """How a datastore is built.

    dtype: of the keys on disk: float16 (the default), float32, bfloat16 or int8. tokenizer: where it came from, if not from the model.
    progress: called with (keys done, keys in all). announce: called with the forecast before the first key is computed.
    """

    dtype: str
    tokenizer: str
    progress: Progress | None
    announce: Announce | None


def build_datastore(directory: Path, network: Network, windows: Callable[[], WindowSet], **options: Unpack[DatastoreOptions]) -> Datastore:
    """Compute the keys of all windows and publish them. A killed build continues after its last part; a finished one is only opened.

    Memory: the network, one batch of it, and one part of keys.

    Args:
        windows: gives the windows, rebuilt or found in ``directory``; see ``ensure_windows``.

    Raises:
        SnapshotError: the directory holds another datastore, or the disk refuses.
        DataError: no text, or a key that is not finite.
        ConfigError: see ``forecast``.
    """
    dtype, progress, announce = options.get("dtype", "float16"), options.get("progress"), options.get("announce")
    forecast(0, 0, network.dim, dtype)  # refuses what cannot be before anything is read
    make_directory(directory)

    def busy(who: str) -> SnapshotError:
        return SnapshotError(f"another process{who} is building this datastore", path=directory, cure="Wait until it has ended")

    with held(directory, busy):
        made = windows()
        expected = forecast(len(made), made.count, network.dim, dtype)
        if announce is not None:
            announce(expected)
        _check_room(directory, expected["disk_bytes"])

        def parts(first_row: int) -> Iterator[np.ndarray]:
            for first, stop in made.parts(first_row):
                yield keys_of_part(network, made, first, stop)
                if progress is not None:
                    progress(made.rows(first, stop).stop, made.count)

        facts = DatastoreFacts(
            kind=network.kind,
            model=network.name,
            tokenizer=options.get("tokenizer", ""),
            layer=network.layer.name,
            model_sha256=network.sha256,
            tokenizer_sha256=network.tokenizer_sha256,
            dim=network.dim,
            vocab_size=network.vocab_size,
            dtype=dtype,
            keys=made.count,
        )
        publish_datastore(directory, facts, made, parts, np.arange(made.count))
    return Datastore.open(directory)


def ensure_windows(directory: Path, made_from: dict[str, Any], windows: Iterable[Window], facts: Callable[[], dict[str, Any]]) -> WindowSet:
    """The windows in ``directory``, made now where there are none.

    Args:
        made_from: JSON; all that they depend on.
        facts: see ``write_windows``.

    Raises:
        SnapshotError: those there were made from something else.
        DataError: no text.
    """
    path = directory / WINDOWS
    if path.exists():
        found = WindowSet(path, verify=True)
        if found.facts.get("made_from") != json.loads(json.dumps(made_from)):
            cure = "Choose another directory, or delete this one"
            raise SnapshotError("holds the datastore of other sources or of another model", path=directory, cure=cure)
        return found
    return write_windows(path, windows, lambda: {**facts(), "made_from": made_from})


def keys_of_part(network: Network, windows: WindowSet, first: int, stop: int) -> np.ndarray:
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


def publish_datastore(directory: Path, facts: DatastoreFacts, windows: WindowSet, parts: Parts, ids: np.ndarray) -> None:
    """Publish keys as the generation of ``directory``, unless they are there, and then ``datastore.json``.

    Args:
        facts: all but ``seconds``.
        ids: numbers of the keys' wanted tokens, ascending.

    Raises:
        SnapshotError: keys of another dtype are there, or the disk refuses.
    """
    try:
        manifest = Snapshot.open(directory / INDEX, **owner(facts, windows)).manifest
    except SnapshotError:
        about = SnapshotFacts(params_generation=0, step=0, corpus_version=0, dtype=facts.dtype, **owner(facts, windows))
        manifest = publish_snapshot(directory / INDEX, parts, ids.astype(np.int64), about)
    if (manifest.dtype, manifest.count) != (facts.dtype, len(ids)):
        cure = "Choose another directory, or delete this one"
        raise SnapshotError(f"holds {manifest.count} keys of dtype {manifest.dtype}", path=directory, cure=cure)
    said = {"format": FORMAT, **asdict(replace(facts, seconds=manifest.seconds))}
    write_sealed(directory / FACTS, json.loads(json.dumps(said)))  # the checksum is over what will be read: keys are strings


def _check_room(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    done = sum(path.stat().st_size for path in (directory / INDEX).rglob("*.npy")) if (directory / INDEX).exists() else 0
    if needed - done + SPARE > free:
        problem = f"the datastore takes {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free"
        raise SnapshotError(problem, path=directory, cure="Free space, build with --dtype int8, or give fewer sources")
