"""Codes of compressed search beside the vectors of a generation, so that whoever opens it shares one copy and need not make them.

``NNNNNN/codes/`` holds them; the manifest names the SHA-256 of their header, which names those of the files. Without them, and where they
are damaged or those of other vectors, codes are made in memory.
"""

import logging
import shutil
from pathlib import Path

from realm.errors import SnapshotError
from realm.index.manifest import DamagedSnapshot, Shard, SnapshotManifest
from realm.index.native.kernel import installed_kernel
from realm.index.quantised import QuantisedRows
from realm.index.stored_codes import HEADER, METRIC, open_codes, save_codes
from realm.storage.arrays import load_array
from realm.storage.files import sha256_file

CODES = "codes"
LEAST_ENTRIES = 1 << 26
"""Components (rows x d) from which codes are published: 524,288 rows of 128. Fewer are coded in a tenth of a second."""

logger = logging.getLogger(__name__)


def publish_codes(directory: Path, shard: Shard, dim: int) -> str | None:
    """Write the codes of the vectors of a generation that is being built. What a killed process left of them is replaced.

    Args:
        directory: of the generation; it holds the shard.

    Returns:
        The SHA-256 of their header, for the manifest; None where none are published: too few rows, or no native kernel.
    """
    kernel = installed_kernel()
    if kernel is None or shard.rows * dim < LEAST_ENTRIES:
        return None
    shutil.rmtree(directory / CODES, ignore_errors=True)
    save_codes(directory / CODES, kernel, load_array(directory / shard.file, "r"), made_from=shard.sha256)
    return sha256_file(directory / CODES / HEADER)


def read_codes(directory: Path, manifest: SnapshotManifest, verify: bool) -> QuantisedRows | None:
    """The published codes of a generation, memory-mapped; None where there are none that can be used, with a warning if there should be.

    Args:
        directory: of the generation.
        verify: see ``open_codes``.
    """
    if manifest.codes_sha256 is None or installed_kernel() is None:
        return None
    codes = directory / CODES
    try:
        if not (codes / HEADER).is_file() or sha256_file(codes / HEADER) != manifest.codes_sha256:
            raise DamagedSnapshot("missing, or changed since it was published (SHA-256 differs)", path=codes / HEADER)
        rows = open_codes(codes, made_from=manifest.shards[0].sha256, metric=METRIC, verify=verify)
        if (rows.rows, rows.dim) != (manifest.count, manifest.dim):
            raise DamagedSnapshot(f"codes of [{rows.rows},{rows.dim}], not [{manifest.count},{manifest.dim}]", path=codes)
        return rows
    except (SnapshotError, OSError) as error:
        logger.warning("codes are made again in memory: %s", error)
        return None
