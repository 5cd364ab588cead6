"""The named moments at which a write can be cut off. A test stops the process, or fills the disk, at one; otherwise nobody listens.

Every function that publishes something calls :func:`reached` between the steps that must not be told apart by a reader; a test fails
when a publish path has no such point, when a name is not in this list, and when no run of the harness comes by.
"""

from collections.abc import Callable
from pathlib import Path

POINTS = {
    "file: staged": "written and synced under its staging name",
    "file: renamed": "under its own name; the directory is not synced yet",
    "directory: staged": "all files written, nothing synced",
    "directory: synced": "synced under its staging name",
    "directory: renamed": "under its own name; the parent is not synced yet",
    "array: staged": "an .npy file synced under its staging name",
    "array: renamed": "an .npy file under its own name; no manifest names it yet",
    "build: begun": "a build has its directory and nothing in it",
    "build: written": "rows appended, not synced, not noted",
    "build: synced": "rows durable, not noted",
    "build: whole": "all rows noted, no manifest yet",
    "delta: moved": "a file of a new shard is in its generation; no manifest names it yet",
    "generation: published": "a generation under its own name that CURRENT does not reach yet",
    "generation: doomed": "renamed to be deleted, still there",
    "generation: put aside": "a damaged generation renamed, not yet synced",
    "parameters: replaced": "what a killed process left under a number is gone, the new parameters are not there yet",
    "checkpoint: replaced": "a damaged checkpoint is gone, the new one not there yet",
    "checkpoint: pruned": "a new checkpoint is published, older ones are going",
    "metrics: appended": "a row of a log written",
}

Listener = Callable[[str, Path], None]
listener: Listener | None = None
"""Called with (point, path); set by tests alone."""


def reached(point: str, path: Path) -> None:
    """Say that a write of ``path`` has come to ``point``."""
    if listener is not None:
        listener(point, path)
