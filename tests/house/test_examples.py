"""Examples run: those in docstrings print what they say, the notebooks of examples/ run from start to end and stay readable."""

import doctest
import importlib
import json
import os
import sys
from pathlib import Path

import pytest

import realm

SOURCE = Path(realm.__file__).parent
NEED_A_RUN = {"realm.knn.datastore", "realm.runs.api", "realm.runs.run"}
NEED_A_RUN |= {f"realm.integrations.{framework}" for framework in ("dspy", "haystack", "langchain", "llama_index")}
EXAMPLES = {
    ".".join(("realm", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text("utf-8")
}


@pytest.mark.parametrize("name", sorted(EXAMPLES - NEED_A_RUN))
def test_examples_print_what_they_say(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried and not failed


ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
LARGEST = 150_000
"""Bytes of a notebook with its outputs: what a reviewer can still read."""

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind):
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


def test_both_are_there():
    assert [path.stem for path in NOTEBOOKS] == ["one-step", "own-documents"]


@each_notebook
def test_outputs_are_small_and_each_part_is_explained(path):
    assert path.stat().st_size < LARGEST
    outputs = [output for cell in cells(path, "code") for output in cell["outputs"]]
    assert outputs and not [found for found in outputs if found["output_type"] == "error" or found.get("name") == "stderr"]
    modules = {line.split()[1] for cell in cells(path, "code") for line in cell["source"] if line.startswith(("import ", "from "))}
    assert "realm" in modules and not [name for name in modules if name.startswith("realm.")], "the public API alone"
    kinds = [cell["cell_type"] for cell in json.loads(path.read_text("utf-8"))["cells"]]
    assert kinds[0] == kinds[-1] == "markdown" and kinds.count("markdown") >= 6
    assert cells(path, "markdown")[0]["source"][0].startswith("# ")


@pytest.mark.slow
@pytest.mark.timeout(5400)  # trains on sixteen questions: minutes alone on a machine, an hour beside other training
@each_notebook
def test_it_runs(path, tmp_path, monkeypatch):
    """In a process of its own, as for a reader: every cell ends, and the claims that cells assert hold."""
    nbformat, client = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entry for entry in sys.path if entry))
    notebook = nbformat.read(path, as_version=4)
    client.NotebookClient(notebook, timeout=4800, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = "".join(str(out.get("text", "")) for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs)
    assert {"own-documents": "Ellen Marsh", "one-step": "p(y|x)"}[path.stem] in said
