"""A file system that can lose power: it follows what is done below a directory and makes every state that a power cut may leave.

What counts as durable is what POSIX promises and no more. The bytes of a file are durable as they were when that file was synced last.
A name in a directory (made, renamed, linked or deleted) is durable when the directory was synced afterwards. All else may be there or
not, in any order: a rename before the bytes it publishes, a second rename without the first. A rename alone is one step, as every file
system has it. Where all of it is there, a process was killed and the power stayed.

Nothing is simulated: calls go to the real file system, and the tree is looked at before and after each call that Python makes. So what
Arrow, safetensors and tokenizers write from C++ and Rust is seen as well."""

import os
import random
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CALLS = ("fsync", "fdatasync", "replace", "rename", "link", "unlink", "remove", "mkdir", "rmdir", "symlink")
SETTLED = 50_000_000
"""Nanoseconds for which a file whose size and time are as before is read again all the same: clocks of file systems are coarse."""
FEW, RANDOM = 5, 6
"""Operations that are not durable yet of which every single one is tried, of more a sample; random subsets that are tried at each call."""
LOST, KEPT, TORN = "lost", "kept", "torn"
Content = tuple[int, int, str]
"""Number of a file, which of its versions, and how much of it is there."""
Tree = frozenset[tuple[str, Content | None]]
"""Path -> content, None of a directory."""
Changes = dict[tuple[int, str], int | None]
"""(number of a directory, name in it) -> number of what it names; None: the name goes. All change in one step."""


@dataclass
class Node:
    """A file with the bytes it had, and which were synced last (-1: none), or a directory; ``held`` keeps its number its own."""

    held: int
    is_directory: bool
    versions: list[bytes] = field(default_factory=list)
    durable: int = -1
    seen: tuple[int, int] = (-1, -1)
    names: dict[str, int] = field(default_factory=dict)


