"""What becomes of bytes on a disk, drawn from a seed: the same case number is the same damage to the same file."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PAGE = 4096
HARMS = ("bit", "page", "cut", "swap", "append", "lost")
"""One bit flipped; a page of zeros; cut short; changed places with another file of its kind; bytes after its end; no longer there."""


@dataclass(frozen=True)
class Case:
    """One damage. ``other`` is the file that took this one's place, or None."""

    subject: str
    file: str
    harm: str
    at: int
    other: str | None = None

    def __str__(self) -> str:
        return f"{self.subject}/{self.file}: {self.harm} at {self.at}" + (f" with {self.other}" if self.other else "")


def kind_of(subject: str, name: str) -> str:
    """What kind of file this is: its name without numbers, and the uppermost folder that it lies in."""
    path = Path(name)
    return f"{subject}/{path.parts[0] if len(path.parts) > 1 else ''}/{re.sub('[0-9]+', 'n', path.name)}"


class Drawer:
    """Draws cases: a kind of file first, so that a corpus of many segments does not hide its one ``CURRENT``.

    Args:
        root: a directory with one directory a subject, as it was published.
        subjects: their names."""

    def __init__(self, root: Path, subjects: tuple[str, ...]):
        self.root = root
        self.kinds: dict[str, list[tuple[str, str]]] = {}
        self.alike: dict[str, list[str]] = {}
        for subject in subjects:
            for path in sorted((root / subject).rglob("*")):
                if not path.is_file() or not path.stat().st_size or path.name.startswith("LOCK"):
                    continue
                name = path.relative_to(root / subject).as_posix()
                self.kinds.setdefault(kind_of(subject, name), []).append((subject, name))
                self.alike.setdefault(re.sub("[0-9]+", "n", path.name), []).append(f"{subject}/{name}")

    def draw(self, seed: int, number: int) -> Case:
        """Case ``number``: kinds and harms take turns, so that each meets each; file and place are drawn."""
        kinds, draw = sorted(self.kinds), np.random.default_rng([seed, number])
        kind, harm = kinds[number % len(kinds)], HARMS[number // len(kinds) % len(HARMS)]
        subject, name = self.kinds[kind][draw.integers(len(self.kinds[kind]))]
        size = (self.root / subject / name).stat().st_size
        if harm == "swap":
            mine = (self.root / subject / name).read_bytes()
            others = [one for one in self.alike[re.sub("[0-9]+", "n", Path(name).name)] if (self.root / one).read_bytes() != mine]
            if others:
                return Case(subject, name, harm, 0, others[draw.integers(len(others))])
            harm = "bit"  # there is no other of its kind
        places = {"bit": 8 * size, "page": -(-size // PAGE), "cut": size, "append": PAGE, "lost": 1}
        return Case(subject, name, harm, int(draw.integers(places[harm])))

    def apply(self, case: Case, work: Path) -> None:
        path = work / case.file
        if case.harm == "lost":
            path.unlink()
            return
        data = bytearray(path.read_bytes())
        if case.harm == "bit":
            data[case.at // 8] ^= 1 << case.at % 8
        elif case.harm == "page":
            page = slice(case.at * PAGE, (case.at + 1) * PAGE)
            data[page] = bytes(len(data[page]))
        elif case.harm == "cut":
            del data[case.at :]
        elif case.harm == "append":
            data += np.random.default_rng(case.at).bytes(case.at + 1)
        else:
            assert case.other is not None
            self._swap(case, work, bytes(data))
            return
        path.write_bytes(data)

    def _swap(self, case: Case, work: Path, mine: bytes) -> None:
        """Two files of one subject change places; one of another subject takes the place."""
        assert case.other is not None
        (work / case.file).write_bytes((self.root / case.other).read_bytes())
        subject, _, name = case.other.partition("/")
        if subject == case.subject:
            (work / name).write_bytes(mine)
