"""Every generation of a run read through and checked, without touching any."""

from dataclasses import dataclass

from realm.data.blocks import BlockInputs
from realm.errors import RealmError
from realm.index.snapshot import read_generation
from realm.index.sparse import verify_sparse
from realm.paths import RunPaths
from realm.refresh.generation import load_parameters
from realm.storage.generations import QUARANTINE_SUFFIX, generation_path, published_generations


@dataclass(frozen=True)
class Verified:
    """One generation.

    Attributes:
        generation: its number.
        blocks: rows; None if that is not known.
        problem: what is wrong with it, in one line; None if nothing is.
    """

    generation: int
    blocks: int | None
    problem: str | None


def verify_generations(paths: RunPaths, inputs: BlockInputs) -> tuple[list[Verified], list[str]]:
    """Read every byte of every published generation, of the sparse index beside it and of its parameters.

    Returns:
        The generations, oldest first, and the names of those that were put aside before.
    """
    manifest = inputs.store.manifest
    owner = {"corpus_id": manifest.corpus_id, "tokenizer_sha256": manifest.tokenizer_sha256}
    found = []
    for number in published_generations(paths.index):
        blocks = None
        try:
            snapshot = read_generation(generation_path(paths.index, number), number, dict(owner), verify=True)
            blocks = len(snapshot.block_ids)
            load_parameters(paths, snapshot)
            verify_sparse(paths.index, number)
            found.append(Verified(number, blocks, None))
        except RealmError as error:
            found.append(Verified(number, blocks, str(error)))
    return found, sorted(path.name for path in paths.index.glob(f"*{QUARANTINE_SUFFIX}"))
