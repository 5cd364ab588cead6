"""The words of the project: phrasings that were replaced by plain English do not come back."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("banned_phrasings.txt")
PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "Makefile", ROOT / "mkdocs.yml",
    ROOT / "benchmarks" / "results" / "README.md",  # the pages themselves keep their words
    *(ROOT / "docs").rglob("*.md"), *(ROOT / "recipes").glob("*.toml"), *(ROOT / "examples").glob("*.ipynb"),
    *(ROOT / ".github").rglob("*.yml"),
]  # fmt: skip
PACKAGE = ROOT / "src" / "realm"
SPOKEN = [path for ending in ("toml", "js", "html", "md") for path in PACKAGE.rglob(f"*.{ending}") if path.name != "own_words.toml"]


def banned():
    lines = [line for line in LIST.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return dict(line.split(" => ") for line in lines)


BANNED = banned()


def strings(source):
    """Line and text of each string of a module, parts of an f-string apart: docstrings, help texts, messages."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def found(text):
    """The banned phrasings in a text, as whole words, however its lines are broken."""
    words = " ".join(text.lower().split())
    return [phrase for phrase in BANNED if phrase in words and re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", words)]


@pytest.mark.parametrize("path", [path for path in (*PAGES, *SPOKEN) if path.is_file()], ids=lambda path: path.name)
def test_pages_are_in_plain_english(path):
    assert not [f"{phrase} => {BANNED[phrase]}" for phrase in found(path.read_text("utf-8"))]


def test_strings_of_the_source_are_in_plain_english():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {phrase} => {BANNED[phrase]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in strings(path.read_text("utf-8"))
        for phrase in found(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_check_bites():
    assert len(BANNED) >= 100 and all(phrase == phrase.lower() and instead for phrase, instead in BANNED.items())
    assert found("It is slower than\n    somebody's own, for ever.") == ["somebody", "somebody's", "for ever"]
    assert found("It is slower forth and back.") == ["forth and back"] and found("north and back, a bug of oursine") == []
    assert {text for _, text in strings('x = f"a {1} b"\ndef f():\n    "doc"\n')} >= {"a ", " b", "doc"}
