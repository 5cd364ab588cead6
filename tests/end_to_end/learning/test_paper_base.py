"""The paper's full-size configuration in its real shapes, two steps of it: BERT-base, blocks of 288, joint inputs of 383, 8 candidates."""

import itertools
import json
import math
import string
from pathlib import Path

import numpy as np
import pytest

from realm.models.model import RealmModel
from realm.progress import Progress
from realm.recipe import load_recipe
from realm.runs.run import run_recipe

RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "paper-base.toml"
VOCABULARY = 30_522


def write_vocabulary(path):
    letters = [*string.ascii_lowercase, *string.digits, *"?.,"]
    head = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    words = ["".join(four) for four in itertools.islice(itertools.product(string.ascii_lowercase, repeat=4), VOCABULARY - len(head))]
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join([*head, *words]) + "\n")
    return words


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_steps_with_real_shapes(tmp_path):
    from realm.text.tokenizer import read_vocabulary

    words, rng = write_vocabulary(tmp_path / "bert"), np.random.default_rng(0)
    read_vocabulary(tmp_path / "bert" / "vocab.txt").save(tmp_path / "bert")
    names = [word.capitalize() for word in words[:4]]
    with open(tmp_path / "docs.jsonl", "w") as file:
        for number in range(10):
            sentences = [f"The {' '.join(rng.choice(words, 30))} of {names[(number + n) % 4]} in {names[n % 4]} today." for n in range(8)]
            file.write(json.dumps({"id": str(number), "title": names[number % 4], "text": " ".join(sentences)}) + "\n")
    (tmp_path / "qa.jsonl").write_text(json.dumps({"id": "q", "question": f"Who is of {names[0]}?", "answers": [names[1]]}) + "\n")
    small = {
        "run": {"device": "cpu", "bf16": False, "threads": 1, "checkpoint_every": 0},
        "corpus": {"sources": [str(tmp_path / "docs.jsonl")], "tokenizer": str(tmp_path / "bert" / "tokenizer.json")},
        "model": {"body": ""},  # the weights are not here; the shapes are
        "ict": {"steps": 2, "batch": 2},
        "pretrain": {"steps": 2, "batch": 2},
        "finetune": {"train": str(tmp_path / "qa.jsonl"), "dev": "", "steps": 2},
        "eval": {"qa": ""},
    }
    run = tmp_path / "run"
    run_recipe(load_recipe(RECIPE, small), run, stages=None, progress=Progress(quiet=True))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {row["stage"]: row["loss"] for row in rows if "loss" in row}
    assert {"ict", "pretrain", "finetune"} <= set(losses) and all(math.isfinite(loss) for loss in losses.values())
    networks = RealmModel.from_pretrained(run / "stages" / "pretrain").spec.networks
    assert set(networks) == {"embedder", "encoder"}
    for network in networks.values():
        config = network.body.config
        assert (config["hidden_size"], config["num_hidden_layers"], config["vocab_size"]) == (768, 12, VOCABULARY)
    store = json.loads(next((run / "corpus").glob("manifest-*.json")).read_text())
    assert store["block_length"] == 288 and store["segments"][0]["tokens"] / store["blocks"] > 150