class PowerCuts:
    """Follows one directory: states that kills, cuts before the end, and cuts after it (``promised``) may leave, each with its call."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch):
        self._root, self._patch, self._rng = root, patch, random.Random(0)
        self._nodes: list[Node] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._base: dict[int, dict[str, int]] = {}
        self._operations: list[tuple[Changes, list[bool]]] = []  # and whether it is durable
        self._inside, self._calls = False, 0
        self.kills: dict[Tree, str] = {}
        self.states: dict[Tree, str] = {}
        self.promised: dict[Tree, str] = {}

    def __enter__(self) -> "PowerCuts":
        self._look(self._node(self._root), self._root, {})
        for number, node in enumerate(self._nodes):
            node.durable = len(node.versions) - 1
            self._base[number] = dict(node.names)
        for name in CALLS:
            self._patch.setattr(os, name, self._watched(name, getattr(os, name)))
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._patch.undo()
        if kind is None:
            self._note()
            self._cut(self.promised, self.promised, "the end")
        for node in self._nodes:
            os.close(node.held)

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            if self._inside:
                return call(*arguments, **options)
            self._inside = True
            try:
                self._note()
                self._cut(self.kills, self.states, f"{self._calls}: {name} {arguments}")
                self._calls += 1
                result = call(*arguments, **options)
                self._synced(arguments[0]) if name in ("fsync", "fdatasync") else self._note(one=True)
                return result
            finally:
                self._inside = False

        return watched

    def _node(self, path: Path) -> int:
        found = os.lstat(path)
        key = (found.st_dev, found.st_ino)
        if key not in self._numbers:
            assert not stat.S_ISLNK(found.st_mode), f"{path}: symbolic links are not followed here"
            self._numbers[key] = len(self._nodes)
            self._nodes.append(Node(os.open(path, os.O_RDONLY), stat.S_ISDIR(found.st_mode)))
        return self._numbers[key]

    def _look(self, number: int, path: Path, changes: Changes) -> None:
        """Read a directory and all below; put the names that differ from before into ``changes``."""
        directory, now = self._nodes[number], {name: self._node(path / name) for name in os.listdir(path)}
        changes.update({(number, name): found for name, found in now.items() if directory.names.get(name) != found})
        changes.update({(number, name): None for name in directory.names if name not in now})
        directory.names = now
        for name, found in now.items():
            if self._nodes[found].is_directory:
                self._look(found, path / name, changes)
            else:
                self._read(self._nodes[found], path / name)

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
        changes: Changes = {}
        self._look(0, self._root, changes)
        steps = [changes] if one and changes else [] if one else [{entry: found} for entry, found in changes.items()]
        self._operations += [(step, [False]) for step in steps]

    def _synced(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        number = self._numbers.get((found.st_dev, found.st_ino))
        if number is None:
            return
        self._nodes[number].durable = len(self._nodes[number].versions) - 1
        for changes, durable in self._operations if self._nodes[number].is_directory else ():
            durable[0] |= any(directory == number for directory, _ in changes)

    def _cut(self, kills: dict[Tree, str], states: dict[Tree, str], when: str) -> None:
        """Note every state that is possible now: of the names that are not durable none, all, one alone, all but one, random ones."""
        pending = [place for place, (_, durable) in enumerate(self._operations) if not durable[0]]
        unsynced = [number for number, node in enumerate(self._nodes) if node.versions and node.durable != len(node.versions) - 1]
        kills.setdefault(self._tree(set(pending), {}), when)
        some = pending if len(pending) <= FEW else self._rng.sample(pending, FEW)
        for chosen in (set[int](), set(pending), *({place} for place in some), *(set(pending) - {place} for place in some)):
            for how in (LOST, KEPT, TORN) if unsynced else (KEPT,):
                states.setdefault(self._tree(chosen, dict.fromkeys(unsynced, how)), when)
        for _ in range(RANDOM if len(pending) + len(unsynced) > 1 else 0):
            chosen = {place for place in pending if self._rng.random() < 0.5}
            states.setdefault(self._tree(chosen, {number: self._rng.choice((LOST, KEPT, TORN)) for number in unsynced}), when)

    def _tree(self, chosen: set[int], how: dict[int, str]) -> Tree:
        """What there is after what is durable and what was chosen, in the order in which it was done."""
        directories = {number: dict(names) for number, names in self._base.items()}
        for place, (changes, durable) in enumerate(self._operations):
            for (number, name), found in changes.items() if durable[0] or place in chosen else ():
                names = directories.setdefault(number, {})
                names.pop(name, None) if found is None else names.__setitem__(name, found)
        rows: list[tuple[str, Content | None]] = []
        waiting = [(0, "")]
        while waiting:
            number, path = waiting.pop()
            for name, found in directories.get(number, {}).items():
                node, state = self._nodes[found], how.get(found, KEPT)
                version = node.durable if state == LOST else len(node.versions) - 1
                rows.append((f"{path}{name}", None if node.is_directory else (found, version, KEPT if state == LOST else state)))
                if node.is_directory:
                    waiting.append((found, f"{path}{name}/"))
        return frozenset(rows)

    def _bytes(self, number: int, version: int, how: str) -> bytes:
        """The bytes of a file in a state: none where it was never synced and all is lost."""
        node = self._nodes[number]
        data = b"" if version < 0 else node.versions[version]
        if how != TORN:
            return data
        durable = node.versions[node.durable] if node.durable >= 0 else b""
        kept = len(durable) if data.startswith(durable) else 0  # appended to: what was there before stays
        return data[: kept + (len(data) - kept) // 2]

    def write(self, tree: Tree, target: Path) -> Path:
        """Make a state: the directory as it is found after the power is back."""
        target.mkdir()
        for path, content in sorted(tree, key=lambda row: row[0]):
            (target / path).mkdir(exist_ok=True) if content is None else (target / path).write_bytes(self._bytes(*content))
        return target

    def sample(self, most: int) -> list[tuple[Tree, str, bool]]:
        """States, when they came and whether the new one was promised in them: at most so many of each kind."""
        kinds = ((self.kills, False), (self.states, False), (self.promised, True))
        drawn = [(self._rng.sample(sorted(found.items(), key=str), min(most, len(found))), promised) for found, promised in kinds]
        return [(tree, when, promised) for rows, promised in drawn for tree, when in rows]
