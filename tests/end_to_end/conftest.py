"""A small corpus to point in: each fact stands in two documents, in other words; and a recipe of seconds over it."""

import tomllib
from pathlib import Path

import pytest
import torch
from small import as_sentence_model, jsonl
from toy_runs import train

from realm.models.spec import bert_spec
from realm.recipe import build_recipe, dump_recipe
from realm.text.tokenizer import train_wordpiece

RECIPES = Path(__file__).resolve().parents[2] / "recipes"

TOWNS = ("Oslo", "Lima", "Cairo", "Quito", "Hanoi", "Accra", "Sofia", "Dakar", "Minsk", "Tunis", "Delhi", "Seoul")
NAMES = (
    *("Karel Brandt", "Ilse Kolm", "Omar Vesse", "Nina Tarro", "Paul Ilmar", "Rosa Quend"),
    *("Jan Sorvik", "Ada Palun", "Tom Grabe", "Eva Osta", "Max Melva", "Lea Durn"),
)


@pytest.fixture(scope="session")
def towns():
    return towns_recipe


def towns_recipe(root, **pretrain):
    """Write the documents into ``root``; each has a second sentence that nothing repeats. ``pretrain``: other values of that section."""
    rows = []
    for n, (town, name) in enumerate(zip(TOWNS, NAMES, strict=True)):
        built = f"The old stone bridge of {town} was built by {name}. Many people walk there on warm evenings of {n + 3} months."
        lived = f"The architect {name} finished the old stone bridge of {town} in {1700 + n}. It was the longest of its time, or was it?"
        rows += [{"id": town, "title": town, "text": built}, {"id": name, "title": name, "text": lived}]
    values = {
        "corpus": {"sources": [str(jsonl(root / "documents.jsonl", rows))], "vocab_size": 400},
        "run": {"threads": 1, "device": "cpu"},
        "model": {"hidden": 32, "layers": 2, "heads": 2, "intermediate": 64, "projection": 16, "span_hidden": 32},
        "warm": {"steps": 1, "batch": 4},
        "ict": {"steps": 2, "batch": 8},
        "retrieval": {"kind": "hybrid"},
        "pretrain": {
            "fill": "pointer", "masking": "recurring", "exclude": "document", "proposals": 10, "shown": 0.5, "questions": 0.5,
            "reader_first": 2, "steps": 2, "batch": 8, "candidates": 4, "refresh": "inline", **pretrain,
        },
    }  # fmt: skip
    return build_recipe(values)


@pytest.fixture(scope="session")
def toy():
    return toy_run


def toy_run(root, name, retrieval, asked, **corpus):
    """The recipe of this name run in ``root`` at toy size. ``asked``: id, question and answer of each row that it is evaluated on."""
    values = tomllib.loads((RECIPES / f"{name}.toml").read_text("utf-8"))
    assert values["model"].pop("body") == "realm-minilm-en" and values["retrieval"] == retrieval
    values["run"] |= {"threads": 1}
    values["model"] |= {"layers": 1, "hidden": 32, "intermediate": 64, "heads": 2, "projection": 16}
    values["corpus"] |= {"block_length": 64, "vocab_size": 300, **corpus}
    values |= {"warm": {"steps": 1, "batch": 2}, "ict": {"steps": 1, "batch": 4}}
    values["pretrain"] = {"steps": 1, "batch": 2, "candidates": 3, "refresh": "inline", "force": True, "fill": "pointer", "held_out": 0}
    rows = [{"id": key, "question": question, "answers": [answer]} for key, question, answer in asked]
    values["eval"] = {"qa": str(jsonl(root / "qa.jsonl", rows)), "k": [1, 4]}
    (root / "recipe.toml").write_text(dump_recipe(build_recipe(values)), "utf-8")
    train(root / "recipe.toml", root / "run")
    return root / "run"


@pytest.fixture(scope="session")
def make_body():
    """What writes a published body in small into a directory; its tokenizer spells some texts."""
    return write_body


def write_body(directory, texts):
    from transformers import AutoConfig, AutoModel

    tokenizer = train_wordpiece(texts, 300)
    shape = {"vocab_size": tokenizer.vocab_size, "hidden": 32, "layers": 2, "heads": 2, "intermediate": 64, "max_length": 512}
    values = dict(bert_spec(dropout=0.1, attention_dropout=0.1, **shape).config)
    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.for_model(values.pop("model_type"), **values)).save_pretrained(directory)
    tokenizer.save(directory)
    return as_sentence_model(directory, 32, "mean_tokens", "Normalize")
