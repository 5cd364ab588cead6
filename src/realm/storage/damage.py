"""What is wrong with something that was published, and what can make it whole again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Damage:
    """One finding.

    Attributes:
        path: the file or directory at fault.
        problem: what is wrong with it, without a final full stop.
        cure: what ``mend`` does; without it, what is left to do by hand.
        mend: makes it whole from what is intact; None: nothing here can.
        documents: ids of the documents that are affected, where that is known.
    """

    path: Path
    problem: str
    cure: str
    mend: Callable[[], object] | None = None
    documents: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """What ``--json`` says of it."""
        return {
            "path": str(self.path),
            "problem": self.problem,
            "cure": self.cure,
            "repairable": self.mend is not None,
            "documents": list(self.documents),
        }
