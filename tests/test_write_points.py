"""Every function that publishes something names the moments at which it can be cut off."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import realm
from realm.storage import files
from realm.storage.files import POINTS, reached

SOURCE = Path(realm.__file__).parent
OTHERS = ("corpus", "native")
"""The corpus has a harness of its own that stops at every call of the operating system (tests/corpus/test_crashes.py). The native kernel is
built when the package is installed, before it can be imported; a library that was cut off has another name and is never loaded."""
CUT_ELSEWHERE = {"pipeline/cached.py: _share_weights"}
"""tests/test_cached.py stops it at each of its calls of the operating system."""
RENAMES = {"os.rename", "os.replace", "os.link", "shutil.move"}


def functions() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        if set(name.parts) & set(OTHERS):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield f"{name}: {node.name}", node


def calls(node: ast.AST) -> Iterator[ast.Call]:
    yield from (child for child in ast.walk(node) if isinstance(child, ast.Call))


def points(node: ast.AST) -> list[str]:
    found = [call.args[0] for call in calls(node) if ast.unparse(call.func) == "reached"]
    assert all(isinstance(name, ast.Constant) for name in found), "a point is named where it is"
    return [ast.literal_eval(name) for name in found]


def test_every_rename_has_its_points() -> None:
    bare = [name for name, node in functions() if RENAMES & {ast.unparse(c.func) for c in calls(node)} and not points(node)]
    assert set(bare) == CUT_ELSEWHERE, "a publish path without a write point"


def test_every_point_is_listed_and_stands_in_one_place() -> None:
    used = Counter(point for _, node in functions() for point in points(node))
    assert set(used) == set(POINTS) and set(used.values()) == {1}


@pytest.mark.parametrize("source", ["def f():\n    os.replace(a, b)", "def f():\n    os.rename(a, b)"])
def test_the_scan_finds(source: str) -> None:
    (node,) = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
    assert RENAMES & {ast.unparse(c.func) for c in calls(node)} and not points(node)


def test_nobody_listens_in_production() -> None:
    assert files.listener is None
    reached("file: staged", Path("anywhere"))
