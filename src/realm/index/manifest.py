"""The manifest of one index generation: what it holds, what made it, and a checksum over itself.

Every file of a generation is named here with its SHA-256, ids beside the vectors they belong to. One manifest is one revision: who reads
the manifest first and then only the files it names can never mix two of them.
"""

from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from realm.errors import SnapshotError
from realm.storage.manifests import Errors, read_sealed, write_sealed

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
DTYPES = ("float32", "float16", "bfloat16", "int8")


class DamagedSnapshot(SnapshotError):
    """Files of a generation that are missing, cut short or changed since they were published."""


ERRORS = Errors(DamagedSnapshot, partial(SnapshotError, cure="Check the permissions and the disk"))
"""For files of an index; a file that the disk cannot read is not moved aside."""


@dataclass(frozen=True)
class Shard:
    """Rows published together: a vectors file [rows,d] and an ids file int64 [rows]."""

    file: str
    sha256: str
    ids_file: str
    ids_sha256: str
    rows: int
    first_block_id: int | None  # None when there are no rows

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all its files."""
        return self.file, self.ids_file


@dataclass(frozen=True, kw_only=True)
class SnapshotFacts:
    """What a publisher says of a generation.

    Attributes:
        params_generation: counter of the parameters that embedded it.
        step: training step of those parameters.
        document_embedder_sha256: whose vectors these are; like the next two, checked when the generation is opened.
        corpus_id: the corpus it was built from.
        tokenizer_sha256: the tokenizer of that corpus.
        corpus_version: the corpus's counter when the last rows were added.
        tombstone_version: the corpus's counter whose removals were left out.
        dtype: one of DTYPES (``realm.index.shards`` says how they are stored).
        segments: (corpus segment, rows) in row order, empty if the publisher did not say.
    """

    params_generation: int
    step: int
    document_embedder_sha256: str
    corpus_id: str
    tokenizer_sha256: str
    corpus_version: int
    tombstone_version: int = 0
    dtype: str = "float32"
    segments: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class SnapshotManifest(SnapshotFacts):
    """One revision of one generation: its facts, and what lies on disk.

    Attributes:
        generation: counter of the index.
        revision: 0 when published, one more for each delta.
        dim: d.
        count: n, rows of all shards.
        shards: in row order.
        seconds: what building revision 0 took, over all processes that took it up.
    """

    generation: int
    revision: int
    dim: int
    count: int
    shards: tuple[Shard, ...]
    seconds: float = 0.0
    format_version: int = FORMAT_VERSION


def fields_of(facts: SnapshotFacts) -> dict[str, Any]:
    """The facts alone, of a manifest too."""
    return {field.name: getattr(facts, field.name) for field in fields(SnapshotFacts)}


def write_manifest(generation_directory: Path, manifest: SnapshotManifest) -> None:
    """Publish a revision: readers see the old manifest or this one."""
    write_sealed(generation_directory / MANIFEST, asdict(manifest))


def read_manifest(generation_directory: Path, generation: int) -> SnapshotManifest:
    """Read the manifest of ``generation`` and check it against itself.

    Raises:
        DamagedSnapshot: missing, not JSON, changed since it was written, or another generation's.
        SnapshotError: written by another version of the format.
    """
    path = generation_directory / MANIFEST
    value = read_sealed(path, ERRORS)
    if value.get("format_version") != FORMAT_VERSION:
        problem = f"index format {value.get('format_version')}, this version reads format {FORMAT_VERSION}"
        raise SnapshotError(problem, path=path, cure="Build the index again: realm index build RUN")
    value["segments"] = tuple((str(name), int(rows)) for name, rows in value["segments"])
    _refuse_mixed(value, path)
    value["shards"] = tuple(Shard(**{key: shard[key] for key in Shard.__dataclass_fields__}) for shard in value["shards"])
    manifest = SnapshotManifest(**{name: value[name] for name in SnapshotManifest.__dataclass_fields__})
    if manifest.generation != generation:
        raise DamagedSnapshot(f"this is generation {manifest.generation}, in the directory of generation {generation}", path=path)
    return manifest


def _refuse_mixed(value: dict[str, Any], path: Path) -> None:
    """Take out of a manifest what earlier versions said of rows that several parameters had embedded; whole generations say nothing there.

    Raises:
        SnapshotError: its rows were embedded by several parameters.
    """
    kind = value.pop("kind", "whole")
    value.pop("mixture", None)
    if kind != "whole":
        problem = f"an index of kind '{kind}': its rows were embedded by several parameters, which this version does not search"
        raise SnapshotError(problem, path=path, cure="Finish pre-training with realm run: its last generation has one set of parameters")
