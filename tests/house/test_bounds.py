"""The size of the house: lines, modules, options, keys, files in a folder and docstrings stay within bounds; tests mirror modules."""

import ast
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE, TESTS = ROOT / "src" / "realm", ROOT / "tests"
QUESTION_WORDS = {"What", "Which", "How", "Where", "Who", "Whose", "Whether", "Why"}
NAMED = 12
"""Offenders that a failure names."""


class Bound(NamedTuple):
    """The value asked of the house, and the one in force until it gets there: lower it when a count falls, never raise it."""

    asked: int
    in_force: int


BOUNDS = {
    "lines of source": Bound(38_500, 41_819),
    "modules": Bound(274, 274),
    "lines of tests": Bound(31_919, 31_919),
    "options": Bound(148, 148),
    "keys": Bound(109, 109),
    "files in a folder": Bound(15, 15),
    "modules in the root": Bound(5, 5),
    "docstrings that open with a question": Bound(0, 0),
    "docstrings three times their function": Bound(0, 0),
}


def files(root):
    return sorted(root.rglob("*.py"))


def name_of(path):
    return str(path.relative_to(ROOT))


def lines(root):
    return Counter({name_of(path): path.read_text("utf-8").count("\n") for path in files(root)})


def options(listed):
    return Counter({line.partition(" --")[0]: line.count(" --") for line in listed.splitlines()})


def keys(source):
    """The keys of each section of a recipe: the fields of the dataclasses named ...Config."""
    sections = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name.endswith("Config")]
    return Counter({section.name: sum(isinstance(part, ast.AnnAssign) for part in section.body) for section in sections})


def docstrings(source):
    """Every docstring of a module, those of constants and fields too."""
    bodies = [
        node.body
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    values = [part.value for body in bodies for part in body if isinstance(part, ast.Expr)]
    return [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]


def questions(source):
    return sum(text.split()[0].strip(",;:.") in QUESTION_WORDS for text in docstrings(source) if text.strip())


def long_docstrings(source):
    """The functions whose docstring has no example and takes more than three times the lines of their code."""
    count = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)) and ">>>" not in text:
            code = ast.unparse(node.body[1:]).count("\n") + 1
            count += text.count("\n") + 1 > 3 * code
    return count


def in_each_module(count):
    return Counter({name_of(path): count(path.read_text("utf-8")) for path in files(SOURCE)})


MEASURES = {
    "lines of source": lambda: lines(SOURCE),
    "modules": lambda: Counter(name_of(path.parent) for path in files(SOURCE)),
    "lines of tests": lambda: lines(TESTS),
    "options": lambda: options((TESTS / "cli" / "options.txt").read_text("utf-8")),
    "keys": lambda: sum((keys((SOURCE / "recipe" / f"{name}.py").read_text("utf-8")) for name in ("sections", "training")), Counter()),
    "files in a folder": lambda: Counter(name_of(path.parent) for path in files(SOURCE)),
    "modules in the root": lambda: Counter(name_of(path) for path in SOURCE.glob("*.py")),
    "docstrings that open with a question": lambda: in_each_module(questions),
    "docstrings three times their function": lambda: in_each_module(long_docstrings),
}
"""The share of each place in a count."""


@pytest.mark.parametrize("what", BOUNDS)
def test_bound(what):
    found, bound = MEASURES[what](), BOUNDS[what]
    value = max(found.values()) if what == "files in a folder" else found.total()
    worst = ", ".join(f"{place} ({count})" for place, count in found.most_common(NAMED) if count)
    assert value <= bound.in_force, f"{what}: {value}, at most {bound.in_force} (asked: {bound.asked}). The most: {worst}"


def test_no_bound_is_below_what_is_asked():
    assert set(MEASURES) == set(BOUNDS) and all(bound.in_force >= bound.asked for bound in BOUNDS.values())


def test_the_counts():
    assert options("realm a X --b=1 --c\nrealm d e\n") == {"realm a X": 2, "realm d e": 0}
    assert keys("class AConfig:\n    'doc'\n    b: int = 0\n    c: str\n    def d(self): ...\nclass B:\n    e: int\n") == {"AConfig": 2}
    functions = 'def f():\n    """Whatever."""\nclass C:\n    """How it is."""\n    b: int\n    """Where."""'
    assert questions(f'"""What."""\nA = 1\n"""Whether, so."""\n{functions}') == 4
    said = "\n    ".join(("one", "two", "three", "four"))
    assert long_docstrings(f'def f():\n    """{said}"""\n    return 1') == 1 == long_docstrings(f'def f():\n    """{said}"""')
    assert long_docstrings(f'def f():\n    """{said}\n    >>> f()"""\n    return 1') == 0
    assert long_docstrings(f'def f():\n    """{said}"""\n    a = 1\n    return a') == 0


SEVERAL_ROOMS = {"browser", "damage", "end_to_end", "faults", "house", "parity", "shared"}
"""Folders of tests that are about no single module."""
EXCEPTIONS = {
    "cli/test_cli.py": "every verb and option",
    "documents/ingest/test_properties.py": "files that an ingest writes, read by pyarrow alone",
    "documents/pages/test_hostile.py": "damaged bytes for every reader of documents",
    "knn/test_knn_cli.py": "the verbs of kNN, over its own corpora and models",
    "models/test_golden.py": "parity with the published classes, module by module",
    "runs/test_bad_models.py": "models of strangers, through every way to read one",
    "runs/test_hub.py": "models handed on through the hub",
    "storage/test_storage.py": "arrays, manifests, locks and generations together",
}


def mirrors(file):
    """Whether a module, or a folder of modules, has the name of a test file of the same folder."""
    module = SOURCE / file.parent / file.stem.removeprefix("test_")
    return module.is_dir() or module.with_suffix(".py").is_file()


def test_files_are_named_after_their_modules():
    files = {path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    strays = {str(file) for file in files if file.parts[0] not in SEVERAL_ROOMS and not mirrors(file)}
    assert strays == set(EXCEPTIONS), strays ^ set(EXCEPTIONS)
