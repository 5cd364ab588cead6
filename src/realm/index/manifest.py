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
WHOLE, MIXED = "whole", "mixed"
"""Kinds: all rows embedded by one generation of parameters, or each by its own."""
KINDS = (WHOLE, MIXED)


class DamagedSnapshot(SnapshotError):
    """Files of a generation that are missing, cut short or changed since they were published."""


ERRORS = Errors(DamagedSnapshot, partial(SnapshotError, cure="Check the permissions and the disk"))
"""For files of an index; what the disk refuses to give is not put aside."""


class MixedGeneration(SnapshotError):
    """A generation whose rows were embedded by several parameters, where one document embedder must have made them all."""


@dataclass(frozen=True)
class Shard:
    """Rows published together: a vectors file [rows,d] and an ids file int64 [rows].

    In a mixed generation there is a third, int32 [rows]: the parameter generation of every row.
    """

    file: str
    sha256: str
    ids_file: str
    ids_sha256: str
    rows: int
    first_block_id: int | None  # None when there are no rows
    params_file: str | None = None
    params_sha256: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all its files."""
        return tuple(name for name in (self.file, self.ids_file, self.params_file) if name is not None)


@dataclass(frozen=True)
class Portion:
    """The rows of a mixed generation that one generation of parameters embedded.

    Attributes:
        params_generation: its counter.
        step: training step of those parameters.
        rows: how many.
    """

    params_generation: int
    step: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class SnapshotFacts:
    """What a publisher says of a generation.

    Attributes:
        params_generation: counter of the parameters that embedded it; of a mixed one, the newest, whose embedder searches.
        step: training step of those parameters.
        document_embedder_sha256: whose vectors these are; like the next two, checked when the generation is opened.
        corpus_id: the corpus it was built from.
        tokenizer_sha256: the tokenizer of that corpus.
        corpus_version: the corpus's counter when the last rows were added.
        tombstone_version: the corpus's counter whose removals were left out.
        dtype: one of DTYPES (``realm.index.shards`` says how they are stored).
        segments: (corpus segment, rows) in row order, empty if the publisher did not say.
        kind: whole or mixed.
        mixture: of a mixed generation what its rows are made of, oldest parameters first; else empty.
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
    kind: str = WHOLE
    mixture: tuple[Portion, ...] = ()


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
        codes_sha256: of the header of the codes of all rows; None: there are none.
    """

    generation: int
    revision: int
    dim: int
    count: int
    shards: tuple[Shard, ...]
    seconds: float = 0.0
    codes_sha256: str | None = None
    format_version: int = FORMAT_VERSION

    @property
    def mixed(self) -> bool:
        """Whether its rows were embedded by several parameters."""
        return self.kind == MIXED

    @property
    def portions(self) -> tuple[Portion, ...]:
        """What the rows are made of, oldest parameters first; all of a whole generation by one."""
        return self.mixture or (Portion(self.params_generation, self.step, self.count),)

    @property
    def mean_step(self) -> float:
        """Training step of the parameters of a row, mean over rows."""
        return sum(portion.step * portion.rows for portion in self.portions) / max(1, self.count)

    @property
    def params_ages(self) -> dict[str, float]:
        """Counters of the parameters that embedded the rows: oldest, newest, and the mean over rows."""
        mean = sum(portion.params_generation * portion.rows for portion in self.portions) / max(1, self.count)
        oldest, newest = (portion.params_generation for portion in (self.portions[0], self.portions[-1]))
        return {"oldest": oldest, "newest": newest, "mean": round(mean, 2)}

    @property
    def newest_share(self) -> float:
        """Share of the rows that the newest parameters embedded, 0..1."""
        return self.portions[-1].rows / max(1, self.count)


def fields_of(facts: SnapshotFacts) -> dict[str, Any]:
    """The facts alone, of a manifest too."""
    return {field.name: getattr(facts, field.name) for field in fields(SnapshotFacts)}


def require_whole(manifest: SnapshotManifest, path: Path) -> None:
    """See that one document embedder made all rows: it is to be frozen under them.

    Args:
        path: the generation, for the message.

    Raises:
        MixedGeneration: several did.
    """
    if manifest.mixed:
        oldest, newest = manifest.portions[0], manifest.portions[-1]
        problem = f"a mixed index: its rows were embedded by parameters of steps {oldest.step} to {newest.step}, not by one frozen embedder"
        raise MixedGeneration(problem, path=path, cure="Take the last generation of pre-training, which is whole: end it with realm run")


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
    value["shards"] = tuple(Shard(**shard) for shard in value["shards"])
    value["mixture"] = tuple(Portion(**portion) for portion in value.get("mixture", ()))
    if value.get("kind", WHOLE) not in KINDS:
        raise SnapshotError(f"an index of kind '{value['kind']}', which this version does not know", path=path, cure="Take a newer version")
    manifest = SnapshotManifest(**value)
    if manifest.generation != generation:
        raise DamagedSnapshot(f"this is generation {manifest.generation}, in the directory of generation {generation}", path=path)
    return manifest
