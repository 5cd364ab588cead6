"""No code from where the user stands: a working directory with a module for every name that we import, and children that run there."""

import ast
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import realm
from realm.storage.generations import published_generations
from realm.training.refresh.refresher_process import RefresherProcess

ALSO = "token random types warnings traceback signal socket pickle struct copyreg encodings site usercustomize"
"""Modules of Python that ours and its own starter of processes import behind our back."""


def imported():
    """The top-level name of everything that any file of the package imports, and its own."""
    names = {*ALSO.split(), "realm"}
    for file in Path(realm.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names - set(sys.builtin_module_names)


@pytest.fixture
def shadows(tmp_path, monkeypatch):
    """Stands in a directory with a module for each of those names. The result says which of them were run."""
    here, ran = tmp_path / "here", tmp_path / "ran"
    here.mkdir()
    ran.mkdir()
    names = imported()
    assert {"json", "numpy", "torch", "tokenizers", "transformers", "pyarrow", "multiprocessing", "subprocess", "tyro"} <= names
    for name in names:
        (here / f"{name}.py").write_text(f"import os\nos.close(os.open({str(ran / name)!r}, os.O_CREAT | os.O_WRONLY))\n")
    monkeypatch.chdir(here)
    return lambda: {path.name for path in ran.iterdir()}


def test_the_planted_modules_are_run_where_python_lets_them(shadows):
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}  # a test that is connected to Ray sets it
    subprocess.run([sys.executable, "-c", "import token"], check=True, env=plain)
    assert "token" in shadows()


def test_the_refresher_beside_a_trainer(shadows, waiting_run):
    refresher = RefresherProcess(waiting_run, 1, "cpu")
    try:
        until = time.monotonic() + 200
        while not published_generations(waiting_run.index) and not shadows() and time.monotonic() < until:
            refresher.watch()
            time.sleep(0.1)
    finally:
        refresher.stop()
    assert not shadows()
    assert published_generations(waiting_run.index) == [1] and refresher.restarts == 0


def test_a_build_with_workers(shadows, tmp_path):
    """As the installed command, whose own directory is the first that Python looks in."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "realm"
    command.write_text("import sys\nfrom realm.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
    rows = (json.dumps({"id": str(number), "text": f"Text {number}. " + "word " * 200_100}) for number in range(5))
    (tmp_path / "docs.jsonl").write_text("".join(f"{row}\n" for row in rows))
    options = ["--vocab-size", "300", "--workers", "2", "--tagger", "none"]
    line = [sys.executable, str(command), "corpus", "build", "../docs.jsonl", "--out", "../corpus", *options]
    done = subprocess.run(line, capture_output=True, text=True)
    assert not shadows(), done.stderr
    assert done.returncode == 0 and (tmp_path / "corpus" / "CURRENT").exists(), done.stderr


def test_the_package_run_as_a_module(shadows, tmp_path):
    """``python -m`` begins with what Python itself finds here; what the package imports once it runs is not looked for here."""
    late = {"json", "numpy", "tyro", "signal"}
    for file in Path().glob("*.py"):
        if file.stem not in late:
            file.unlink()
    done = subprocess.run([sys.executable, "-m", "realm", "--version"], capture_output=True, text=True)
    assert done.stdout == f"realm {realm.__version__}\n" and not shadows(), (done.stderr, shadows())


def test_actors_of_ray(shadows, tmp_path):
    assert find_spec("ray") or pytest.skip("no ray; importing it here would be too early for the tests of the pool")
    script = tmp_path / "actor.py"
    script.write_text(
        "from realm.training.pool import Builder, connected\n"
        "with connected(cpus=1):\n    import ray\n    print(ray.get(ray.remote(Builder).remote().ready.remote()))\n"
    )
    environment = {**os.environ, "RAY_worker_niceness": "0"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True)
    assert not shadows(), done.stderr
    assert done.returncode == 0 and done.stdout.startswith("('"), done.stderr
