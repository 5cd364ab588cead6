"""Code that lies in a model's directory and that its files name: no verb runs it, whatever stands on standard input."""

import contextlib
import io
import json
import shutil

import pytest
from small import jsonl

from realm.cli import main
from realm.errors import ConfigError
from realm.knn.network import load_network
from realm.models.fusion import FusionReader

CLASSES = ("Config", "Model", "ModelForCausalLM", "ModelForSeq2SeqLM", "ModelForTokenClassification", "ModelForMaskedLM", "Tokenizer")
AUTO = {f"Auto{name}": f"planted.Planted{name}" for name in CLASSES}
OWN = "of a family of its own"
MAPS = {
    "of a known family": {"auto_map": AUTO},
    OWN: {"model_type": "planted", "auto_map": AUTO},
    "from another repository": {"model_type": "planted", "auto_map": {name: f"someone/else--{found}" for name, found in AUTO.items()}},
    "with a list": {"model_type": "planted", "auto_map": ["planted.PlantedConfig", None]},
    "with a word": {"model_type": "planted", "auto_map": "AutoConfig"},
    "with a number": {"model_type": "planted", "auto_map": {"AutoConfig": 3, "AutoModel": 3}},
    "with kernels": {"attn_implementation": "someone/kernels", "auto_map": AUTO},
}
VERBS = (
    "ask DOCUMENTS Who? --body MODEL", "run RECIPE --out OUT --set model.body=MODEL",
    "run RECIPE --out OUT --set model.body=MODEL --plan", "run RECIPE --out OUT --set corpus.tokenizer=MODEL --stages corpus",
    "corpus build DOCUMENTS --out OUT --tokenizer MODEL", "corpus build DOCUMENTS --out OUT --tagger ner:hf:MODEL",
    "import MODEL --out OUT --documents DOCUMENTS", "knn build MODEL DOCUMENTS --out OUT",
)  # fmt: skip
CASES = [(verb, OWN) for verb in VERBS]
CASES += [(verb, kind) for verb in VERBS if verb.startswith(("knn", "import")) for kind in MAPS if kind != OWN]
LOADERS = (FusionReader.load, load_network)
"""Loaders of models that verbs need a datastore or a pre-trained run for."""


@pytest.fixture(scope="module")
def files(tmp_path_factory, make_body):
    """Documents, a recipe over them, and a body that is whole."""
    root = tmp_path_factory.mktemp("planted")
    text = "The weir of Dorn was built by Ellen Marsh. It was finished in 1911."
    jsonl(root / "documents.jsonl", [{"id": str(n), "title": "", "text": f"{text} {n}"} for n in range(3)])
    (root / "recipe.toml").write_text('[corpus]\nsources = ["documents.jsonl"]\n[pretrain]\nsteps = 1\n[finetune]\nsteps = 1\n')
    return {"DOCUMENTS": root / "documents.jsonl", "RECIPE": root / "recipe.toml", "BODY": make_body(root / "body", [text])}


def planted(body, directory, values, trap):
    """A copy of a body whose files name code that would make ``trap``."""
    shutil.copytree(body, directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | values))
    tokenizer = json.loads((directory / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer | values | {"tokenizer_class": "PlantedTokenizer"}))
    code = f"import pathlib\npathlib.Path({str(trap)!r}).touch()\n"
    for name in ("planted.py", "modeling_planted.py", "custom_generate/generate.py"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(code)
    return directory


@pytest.fixture
def model(kind, files, tmp_path, monkeypatch):
    """The planted model; afterwards nothing has run, and nobody was asked."""
    trap, answers = tmp_path / "trap", io.StringIO("y\n" * 20)
    monkeypatch.setattr("sys.stdin", answers)
    yield planted(files["BODY"], tmp_path / "model", MAPS[kind], trap)
    assert not trap.exists() and answers.tell() == 0


@pytest.mark.parametrize(("verb", "kind"), CASES)
def test_no_verb_runs_it(verb, model, files, tmp_path, monkeypatch, capsys):
    """It is refused in one line, or what is known of the model is read without it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    named = {name: str(path) for name, path in files.items()} | {"MODEL": str(model), "OUT": str(tmp_path / "out")}
    words = verb.split()
    for name, value in named.items():
        words = [word.replace(name, value) for word in words]
    code = main(words)
    said = capsys.readouterr()
    assert "y/N" not in said.out + said.err
    assert code == 0 or (code == 2 and sum(line.startswith("error: ") for line in said.err.splitlines()) == 1)


@pytest.mark.parametrize("kind", MAPS)
def test_no_loader_runs_it(model):
    for load in LOADERS:
        with contextlib.suppress(ConfigError):
            load(model)
