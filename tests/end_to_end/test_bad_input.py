"""What users get wrong: one line that names file, line and cure, exit code 2, no traceback, and nothing published is touched."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from small import tree

from realm.cli import main
from realm.documents.change.updates import add_documents
from realm.errors import RunError
from realm.models.spec import read_spec
from realm.runs.api import Realm
from realm.storage.manifests import read_note, seal, write_note


def documents(*texts):
    return "".join(json.dumps({"id": f"d{n}", "title": "", "text": text}) + "\n" for n, text in enumerate(texts))


ONE = documents("The currency of Arvad is the Tirel. In Arvad the winters are long.")
SOME = documents(*(f"The currency of {n} is the {n} crown. In {n} the winters are long." for n in ("Arvad", "Belmor", "Carsin")))
QUESTION = {"id": "a", "question": "What is the currency of Arvad?", "answers": ["Tirel"]}
LONG = json.dumps(QUESTION) + "\n\n" + json.dumps({**QUESTION, "id": "b", "answers": ["crown " * 300]}) + "\n"


@pytest.mark.parametrize(("file", "text", "problem", "cure"), [
    ("recipe.toml", None, r"recipe.toml: no such recipe", "recipes/"),
    ("recipe.toml", b"\xff\xfe\x00", r"recipe.toml: not TOML", ""),
    ("recipe.toml", "[ict]\nstep = 3\n", r"recipe.toml: unknown key in \[ict\] 'step'", "Did you mean 'steps'"),
    ("recipe.toml", "[ict]\nsteps = 1\n", r"config.toml: no documents: \[corpus\] sources is empty", "Name files"),
    ("docs.jsonl", None, r"docs.jsonl", "Check|No such|no such"),
    ("docs.jsonl", "", r"no usable document in .*docs.jsonl", "Check the sources"),
    ("docs.jsonl", "{]\n3\n", r"no usable document in .*docs.jsonl \(1 bad json; 1 not an object\)", "Check the sources"),
    ("docs.jsonl", ONE, r"docs.jsonl: the corpus has 1 block, fewer than pretrain.candidates = 4", "one block leaves nothing to retrieve"),
    ("docs.jsonl", SOME, r"docs.jsonl: the corpus has 3 blocks, fewer than pretrain.candidates = 4", "set pretrain.candidates = 3"),
    ("qa.jsonl", None, r"qa.jsonl: no such file", "Check the path"),
    ("qa.jsonl", "", r"qa.jsonl: no questions", "Each line is"),
    ("qa.jsonl", json.dumps(QUESTION) + "\n{\n", r"qa.jsonl:2: not JSON", "Each line is"),
    ("qa.jsonl", json.dumps({**QUESTION, "answers": []}), r"qa.jsonl:1: no answers", "Each line is"),
    ("qa.jsonl", json.dumps({"question": "Who?"}), r"qa.jsonl:1: no answers", "Each line is"),
    ("qa.jsonl", LONG, r"qa.jsonl:3: the answer of 'b' has \d+ wordpieces, a block holds 61", "Shorten"),
])  # fmt: skip
def test_a_run_that_cannot_start(tmp_path, write_tiny, refused, file, text, problem, cure):
    recipe = write_tiny(tmp_path)
    if text is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(text.encode() if isinstance(text, str) else text)
    line = refused("run", recipe, "--out", tmp_path / "run")
    assert re.search(problem, line) and re.search(cure, line), line
    assert not (tmp_path / "run" / "stages").exists()


def test_a_corpus_without_salient_spans(tmp_path, write_tiny, refused, capsys):
    """It is built, it is told that it cannot teach, and training names the cure."""
    recipe, words = write_tiny(tmp_path), ["wind", "rain", "snow", "sun", "cloud", "storm"]
    texts = [f"We like the {a} and the {b}. Nobody likes the {b} much." for a in words for b in words if a != b]
    (tmp_path / "docs.jsonl").write_text(documents(*texts))
    arguments = ["run", str(recipe), "--out", str(tmp_path / "run")]
    assert main([*arguments, "--stages", "corpus"]) == 0
    assert "cannot teach a retriever. Few salient spans" in capsys.readouterr().err
    line = refused(*arguments)
    assert re.search(r"run/corpus: no sentence has a span that can be masked with pretrain.masking = 'salient'.*gazetteer", line)
    assert main([*arguments, "--plan"]) == 0 and "gazetteer" in capsys.readouterr().out
    assert main([*arguments, "--stages", "corpus,warm,ict,pretrain", "--set", 'pretrain.masking="tokens"']) == 0


def test_no_place_to_write(tiny_run, monkeypatch, refused):
    monkeypatch.setattr("realm.report.write_report", Mock(side_effect=PermissionError(13, "Permission denied", "/read/only")))
    assert "/read/only: Permission denied. Give a place" in refused("report", tiny_run)


def test_bad_settings(tmp_path, write_tiny, refused):
    recipe = write_tiny(tmp_path)
    assert "section.key=value" in refused("run", recipe, "--set", "steps=3")
    assert "'pretrain.steps' cannot be 'many'" in refused("run", recipe, "--set", "pretrain.steps=many")
    assert "Stages are: corpus, warm" in refused("run", recipe, "--stages", "corpus,train")
    if not torch.cuda.is_available():
        assert "run.device is cuda" in refused("run", recipe, "--out", tmp_path / "gpu", "--set", 'run.device="cuda"')
    (tmp_path / "file").write_text("x")
    assert "a file is here" in refused("run", recipe, "--out", tmp_path / "file")
    assert "no run here" in refused("run", tmp_path)
    assert "--out" in refused("corpus", "build", tmp_path / "docs.jsonl", "--out", tmp_path / "file")
    assert "no corpus here" in refused("corpus", "info", tmp_path)
    assert "no corpus here" in refused("corpus", "add", tmp_path, tmp_path / "docs.jsonl")
    for verb in (["index", "build", tmp_path], ["report", tmp_path], ["run", tmp_path], ["explain", tmp_path, "[MASK]"]):
        assert "config.toml is missing" in refused(*verb)


def test_a_run_of_an_earlier_version(tiny_run, tmp_path, refused):
    recipe = tiny_run.parent / "recipe.toml"
    for name in ("run.json", "stages/warm/stage.json", "stages/pretrain/stage.json"):
        run = shutil.copytree(tiny_run, tmp_path / name.replace("/", "-"))
        path = run / name
        if path.parent == run:
            write_note(path, {**read_note(path), "format": 99})  # with a checksum that fits
        else:
            path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
            seal(path.parent)
        before = tree(run / "stages") | tree(run / "corpus") | tree(run / "index")
        line = refused("run", recipe, "--out", run)
        assert f"{path}: made by an earlier version of realm. Build it again." in line
        assert tree(run / "stages") | tree(run / "corpus") | tree(run / "index") == before
    run = shutil.copytree(tiny_run, tmp_path / "config")
    (run / "config.toml").write_text("[future]\nkey = 1\n")
    assert "config.toml" in refused("run", recipe, "--out", run) and (run / "config.toml").read_text() == "[future]\nkey = 1\n"


def test_a_reader_of_another_index_is_named(tiny_run, tmp_path, refused):
    run = shutil.copytree(tiny_run, tmp_path / "mixed")  # a reader whose document embedder did not make this index
    shutil.rmtree(run / "stages" / "finetune")
    shutil.copytree(tiny_run / "stages" / "finetune", run / "stages" / "finetune")
    facts = json.loads((run / "stages/finetune/stage.json").read_text())
    (run / "stages/finetune/stage.json").write_text(json.dumps({**facts, "generation": 3}))
    seal(run / "stages/finetune")
    assert "another document embedder" in refused("ask", run, "Who?", "--k", 2)


def test_bad_questions_to_a_run(tiny_run, tmp_path, refused):
    before = tree(tiny_run)
    assert "[MASK]" in refused("explain", tiny_run, "Nothing is hidden here.")
    assert "no document 'Nowhere'" in refused("explain", tiny_run, "The [MASK] here.", "--exclude", "Nowhere")
    assert "no such file" in refused("eval", tiny_run, "--qa", tmp_path / "none.jsonl")
    (tmp_path / "long.jsonl").write_text(LONG)
    assert "long.jsonl:3" in refused("eval", tiny_run, "--qa", tmp_path / "long.jsonl")
    assert "no document 'Arvad'" in refused("corpus", "show", tiny_run / "corpus", "Arvad")
    assert "no usable document" in refused("corpus", "add", tiny_run / "corpus", tiny_run.parent / "docs.jsonl")
    assert tree(tiny_run) == before


def test_sizes_that_no_network_has(tmp_path, write_tiny, refused):
    recipe = write_tiny(tmp_path)
    for key in ("hidden", "layers", "heads", "intermediate", "projection", "span_hidden", "max_span", "query_length"):
        line = refused("run", recipe, "--out", tmp_path / "run", "--set", f"model.{key}=100000000")
        assert f"'model.{key}' is 100000000" in line and "at most" in line
    # Each in its range, together 10 TB: "run" refuses as "run --plan" does, before it makes anything.
    sizes = {"hidden": 65536, "layers": 64, "heads": 1024, "intermediate": 262144}
    settings = [part for key, value in sizes.items() for part in ("--set", f"model.{key}={value}")]
    assert "a step of this recipe needs" in refused("run", recipe, "--out", tmp_path / "run", *settings)
    assert not (tmp_path / "run").exists()


NESTED = {".json": "[" * 100_000, ".toml": "a = " + "[" * 100_000, ".jsonl": "[" * 100_000}


def test_files_of_a_run_that_are_nested_without_end(tiny_run, tmp_path, capsys):
    files = [file for file in sorted(tiny_run.rglob("*")) if file.suffix in NESTED and file.is_file()]
    assert len(files) > 10
    for number, file in enumerate(files):
        run = Path(shutil.copytree(tiny_run, tmp_path / str(number)))
        (run / file.relative_to(tiny_run)).write_text(NESTED[file.suffix])
        for command in (["ask", str(run), "What is the currency of Arvad?"], ["corpus", "info", str(run / "corpus")]):
            code, said = main(command), capsys.readouterr().err
            assert code in (0, 2) and "Traceback" not in said, (file, said)
            assert code == 0 or sum(line.startswith("error: ") for line in said.splitlines()) == 1, (file, said)
        shutil.rmtree(run)


def test_sizes_in_a_model_that_fit_nowhere(tiny_run, tmp_path, refused):
    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    file = run / "stages" / "finetune" / "config.json"
    before = file.read_text()
    for name, value in (("hidden_size", 10**8), ("num_hidden_layers", 10**7), ("vocab_size", 10**12), ("hidden_size", -1)):
        text = re.sub(rf'"{name}": *\d+', f'"{name}": {value}', before)
        assert text != before
        file.write_text(text)
        seal(file.parent)
        with pytest.raises(RunError, match=f"{name} is {value}"):
            read_spec(file)
        refused("ask", run, "Who?")


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
    ("index", "search", "RUN", "Who?", "--k", "0"),
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
