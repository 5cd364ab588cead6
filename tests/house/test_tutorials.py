"""The tutorials, done: their commands run in their order, over files such as they speak of."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import tomli_w
from processes import until

from realm.cli import main
from realm.models.bodies.known import known_body, local_directory
from realm.search.publishing.parameters import requested
from realm.storage.layout import RunPaths, stage_facts
from realm.storage.metrics import MetricsLog

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NOTES = {
    "notes/bridge.txt": "The Harrow bridge was built in 1911 by Ellen Marsh, an engineer from Leeds. "
    "In 1978 a flood carried away the middle arch. The firm Toller and Sons repaired it for 84,000 pounds.",
    "notes/council.md": "# Council\n\nSofia Moretti chairs the council. The next meeting is on 12 May in the old school.",
}
RIVERS = {"Nile": "Cairo", "Seine": "Paris", "Danube": "Vienna", "Vltava": "Prague", "Tiber": "Rome", "Spree": "Berlin"}
SHORT = "--set pretrain.steps=6 --set pretrain.reader_first=4 --set pretrain.held_out=8 --set pretrain.eval_every=3 --set finetune.steps=2"
"""Of the half hour that a tutorial trains, so many steps."""


def blocks(name, language):
    return [body for kind, body in FENCE.findall((TUTORIALS / name).read_text("utf-8")) if kind == language]


def commands(name):
    """The arguments of each `realm` line of a tutorial that ends by itself."""
    for line in "".join(blocks(name, "")).splitlines():
        if line.startswith("realm ") and not line.startswith("realm serve"):
            yield shlex.split(line, comments=True)[1:]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A directory with the files of the tutorials, a cache of its own, and nothing on standard input."""
    known = known_body("realm-minilm-en")
    assert known is not None
    if local_directory(known) is None:
        pytest.skip("the base of realm-minilm-en is not installed")
    for name, text in NOTES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    texts = [f"The {river} flows through {city}. Ships reach {city} from the sea." for river, city in RIVERS.items()]
    texts += [f"People in {city} like the {river}. Old bridges cross the {river} in {city}." for river, city in RIVERS.items()]
    rows = [{"id": str(number), "title": f"Page {number}", "text": text} for number, text in enumerate(texts)]
    (tmp_path / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_ask_my_notes(desk, capsys):
    """It prints what the tutorial and README show: the answer, and the evidence with the answer marked."""
    done = [words for words in commands("ask-my-notes.md") if not any(word.startswith("runs/") for word in words)]
    for words in done:
        arguments = [word for word in words if word != "report.pdf"]  # PDFs have tests of their own
        assert main(arguments) == 0, words
    printed, shown = capsys.readouterr().out, blocks("ask-my-notes.md", "")[1]
    assert [words[0] for words in done] == ["ask", "ask", "cache", "cache"]
    assert re.search(r"^  Ellen Marsh  p = 0\.\d\d, confidence 0\.\d\d$", printed, re.M)
    for line in shown.splitlines():
        if line.startswith("     "):
            assert line.rstrip(" …")[:90] in printed
    assert shown in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_adapt_and_teach(desk, capsys):
    """Both recipes of `mine.toml`, one after the other in one run, with few steps."""
    asked = [{"question": f"Which river flows through {city}?", "answers": [river]} for river, city in RIVERS.items()]
    lines = [*blocks("teach-with-questions.md", "")[0].splitlines(), *map(json.dumps, asked)]
    (desk / "qa_train.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    recipe = desk / "mine.toml"
    for name in ("adapt-without-questions.md", "teach-with-questions.md"):
        recipe.write_text((recipe.read_text("utf-8") if recipe.exists() else "") + blocks(name, "toml")[0], "utf-8")
        for words in commands(name):
            assert main([*words, *[word for word in shlex.split(SHORT) if words[0] == "run"]]) == 0, words
            if words[-1] == "--json":
                assert json.loads(capsys.readouterr().out.splitlines()[-1])["question"] == "Who repaired the bridge?"
    assert (desk / "runs" / "mine" / "stages" / "finetune" / "stage.json").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(find_spec("ray") is None, reason="the extra ray is not installed")
def test_pretrain_at_scale(desk, monkeypatch):
    """Its three commands as printed: two ranks; a trainer, and actors that build what it asks for until it ends."""
    values, few = (tomllib.loads(blocks(name, "toml")[0]) for name in ("adapt-without-questions.md", "pretrain-at-scale.md"))
    values["pretrain"] |= {"steps": 6, "reader_first": 2, "held_out": 0, "batch": 4, "candidates": 3}
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ranks, run, refresh = (shlex.split(line, comments=True) for block in blocks("pretrain-at-scale.md", "") for line in block.splitlines())
    (desk / "mine.toml").write_text(tomli_w.dumps(values), "utf-8")
    subprocess.run(ranks, check=True)
    values["pretrain"] |= few["pretrain"] | {"refresh_every": 3}
    (desk / "mine.toml").write_text(tomli_w.dumps(values), "utf-8")
    with subprocess.Popen(run) as trainer:
        try:
            until(lambda: trainer.poll() is not None or requested(RunPaths(desk / "runs" / "actors")), 300)
            said = subprocess.run(refresh, check=True, stderr=subprocess.PIPE, text=True).stderr
            assert trainer.wait() == 0 and "2 actors on this machine" in said and "pre-training has ended" in said
        finally:
            trainer.kill()
    for name in ("ranks", "actors"):
        paths = RunPaths(desk / "runs" / name)
        assert stage_facts(paths, "pretrain")["steps"] == 6 and main(["verify", str(paths.root)]) == 0
    assert any("refresh_seconds" in row and row["step"] == 6 for row in MetricsLog(paths.metrics).rows())
