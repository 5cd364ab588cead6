"""The trained tagger: it learns, gives the same weights again, finds the best path, and survives saving."""

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest

from realm.cli import main
from realm.corpus.tagging.evaluation import evaluate_tagger, score
from realm.corpus.tagging.labelled import LabelledSentence
from realm.corpus.tagging.perceptron import BUCKETS, FILE, PerceptronTagger, train_perceptron
from realm.errors import DataError

PEOPLE, PLACES = ["Ada", "Bob", "Cleo", "Dan Brown", "Eve"], ["Oslo", "Rome", "New York", "Bonn"]


def made(count: int, seed: int) -> list[LabelledSentence]:
    source = random.Random(seed)
    sentences = []
    for _ in range(count):
        parts = [("Yesterday", ""), (source.choice(PEOPLE), "PER"), (source.choice(["went", "drove"]), ""), ("to", "")]
        parts += [(source.choice(PLACES), "LOC"), ("in", ""), (str(source.randint(1900, 2020)), "DATE"), (".", "")]
        words = [(word, kind, at) for text, kind in parts for at, word in enumerate(text.split())]
        labels = tuple("O" if not kind else f"{'I' if at else 'B'}-{kind}" for _, kind, at in words)
        sentences.append(LabelledSentence(tuple(word for word, _, _ in words), labels))
    return sentences


@pytest.fixture(scope="module")
def trained() -> PerceptronTagger:
    return train_perceptron(made(60, seed=1), epochs=3)


def test_it_learns_kinds_and_borders(trained: PerceptronTagger) -> None:
    assert trained.labels == ("O", "B-date", "I-date", "B-name", "I-name")
    found = score(trained, made(40, seed=2))
    assert found["f1"] == 1.0 and found["left_out"] == 0
    text = "Yesterday\u00a0Dan Brown went to New York in 1950."
    assert [(text[span.start : span.end], span.kind) for span in trained.tag(text)] == [
        ("Dan Brown", "name"), ("New York", "name"), ("1950", "date"),
    ]  # fmt: skip
    assert trained.tag("") == trained.tag(" \n") == []


def test_the_same_again(trained: PerceptronTagger) -> None:
    again = train_perceptron(made(60, seed=1), epochs=3)
    assert np.array_equal(again.weights, trained.weights) and np.array_equal(again.moves, trained.moves)


def test_the_path_is_the_best_of_all() -> None:
    source = np.random.default_rng(0)
    weights = np.zeros((BUCKETS, 3), np.float32)
    weights[:8] = source.normal(size=(8, 3))
    tagger = PerceptronTagger(weights, source.normal(size=(4, 3)).astype(np.float32), ["O", "B-name", "I-name"])
    for _ in range(20):
        rows = source.integers(0, 8, size=(4, 2))

        def total(path: tuple[int, ...], rows: np.ndarray = rows) -> float:
            kept = sum(weights[row, label] for position, label in enumerate(path) for row in rows[position])
            return float(kept + sum(tagger.moves[before, label] for before, label in zip((3, *path), path, strict=False)))

        best = max(itertools.product(range(3), repeat=4), key=total)
        assert tuple(tagger.best_path(rows)) == best


def test_train_and_eval_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "gold.jsonl", tmp_path / "tagger"
    rows = ({"tokens": sentence.tokens, "tags": sentence.labels} for sentence in made(60, seed=1))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["tagger", "train", str(file), "--out", str(out), "--epochs", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["tagger"] == f"perceptron:{out}"
    assert evaluate_tagger(file, f"perceptron:{out}")["f1"] == 1.0
    for arguments, problem in (([], "here already"), (["--epochs", "0"], "here already")):
        assert main(["tagger", "train", str(file), "--out", str(out), *arguments]) == 2
        assert problem in capsys.readouterr().err
    assert main(["tagger", "train", str(file), "--out", str(tmp_path / "new"), "--epochs", "0"]) == 2
    assert not (tmp_path / "new").exists()


def test_what_cannot_be_loaded_or_learned(tmp_path: Path, trained: PerceptronTagger) -> None:
    with pytest.raises(DataError, match=r"no tagger here.*realm tagger train"):
        PerceptronTagger.load(tmp_path)
    trained.save(tmp_path / "tagger")
    assert PerceptronTagger.load(tmp_path / "tagger").state() == {"type": "perceptron", "model": str((tmp_path / "tagger").resolve())}
    (tmp_path / "tagger" / FILE).write_bytes(b"0123456789")
    with pytest.raises(DataError, match="no tagger here"):
        PerceptronTagger.load(tmp_path / "tagger")
    with pytest.raises(DataError, match="no sentence has a labelled span"):
        train_perceptron([LabelledSentence(("a",), ("O",))])
