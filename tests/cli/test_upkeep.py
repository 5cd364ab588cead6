"""``realm doctor``: one screen, with a cure for each thing that is slow or missing."""

import os
import re
import shutil
import subprocess
from importlib import metadata as packages

import pytest

from realm.cli import main, upkeep
from realm.cli.upkeep import FILES


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def run():
        assert main(["doctor"]) == 0
        return capsys.readouterr().out

    return run


def test_one_screen(said, tmp_path):
    (tmp_path / "realm" / "models").mkdir(parents=True)
    (tmp_path / "realm" / "models" / "weights").write_bytes(bytes(3 << 20))
    out = said()
    assert len(out.splitlines()) <= 24 and all(len(line) <= 80 for line in out.splitlines() if not line.startswith("*"))
    assert "models 3 MiB" in " ".join(out.split()) and "torch 2." in out and "search kernel" in out and "realm-minilm-en" in out


@pytest.mark.parametrize(("broken", "cure"), [
    (("usable_cores", "OMP_NUM_THREADS"), "* OMP_NUM_THREADS=1 leaves 7 of 8 processors unused: unset it"),
    (("kernel",), "realm.search.index.native.build"),
    (("model",), "* the model realm-minilm-en is not whole: pip install --force-reinstall --no-deps realm-qa"),
    (("package",), "pip install 'realm-qa[ocr]' (any of them)"),
    (("disk",), "4 MiB are free"),
])  # fmt: skip
def test_each_fault_has_its_cure(broken, cure, said, monkeypatch, tmp_path):
    if "OMP_NUM_THREADS" in broken:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.setattr("realm.storage.processes.usable_cores", lambda: 8)
    if "kernel" in broken:
        monkeypatch.setattr("realm.search.index.native.build.library_path", lambda: tmp_path / "none.so")
    if "model" in broken:
        monkeypatch.setattr("realm.models.bodies.known.local_directory", lambda known: None)
    if "package" in broken:
        monkeypatch.setattr(upkeep, "extras", lambda: (["pdf"], ["ocr"]))
    if "disk" in broken:
        monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 4 << 20}))
    assert cure in said()


def test_extras_are_whole_or_missing(monkeypatch):
    there = {"a": "1", "b": "1"}

    def version(name):
        if name not in there:
            raise packages.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(packages, "version", version)
    monkeypatch.setattr(packages, "metadata", lambda name: type("Meta", (), {"get_all": lambda self, key: ["one", "two", "dev"]})())
    needed = ["a>=1; extra == 'one'", "b; extra == 'two'", "c<2; extra == 'two'", "torch>=2"]
    monkeypatch.setattr(packages, "requires", lambda name: needed)
    assert upkeep.extras() == (["one"], ["two"])
    monkeypatch.setattr(packages, "metadata", lambda name: version("a checkout"))
    assert upkeep.extras() == ([], [])


@pytest.fixture
def installed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def install(shell):
        assert main(["completion", shell]) == 0
        assert str(tmp_path / FILES[shell]) in capsys.readouterr().out.replace("\n", "")
        return tmp_path / FILES[shell]

    return install


COMPLETED = {
    "bash": "source {file}; compopt() {{ echo FILES; }}; COMP_WORDS=({words}); COMP_CWORD={last}; "
    "$(complete -p realm | sed 's/.*-F \\([^ ]*\\).*/\\1/'); printf '%s\\n' \"${{COMPREPLY[@]}}\"",
    "zsh": "_files() {{ echo FILES }}; _describe() {{ print -rl -- $completion_array }}; words=({words}) CURRENT={last}+1; source {file}",
    "fish": "complete -C (string join -- ' ' {words})",
}
"""What a shell completes of words, as it says it; bash and zsh complete files on a terminal alone, and here say FILES."""


@pytest.mark.parametrize("shell", COMPLETED)
@pytest.mark.parametrize(("typed", "found", "other"), [
    (["realm", "co"], {"corpus", "compare", "completion"}, {"add", "ask", "FILES"}),
    (["realm", "corpus", ""], {"add", "compact", "show"}, {"ask", "FILES"}),
    (["realm", "ask", "--"], {"--k", "--abstain-below", "--json"}, {"--seeds", "FILES"}),
    (["realm", "index", "search", "--js"], {"--json"}, {"--k"}),
    (["realm", "ask", "FI"], {"FILES"}, {"--k"}),
    (["realm", "ask", "--json", ""], {"FILES"}, set()), (["realm", "completion", ""], {"bash", "fish", "zsh"}, {"FILES", "ask"}),
    (["realm", "completion", "z"], {"zsh"}, {"bash", "FILES"}),
])  # fmt: skip
def test_shells_complete(shell, typed, found, other, installed, tmp_path, monkeypatch):
    file = installed(shell)
    assert file.read_text("utf-8").count("COMPLETE_FILES__") == 3  # ours says it beside tyro, and the shell does it
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "FILES").mkdir()
    code = COMPLETED[shell].format(file=file, words=" ".join(f"'{word}'" for word in typed), last=len(typed) - 1)
    command = tmp_path / "bin" / "realm"  # fish asks a completion only of a command that it finds
    command.parent.mkdir()
    command.touch(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    done = subprocess.run([shell, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    words = {re.split("[\t:/]", word.strip())[0] for word in done.stdout.splitlines()}
    assert found <= words and words.isdisjoint(other), done.stdout + done.stderr


def test_an_unknown_shell_is_refused(capsys):
    assert main(["completion", "tcsh"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "'tcsh'" in said and "bash" in said
