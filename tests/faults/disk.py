"""A file system that can lose power: it follows what is done below a directory and makes every state that a power cut may leave.

What counts as durable is what POSIX promises and no more. The bytes of a file are durable as they were when that file was synced last.
A name in a directory (made, renamed, linked or deleted) is durable when the directory was synced afterwards. All else may be there or
not, in any order: a rename before the bytes it publishes, a second rename without the first. A rename alone is one step, as every file
system has it.

Nothing is simulated: calls go to the real file system, and the tree is looked at before and after each call that Python makes. So what
Arrow, safetensors and tokenizers write from C++ and Rust is seen as well.
"""

import os
import random
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CALLS = ("fsync", "fdatasync", "replace", "rename", "link", "unlink", "remove", "mkdir", "rmdir", "symlink")
SETTLED = 50_000_000
"""Nanoseconds for which a file whose size and time are as before is read again all the same: clocks of file systems are coarse."""
FEW = 5
"""Operations that are not durable yet of which every single one is tried; of more a sample."""
DIRECTORY = "directory"
LOST, KEPT, TORN = "lost", "kept", "torn"
Entry = tuple[int, str]
"""A name in a directory, which is named by its number here."""
Content = tuple[int, int, str]
"""Number of a file, which of its versions, and how much of it is there."""


@dataclass
class Node:
    """A file or a directory.

    Attributes:
        held: a descriptor: a number of the file system is not given to another file as long as one is open.
        versions: the bytes of a file whenever they were seen to be others; empty for a directory.
        durable: which of them was synced last; -1: none.
        names: of a directory, as they are now.
    """

    held: int
    is_directory: bool
    versions: list[bytes] = field(default_factory=list)
    durable: int = -1
    seen: tuple[int, int] = (-1, -1)
    names: dict[str, int] = field(default_factory=dict)


@dataclass
class Operation:
    """Names that change in one step; None: the name goes."""

    changes: dict[Entry, int | None]
    durable: bool = False


@dataclass(frozen=True)
class State:
    """What a power cut may have left.

    Attributes:
        tree: path -> content, or ``DIRECTORY``.
        when: the call that it came before.
    """

    tree: frozenset[tuple[str, Content | str]]
    when: str


