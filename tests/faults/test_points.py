"""Every function that publishes something names the moments at which it can be cut off, and the examples come by all of them."""

import ast
import shutil
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import realm
from realm.storage import files, generations
from realm.storage.files import reached

SOURCE = Path(realm.__file__).parent
POINTS = tomllib.loads((SOURCE / "storage" / "points.toml").read_text("utf-8"))
OTHERS = ("documents", "native")
"""Every call of the operating system that a corpus makes is a point (test_publishing.py). The native kernel is built when the package is
installed, before it can be imported; a library that was cut off has another name and is never loaded."""
RENAMES = {"os.rename", "os.replace", "os.link", "shutil.move"}


def functions():
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        if not set(name.parts) & set(OTHERS):
            tree = ast.parse(path.read_text("utf-8"))
            yield from ((f"{name}: {node.name}", node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def renames(node):
    return any(isinstance(child, ast.Call) and ast.unparse(child.func) in RENAMES for child in ast.walk(node))


def points(node):
    calls = (child for child in ast.walk(node) if isinstance(child, ast.Call) and ast.unparse(child.func).rpartition(".")[2] == "reached")
    return [ast.literal_eval(call.args[0]) for call in calls]


def test_every_rename_has_its_points_each_listed_and_in_one_place():
    assert [name for name, node in functions() if renames(node) and not points(node)] == [], "a publish path without a write point"
    used = Counter(point for _, node in functions() for point in points(node))
    assert set(used) == set(POINTS) and set(used.values()) == {1}


@pytest.mark.parametrize("source", ["def f():\n    os.replace(a, b)", "def f():\n    os.rename(a, b)"])
def test_the_scan_finds(source):
    (node,) = [found for found in ast.walk(ast.parse(source)) if isinstance(found, ast.FunctionDef)]
    assert renames(node) and not points(node)


def test_the_examples_come_by_every_point(published, tmp_path, monkeypatch):
    assert files.listener is None, "nobody listens in production"
    reached("file: staged", Path("anywhere"))
    seen = set()
    monkeypatch.setattr(generations, "MAX_SMALL_FILES", 1)
    for name, example in published.items():
        if name != "repair":
            (tmp_path / "work").mkdir()
            example.prepare(tmp_path / "work")
            with monkeypatch.context() as patch:
                patch.setattr(files, "listener", lambda point, path: seen.add(point))
                example.change(tmp_path / "work")
            shutil.rmtree(tmp_path / "work")
    assert seen == set(POINTS)
