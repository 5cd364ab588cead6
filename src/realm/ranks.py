"""Which process of a job this is, as ``torchrun`` says in the environment. Nothing heavy is imported, so that a command can ask."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessPlace:
    """One process among those of a job.

    Attributes:
        rank: its number, from 0.
        local: its number among those of this machine.
        world: how many there are.
    """

    rank: int
    local: int
    world: int

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0


def place() -> ProcessPlace:
    """This process's place; alone without ``torchrun``."""
    number = {name: int(os.environ.get(name) or default) for name, default in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1))}
    return ProcessPlace(number["RANK"], number["LOCAL_RANK"], number["WORLD_SIZE"])