class PowerCuts:
    """Follows one directory while it is in use. Use it as a context manager around the call that publishes.

    Args:
        root: must be there; all that is in it counts as durable.
        seed: of what is sampled.
        random_each: random subsets that are tried at each call.

    Attributes:
        states: everything that a power cut before the end of the call may leave, each once.
        promised: everything that one after the end of the call may leave: what was published must be in it.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, *, seed: int = 0, random_each: int = 6):
        self.root, self._patch = root, patch
        self._rng, self._random_each = random.Random(seed), random_each
        self._nodes: list[Node] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._base: dict[int, dict[str, int]] = {}
        self._operations: list[Operation] = []
        self._inside = False
        self.states: dict[frozenset, State] = {}
        self.promised: dict[frozenset, State] = {}
        self.calls = 0

    def __enter__(self) -> "PowerCuts":
        self._top = self._node(self.root)
        self._look(self._top, self.root, {})
        for number, node in enumerate(self._nodes):
            node.durable = len(node.versions) - 1
            if node.is_directory:
                self._base[number] = dict(node.names)
        for name in CALLS:
            self._patch.setattr(os, name, self._watched(name, getattr(os, name)))
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._patch.undo()
        if kind is None:
            self._inside = True
            self._note()
            self._cut(self.promised, "the end")
        for node in self._nodes:
            os.close(node.held)

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            if self._inside:
                return call(*arguments, **options)
            self._inside = True
            try:
                self._note()
                self._cut(self.states, f"{self.calls}: {name} {_shown(arguments)}")
                self.calls += 1
                result = call(*arguments, **options)
                if name in ("fsync", "fdatasync"):
                    self._synced(arguments[0])
                else:
                    self._note(one=True)
                return result
            finally:
                self._inside = False

        return watched

    # What is there.

    def _node(self, path: Path) -> int:
        found = os.lstat(path)
        key = (found.st_dev, found.st_ino)
        if key not in self._numbers:
            assert not stat.S_ISLNK(found.st_mode), f"{path}: symbolic links are not followed here"
            self._numbers[key] = len(self._nodes)
            self._nodes.append(Node(os.open(path, os.O_RDONLY), stat.S_ISDIR(found.st_mode)))
        return self._numbers[key]

    def _look(self, number: int, path: Path, changes: dict[Entry, int | None]) -> None:
        """Read a directory and all below; put the names that differ from before into ``changes``."""
        directory = self._nodes[number]
        now = {name: self._node(path / name) for name in os.listdir(path)}
        changes.update({(number, name): found for name, found in now.items() if directory.names.get(name) != found})
        changes.update({(number, name): None for name in directory.names if name not in now})
        directory.names = now
        for name, found in now.items():
            node = self._nodes[found]
            if node.is_directory:
                self._look(found, path / name, changes)
            else:
                self._read(node, path / name)

    def _read(self, node: Node, path: Path) -> None:
        found = os.stat(path)
        seen = (found.st_size, found.st_mtime_ns)
        if seen == node.seen and time.time_ns() - found.st_mtime_ns > SETTLED:
            return
        node.seen, data = seen, path.read_bytes()
        if not node.versions or node.versions[-1] != data:
            node.versions.append(data)

    def _note(self, *, one: bool = False) -> None:
        """What changed since the last look: each name by itself, or all in ``one`` step."""
        changes: dict[Entry, int | None] = {}
        self._look(self._top, self.root, changes)
        if one and changes:
            self._operations.append(Operation(changes))
        elif not one:
            self._operations += [Operation({entry: found}) for entry, found in changes.items()]

    def _synced(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        number = self._numbers.get((found.st_dev, found.st_ino))
        if number is None:
            return
        node = self._nodes[number]
        node.durable = len(node.versions) - 1
        if node.is_directory:
            for operation in self._operations:
                operation.durable |= any(directory == number for directory, _ in operation.changes)

    # What may be left of it.

    def _cut(self, into: dict[frozenset, State], when: str) -> None:
        """Note every state that is possible now."""
        pending = [place for place, operation in enumerate(self._operations) if not operation.durable]
        unsynced = [number for number, node in enumerate(self._nodes) if node.versions and node.durable != len(node.versions) - 1]
        for chosen in self._subsets(pending):
            names = self._names(chosen)
            for how in (LOST, KEPT, TORN) if unsynced else (KEPT,):
                self._add(into, names, dict.fromkeys(unsynced, how), when)
        for _ in range(self._random_each if len(pending) + len(unsynced) > 1 else 0):
            names = self._names({place for place in pending if self._rng.random() < 0.5})
            self._add(into, names, {number: self._rng.choice((LOST, KEPT, TORN)) for number in unsynced}, when)

    def _subsets(self, pending: list[int]) -> Iterable[set[int]]:
        """None, all, one alone, all but one."""
        some = pending if len(pending) <= FEW else self._rng.sample(pending, FEW)
        yield from (set(), set(pending))
        for place in some:
            yield {place}
            yield set(pending) - {place}

    def _names(self, chosen: set[int]) -> dict[int, dict[str, int]]:
        """Directories after what is durable and what was chosen, in the order in which it was done."""
        directories = {number: dict(names) for number, names in self._base.items()}
        for place, operation in enumerate(self._operations):
            if operation.durable or place in chosen:
                for (number, name), found in operation.changes.items():
                    names = directories.setdefault(number, {})
                    names.pop(name, None) if found is None else names.__setitem__(name, found)
        return directories

    def _add(self, into: dict[frozenset, State], names: dict[int, dict[str, int]], how: dict[int, str], when: str) -> None:
        rows: list[tuple[str, Content | str]] = []
        waiting = [(self._top, "")]
        while waiting:
            number, path = waiting.pop()
            for name, found in names.get(number, {}).items():
                node, below = self._nodes[found], f"{path}{name}"
                if node.is_directory:
                    rows.append((below, DIRECTORY))
                    waiting.append((found, f"{below}/"))
                else:
                    rows.append((below, self._content(found, how.get(found, KEPT))))
        tree = frozenset(rows)
        into.setdefault(tree, State(tree, when))

    def _content(self, number: int, how: str) -> Content:
        node = self._nodes[number]
        return (number, node.durable, KEPT) if how == LOST else (number, len(node.versions) - 1, how)

    def bytes_of(self, content: Content) -> bytes:
        """The bytes of a file in a state: none where it was never synced and all is lost."""
        number, version, how = content
        data = b"" if version < 0 else self._nodes[number].versions[version]
        if how != TORN:
            return data
        node = self._nodes[number]
        durable = node.versions[node.durable] if node.durable >= 0 else b""
        kept = len(durable) if data.startswith(durable) else 0  # appended to: what was there before stays
        return data[: kept + (len(data) - kept) // 2]

    def write(self, state: State, target: Path) -> Path:
        """Make a state: the directory as it is found after the power is back."""
        target.mkdir()
        for path, content in sorted(state.tree, key=lambda row: row[0]):
            place = target / path
            place.mkdir(exist_ok=True) if isinstance(content, str) else place.write_bytes(self.bytes_of(content))
        return target

    def sample(self, most: int) -> list[tuple[State, bool]]:
        """States and whether the new one was promised in them: at most so many of each kind, drawn by the seed."""
        drawn = []
        for states, promised in ((list(self.states.values()), False), (list(self.promised.values()), True)):
            drawn += [(state, promised) for state in (states if len(states) <= most else self._rng.sample(states, most))]
        return drawn


def _shown(arguments: tuple[Any, ...]) -> str:
    return " ".join(os.path.basename(os.fspath(a)) if not isinstance(a, int) else os.path.basename(_path_of(a)) for a in arguments)


def _path_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return str(descriptor)
