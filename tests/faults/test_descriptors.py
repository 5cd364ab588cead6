"""File descriptors run out, at any moment of a command: one line and exit code 2, or the right answer; nothing is lost over it."""

import contextlib
import os
import resource
import shutil
import sys
from pathlib import Path

import pytest

from realm.cli import main

from .examples import tree
from .test_processes import ended, forked

pytestmark = pytest.mark.own_process
QUESTION = "What is the currency of Arvad?"
ENOUGH = 60
TIMED = (
    "seconds.json", "metrics.jsonl", "manifest.json", "report.html", "stage.json", "checksums.json", "README.md",
    "sources.json", "progress.json",
)  # fmt: skip


def with_few(count, says, *command):
    """A command in a process that may open so many files more than are open; its exit code."""

    def work():
        with open(says, "wb", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        held = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (held + 1 + count, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        for descriptor in all_taken()[:count]:
            os.close(descriptor)
        code = main([*map(str, command)])
        sys.stdout.flush()
        sys.stderr.flush()
        return code

    return ended(forked(work))


def all_taken():
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.dup(2))
    return taken


@pytest.fixture
def run(tiny_run, tmp_path):
    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    assert main(["ask", str(run), QUESTION, "--json"]) == 0  # loads what later commands need
    return run


COMMANDS = {
    "ask": ("ask", "{run}", QUESTION, "--json"), "add": ("corpus", "add", "{run}/corpus", "{more}"),
    "sync": ("corpus", "sync", "{run}/corpus", "{docs}"),
    "build": ("corpus", "build", "{docs}", "--out", "{run}/other", "--vocab-size", "300"),
    "index build": ("index", "build", "{run}"), "verify": ("verify", "{run}"), "repair": ("repair", "{run}", "--yes"),
    "finetune": ("run", "{run}", "--stages", "finetune"),
}  # fmt: skip


def one_line(said):
    return "Traceback" not in said and "error: " in (said.strip().splitlines() or [""])[-1]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("counts", [(0, 2, 6, 15, ENOUGH), pytest.param((1, 3, 4, 8, 11, 20, ENOUGH), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("name", COMMANDS)
def test_too_few_descriptors(name, counts, run, tiny_run, tmp_path):
    if name == "index build":
        assert main(["corpus", "add", str(run / "corpus"), str(tiny_run.parent / "more.jsonl")]) == 0
    if name == "finetune":
        shutil.rmtree(run / "stages" / "finetune")
    before, says = tree(run), tmp_path / "says"
    places = {"run": run, "more": tiny_run.parent / "more.jsonl", "docs": tiny_run.parent / "docs.jsonl"}
    command = [word.format(**places) for word in COMMANDS[name]]
    assert main(command) == 0  # what is loaded once is loaded here
    expected, failed = tree(run), 0
    for count in counts:
        restore(run, before)
        code, said = with_few(count, says, *command), says.read_text(errors="replace")
        failed += code != 0
        assert code == 0 or (code == 2 and one_line(said)), f"{count} descriptors: {code}, {said[-600:]}"
        assert not list(run.glob("index/*.quarantined")), f"{count} descriptors, and a generation was put aside"
        found = tree(run)
        if code != 0 and not same(found, expected):  # some work is done when the next step is refused: that is no loss
            assert all(found.get(path) == data for path, data in before.items() if needed(path)), (
                f"{count} descriptors, and something is gone"
            )
            assert main(command) == 0 and same(tree(run), expected), f"after {count} descriptors it does not go on"
        assert code != 0 or same(found, expected), f"{count} descriptors, and another result"
    assert (failed, code) != (0, 0) and code == 0


def needed(path):
    """Files that are not rewritten by work which goes on where it was."""
    return path.endswith((".safetensors", ".arrow", ".npy", "CURRENT", "tokenizer.json")) and "checkpoints" not in path


def same(found, expected):
    """The same files of the same bytes, but for times that somebody measured."""

    def kept(files):
        """Without what the next command deletes where there were too few descriptors to delete it."""
        passing = [path for path in files if ".staging/" in path or "sparse" in path or path.startswith(("checkpoints/", "results"))]
        return {path: data for path, data in files.items() if path not in passing and not path.endswith(TIMED)}

    return kept(found) == kept(expected)


def restore(run, files):
    shutil.rmtree(run)
    for path, data in files.items():
        (run / path).parent.mkdir(parents=True, exist_ok=True)
        (run / path).write_bytes(data)
