"""The verbs end to end, and what users get wrong: one line, exit code 2."""

import pytest

from realm.cli import main

SHAPE = ("--context", "16", "--stride", "8", "--column", "source=en", "--column", "target=de")


def test_from_a_model_to_a_text(say, tmp_path, kind, model_directories, text_files):
    if kind == "translation":
        pytest.importorskip("sacrebleu")
    source = text_files / ("docs.jsonl" if kind == "causal" else "pairs.jsonl")
    held_out = text_files / ("held_out.jsonl" if kind == "causal" else "pairs.jsonl")
    made = say("knn", "build", model_directories[kind], source, "--out", tmp_path / "d", *SHAPE, "--json")
    assert made["kind"] == kind and made["keys"] > 100 and made["dtype"] == "float16"
    found = say("knn", "tune", tmp_path / "d", held_out, "--out", tmp_path / "s.json", "--k", 2, 8, "--json")
    assert found["loss"] <= found["model_loss"] and {row["k"] for row in found["grid"]} == {2, 8}
    scores = say("knn", "eval", tmp_path / "d", held_out, "--settings", tmp_path / "s.json", "--beams", 2, "--json")
    assert scores["knn_perplexity"] == pytest.approx(found["knn_perplexity"], rel=1e-3)
    assert ("translation_with" in scores) == (kind == "translation") and scores["seconds_per_token"]["search"] > 0
    told = say("knn", "generate", tmp_path / "d", "the cat", "--tokens", 5, "--a", 0.9, "--temperature", 1, "--json")
    assert told == say("knn", "generate", tmp_path / "d", "the cat", "--tokens", 5, "--a", 0.9, "--temperature", 1, "--json")
    assert told["text"] == "the cat" and told["settings"]["a"] == 0.9


def test_plain_output(tmp_path, model_directories, text_files, capsys):
    """Without --json: facts on standard output, progress on standard error."""
    arguments = ["knn", "build", model_directories["causal"], text_files / "docs.jsonl", "--out", tmp_path / "d", *SHAPE]
    assert main([str(argument) for argument in arguments]) == 0
    captured = capsys.readouterr()
    assert "knn: keys" in captured.err and "transformer.h.1.mlp" in captured.out


@pytest.fixture
def store(tmp_path, say, model_directories, text_files):
    say("knn", "build", model_directories["causal"], text_files / "docs.jsonl", "--out", tmp_path / "store", *SHAPE, "--json")
    return tmp_path / "store"


def test_bad_builds(refused, tmp_path, model_directories, text_files):
    causal, pairs = model_directories["causal"], model_directories["translation"]
    docs, out = text_files / "docs.jsonl", ("--out", tmp_path / "new")
    assert "no layer 'mlp'" in (line := refused("knn", "build", causal, docs, *out, "--layer", "mlp")) and "transformer.h.1.mlp" in line
    assert "can be loaded from" in refused("knn", "build", tmp_path / "nothing", docs, *out)
    assert "no such file" in refused("knn", "build", causal, tmp_path / "no.jsonl", *out)
    line = refused("knn", "build", pairs, text_files / "pairs.jsonl", *out)
    assert "pairs.jsonl:1: no text in 'source' or 'target'" in line and "--column source=NAME" in line
    (tmp_path / "broken.jsonl").write_text('{"en": "a", "de": "b"}\n{"en"\n')
    assert "broken.jsonl:2: not JSON" in refused("knn", "build", pairs, tmp_path / "broken.jsonl", *out, *SHAPE)
    assert not (tmp_path / "new" / "datastore.json").exists()


def test_bad_uses(refused, store, tmp_path, model_directories, text_files):
    held_out = text_files / "held_out.jsonl"
    assert "a = 1.5 is outside 0 to 1" in refused("knn", "eval", store, held_out, "--a", 1.5)
    assert "no layer 'transformer.h.1.mlp'" in refused("knn", "eval", store, held_out, "--model", model_directories["translation"])
    assert "realm knn tune" in refused("knn", "eval", store, held_out, "--settings", tmp_path / "none.json")
    assert "--tokens 0: too few" in refused("knn", "generate", store, "the cat", "--tokens", 0)
    assert "the model reads at most 32" in refused("knn", "generate", store, "the cat", "--tokens", 40)
    keys = store / "index" / "000001" / "vectors-00000.npy"
    keys.write_bytes(keys.read_bytes()[:-10])
    assert "the keys cannot be used" in refused("knn", "eval", store, held_out)
