"""Arguments at their edges, of every verb, and outputs that hold few characters: one line, or an answer; never a traceback."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from realm.cli import main
from realm.documents.change.updates import add_documents
from realm.runs.api import Realm

VERBS = [line.split() for line in (Path(__file__).parents[1] / "cli" / "options.txt").read_text().splitlines()]
"""Words of each verb, its places in capitals, and its options; one without "=" must be given."""
WORDS = {
    "empty": "", "blank": "   ", "not UTF-8": "caf\udce9", "half a pair": "\ud83d", "a null": "a\0b", "huge": "x" * 100_000,
    "deep": "a/" * 3000, "below a file": "FILE/below", "signs": "\u202e\u200b\U0001f600 \u0301", "an option": "--none-such",
}  # fmt: skip
FOR_ALL = ("empty", "not UTF-8", "huge", "below a file")
CASES = [
    (line, kind)
    for line in VERBS
    if any(part.isupper() for part in line) and line[1] != "cache"  # whose documents may have gone
    for kind in WORDS
    if kind in FOR_ALL or line[1:3] in (["ask", "ASKED"], ["corpus", "build"])
]


def errors(capsys):
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return [line for line in said.splitlines() if line.startswith("error: ")]


@pytest.mark.parametrize(("line", "kind"), CASES, ids=lambda part: part if isinstance(part, str) else " ".join(part[1:3]))
def test_every_verb_refuses_in_one_line(line, kind, tmp_path, monkeypatch, capsys):
    (tmp_path / "private.txt").write_text("The password of the safe is Velm.")
    (tmp_path / "FILE").write_text("A file.")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    verb = next(at for at, part in enumerate([*line, "--"]) if part.isupper() or part.startswith("--"))
    places = [WORDS[kind] for part in line if part.isupper() and not part.startswith("--")]
    needed = [word for part in line if part.startswith("--") and "=" not in part for word in (part, str(tmp_path / "out"))]
    try:
        code = main([*line[1:verb], *places, *needed])
    except SystemExit as ended:  # the parser's own
        code = ended.code
    assert code == 2 and (len(errors(capsys)) == 1 or kind == "an option")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["FILE", "private.txt"]


@pytest.mark.parametrize("words", [
    ("ask", "RUN", ""), ("ask", "RUN", "  "), ("ask", "RUN", "\t\n"), ("corpus", "build", "RUN", "--out="),
    ("ask", "RUN", "Who?", "--body="),
    ("ask", "RUN", "Who?", "--k", "0"), ("ask", "RUN", "Who?", "--k", "-7"), ("ask", "RUN", "Who?", "--abstain-below", "nan"),
    ("ask", "RUN", "Who?", "--abstain-below", "1e9"), ("index", "search", "RUN", "Who?", "--k", "-1"),
    ("explain", "RUN", "The [MASK] here.", "--k", "0"),
    ("serve", "RUN", "--port", "-1"), ("serve", "RUN", "--port", "65536"), ("serve", "RUN", "--port", "9" * 20),
    ("serve", "RUN", "--host", "nowhere.invalid"),
], ids=" ".join)  # fmt: skip
def test_values_out_of_range(words, tiny_run, capsys):
    assert main([str(tiny_run) if word == "RUN" else word for word in words]) == 2
    (line,) = errors(capsys)
    assert "empty question" in line or (words[-1].strip() and not words[-1].endswith("="))


@pytest.mark.parametrize("k", [12, 13, 10**6])
def test_more_blocks_than_there_are(k, tiny_run, capsys):
    realm = Realm.open(tiny_run)
    assert len(realm.search("Arvad", k)) == 12 == len(realm.ask("What is the currency of Arvad?", k).evidence)
    assert realm.explain("The currency of [MASK] is the Tirel.", k=k).candidates
    assert main(["index", "search", str(tiny_run), "Arvad", "--k", str(k), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["results"]) == 12


@pytest.fixture(scope="module")
def strange(tiny_run, tmp_path_factory):
    """A run whose documents hold what Latin-1 and ASCII do not."""
    run = Path(shutil.copytree(tiny_run, tmp_path_factory.mktemp("strange") / "run"))
    text = "The ferry line of \u0130stanbul was founded by \u0141ucja \u4e2d."
    (run.parent / "more.jsonl").write_text(json.dumps({"id": "\u0130stanbul \U0001f6a2", "title": "\u0130stanbul", "text": text}) + "\n")
    add_documents(run / "corpus", [run.parent / "more.jsonl"])
    assert main(["index", "build", str(run)]) == 0
    return run


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252"])
@pytest.mark.parametrize("words", [
    ("ask", "RUN", "Who founded the ferry line of \u0130stanbul?"), ("index", "search", "RUN", "ferry line of \u0130stanbul", "--k", "13"),
    ("explain", "RUN", "The ferry line of \u0130stanbul was founded by [MASK]."), ("corpus", "show", "CORPUS", "\u0130stanbul \U0001f6a2"),
], ids=" ".join)  # fmt: skip
def test_narrow_outputs(words, encoding, strange, monkeypatch, tmp_path):
    """An escape stands for what the encoding does not have; JSON stays JSON."""
    places = {"RUN": str(strange), "CORPUS": str(strange / "corpus")}
    for more in ((), ("--json",)):
        with open(tmp_path / "out", "w", encoding=encoding) as out:
            monkeypatch.setattr(sys, "stdout", out)
            assert main([*(places.get(word, word) for word in words), *more]) == 0
        said = (tmp_path / "out").read_bytes().decode(encoding)
        assert "\u0130stanbul" in json.dumps(json.loads(said), ensure_ascii=False) if more else "\\u0130" in said


def test_as_a_process(strange):
    """The encoding that the environment names; a word that is no UTF-8 behind it."""
    command = [sys.executable, "-m", "realm", "index", "search", str(strange), "--k", "13"]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([*command, "\u0130stanbul"], capture_output=True, env=environment, check=False)
    assert done.returncode == 0 and b"\\u0130stanbul" in done.stdout, done.stderr
    done = subprocess.run([*map(os.fsencode, command), b"caf\xe9"], capture_output=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith(b"error: 'caf\\udce9': no UTF-8") and done.stderr.count(b"\n") == 1
