"""Scores of taggers on labelled files, against counts made by hand; the files that cannot be read."""

import json
import lzma

import pytest

from realm.cli import main
from realm.documents.ingest.builder import build_corpus
from realm.documents.spans.evaluation import LabelledSentence, evaluate_tagger, read_labelled
from realm.documents.spans.spans import spans_of
from realm.errors import DataError

SENTENCES = [
    (["We", "saw", "Ada", "Lovelace", "in", "London", "in", "1843", "."], ["O", "O", "B-PER", "I-PER", "O", "B-LOC", "O", "O", "O"]),
    (["She", "met", "King", "Bob", "there", "."], ["O", "O", "O", "B-PER", "O", "O"]),
    (["They", "left", "paris", "."], ["O", "O", "B-LOC", "O"]),
]


@pytest.fixture
def labelled(tmp_path):
    path = tmp_path / "gold.jsonl"
    path.write_text("".join(json.dumps({"tokens": tokens, "tags": tags}) + "\n" for tokens, tags in SENTENCES))
    return path


@pytest.mark.parametrize(("labels", "spans"), [
    ("O B-X I-X O I-X", [(1, 3, "X"), (4, 5, "X")]),
    ("B-X B-X I-Y I-X", [(0, 1, "X"), (1, 2, "X"), (2, 3, "Y"), (3, 4, "X")]),
    ("U-X B-X L-X S-Y B-Y E-Y I-Y", [(0, 1, "X"), (1, 3, "X"), (3, 4, "Y"), (4, 6, "Y"), (6, 7, "Y")]),
    ("PER PER O LOC", [(0, 2, "PER"), (3, 4, "LOC")]), ("B I O B", [(0, 2, ""), (3, 4, "")]),
    ("B-foo-bar I-foo-bar", [(0, 2, "foo-bar")]), ("", []),
])  # fmt: skip
def test_spans_of_labels(labels, spans):
    assert spans_of(labels.split()) == spans


def test_scores_are_counts(labelled):
    # Found: Ada Lovelace (exact), London (exact), King Bob (touches), 1843 (a date, which the file never marks); paris is missed.
    found = evaluate_tagger(labelled)
    assert {name: found[name] for name in ("sentences", "marked", "predicted", "left_out", "correct")} == {
        "sentences": 3, "marked": 4, "predicted": 3, "left_out": 1, "correct": 2,
    }  # fmt: skip
    assert (found["precision"], found["recall"], found["touching"]) == (2 / 3, 2 / 4, 1.0)
    assert found["f1"] == pytest.approx(4 / 7)


def test_a_corpus_teaches_the_tagger(labelled, tmp_path, capsys):
    source = tmp_path / "docs.jsonl"
    text = "Once the king was here. Then a King spoke to Bob. Now the king sleeps and Ada Lovelace reads."
    source.write_text(json.dumps({"id": "1", "title": "", "text": text}) + "\n")
    build_corpus([source], tmp_path / "corpus", vocab_size=300, tagger="truecase")
    own = evaluate_tagger(labelled, corpus=tmp_path / "corpus")
    assert own == evaluate_tagger(labelled, "truecase", tmp_path / "corpus") and own["left_out"] == 0 and own["correct"] == 2
    assert main(["tagger", "eval", str(labelled), "--corpus", str(tmp_path / "corpus"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == own


def test_columns_and_compressed_files_read_the_same(labelled, tmp_path):
    rows = read_labelled(labelled)
    assert rows[0] == LabelledSentence(tuple(SENTENCES[0][0]), tuple(SENTENCES[0][1]))
    assert [rows[0].text[start:end] for start, end in rows[0].edges] == SENTENCES[0][0]
    columns = ["-DOCSTART- X O", ""]
    for tokens, tags in SENTENCES:
        columns += [*(f"{token} NN {tag}" for token, tag in zip(tokens, tags, strict=True)), ""]
    (tmp_path / "gold.conll").write_text("\n".join(columns))
    assert read_labelled(tmp_path / "gold.conll") == rows
    (tmp_path / "gold.jsonl.xz").write_bytes(lzma.compress(labelled.read_bytes()))
    assert read_labelled(tmp_path / "gold.jsonl.xz") == rows


@pytest.mark.parametrize(("content", "problem"), [
    ("", "no sentence"), ("\n \n", "no sentence"),
    ('{"tokens": ["a"], "tags": ["O"]}\n{"tokens": ["a"]}\n', "bad.txt:2: .*KeyError"),
    ('{"tokens": ["a"], "tags": ["O"]}\n[1]\n', "bad.txt:2: "),
    ('{"tokens": ["a", "b"], "tags": ["O"]}\n', "2 tokens but 1 tags"),
    ('{"tokens": "ab", "tags": ["O", "O"]}\n', "lists of strings"),
    ('{"tokens": [1], "tags": ["O"]}\n', "lists of strings"), ("word\n", "one column"),
])  # fmt: skip
def test_files_that_cannot_be_read(content, problem, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_text(content)
    with pytest.raises(DataError, match=problem):
        read_labelled(path)


def test_names_by_casing_on_real_text(data_dir):
    found = evaluate_tagger(data_dir / "ner" / "wikigold_part.jsonl.xz", "truecase")
    assert found["f1"] >= 0.78 and found["touching"] >= 0.90
