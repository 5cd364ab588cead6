"""realm verify finds every damaged file, realm repair makes again what can be made, and nothing that we advise leads nowhere."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small import tree

from realm.answering.opening import open_run
from realm.cli import main
from realm.documents.change.updates import add_documents
from realm.search.blocks import open_inputs
from realm.search.publishing.embedding import eight_bit, embed_corpus
from realm.search.publishing.snapshot import read_manifest, write_manifest
from realm.storage.manifests import read_note

QUESTION = "What is the currency of Arvad?"


@pytest.fixture
def run(tiny_run, tmp_path):
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


@pytest.fixture
def say(capsys):
    """Runs a command; returns its exit code, the object of --json and standard error."""

    def command(*words):
        capsys.readouterr()
        code = main([*map(str, words), "--json"])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, json.loads(out.splitlines()[-1]) if out.strip() else {}, err

    return command


def flip(path, at=None, bit=0):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1 << bit
    path.write_bytes(data)


def answers(run):
    found = open_run(run).answerer.answer([QUESTION], k=3)[0]
    return found.answer, found.p, found.confidence, [(one.doc_id, one.text, one.p_z) for one in found.evidence]


def needed(run):
    return int(json.loads((run / "stages" / "finetune" / "stage.json").read_text())["generation"])


def test_a_whole_run_and_a_whole_corpus(run, say):
    for half in ("stages/ict.staging", "checkpoints/pretrain/step-0000003.staging", "checkpoints/pretrain/best-0000003.staging"):
        (run / half).mkdir(parents=True)  # what a killed process left is no damage
    before = tree(run)
    assert say("verify", run)[:2] == (0, {"place": str(run), "damage": [], "put_aside": []})
    assert say("verify", run / "corpus")[0] == 0 and say("repair", run, "--yes")[0] == 0 and tree(run) == before
    assert say("verify", run / "nowhere")[0] == 2 and say("verify", run / "stages")[0] == 2


@pytest.mark.parametrize("name", [
    "index/{n}/vectors-00000.npy", "index/{n}/manifest.json", "params/{n}/model.safetensors",
    "corpus/segments/000001.documents.npy", "corpus/CURRENT", "index/CURRENT",
])  # fmt: skip
def test_what_can_be_made_again_is(run, say, name):
    expected, path = answers(run), run / name.format(n=f"{needed(run):06d}")
    flip(path, 0, 7) if path.name.endswith(".json") or path.name == "CURRENT" else flip(path)
    damaged = tree(run)
    code, found, err = say("verify", run)
    assert code == 2 and "can be repaired: realm repair" in err
    assert any(one["repairable"] and Path(one["path"]) in (path, *path.parents) for one in found["damage"])
    code, found, err = say("repair", run)
    assert code == 2 and "--yes" in err and tree(run) == damaged, "without --yes nothing changes"
    code, found, _ = say("repair", run, "--yes")
    assert (code, found["damage"]) == (0, []) and found["mended"]
    assert say("verify", run)[0] == 0 and answers(run) == expected


def test_a_rebuilt_index_has_the_same_bits_also_of_what_came_and_went(run, say, tiny_run):
    assert say("corpus", "add", run / "corpus", tiny_run.parent / "more.jsonl")[0] == 0 == say("index", "build", run)[0]
    assert say("corpus", "remove", run / "corpus", "Arvad/0")[0] == 0
    expected, path = answers(run), run / "index" / f"{needed(run):06d}"
    vectors = np.concatenate([np.load(file) for file in sorted(path.glob("vectors-*.npy"))])
    flip(path / "vectors-00000.npy")
    assert say("repair", run, "--yes")[0] == 0 and answers(run) == expected and "Arvad/0" not in str(expected)
    assert (np.load(path / "vectors-00000.npy") == vectors).all()


def test_an_index_of_eight_bits_is_rebuilt_in_eight_bits(run, say):
    path, inputs = run / "index" / f"{needed(run):06d}", open_inputs(run / "corpus", 32)
    write_manifest(path, dataclasses.replace(read_manifest(path, needed(run)), arithmetic="int8"))
    flip(path / "vectors-00000.npy")
    assert say("repair", run, "--yes")[0] == 0
    vectors = embed_corpus(eight_bit(run / "params" / path.name, 1), inputs, np.arange(len(inputs.store)))
    assert (np.load(path / "vectors-00000.npy") == vectors).all() and read_manifest(path, needed(run)).arithmetic == "int8"


def test_a_lost_generation_and_its_parameters_come_from_the_stage(run, say):
    expected, number = answers(run), f"{needed(run):06d}"
    shutil.rmtree(run / "index" / number)
    shutil.rmtree(run / "params" / number)
    assert say("repair", run, "--yes")[0] == 0 and answers(run) == expected


@pytest.mark.parametrize("name", [
    "corpus/segments/000001.arrow", "stages/finetune/model.safetensors", "corpus/tagger.json",
    "corpus/tokenizer/tokenizer.json", "stages/finetune/tokenizer.json",
])  # fmt: skip
def test_what_cannot_be_made_again_is_said(tiny_run, run, say, name):
    path = run / name
    flip(path, path.read_bytes().find(b"Tirel") if path.suffix == ".arrow" else None)
    before = tree(run)
    code, found, _ = say("repair", run, "--yes")
    assert code == 2 and tree(run) == before
    assert (one := next(one for one in found["damage"] if one["path"] == str(path))) and not one["repairable"]
    if path.suffix == ".arrow":
        assert set(one["documents"]) == {json.loads(row)["id"] for row in (tiny_run.parent / "docs.jsonl").read_text("utf-8").splitlines()}


def test_a_flipped_bit_in_a_vector_ends_well(run, say):
    """It was put aside, and building the index again said that it is not there, for ever."""
    expected, number = answers(run), needed(run)
    flip(run / "index" / f"{number:06d}" / "vectors-00000.npy", bit=6)
    for _ in range(2):
        code, _, err = say("ask", run, QUESTION)
        assert code == 2 and "realm index build" in err
    assert say("index", "build", run)[0] == 0
    assert answers(run) == expected and say("verify", run)[0] == 0


def test_a_lost_current_of_a_corpus_ends_well(run, say):
    expected = answers(run)
    (run / "corpus" / "CURRENT").unlink()
    code, _, err = say("ask", run, QUESTION)
    assert code == 2 and f"realm repair {run / 'corpus'}" in err
    assert say("repair", run / "corpus", "--yes")[0] == 0 and answers(run) == expected


def test_what_is_not_rebuilt_is_cured_as_it_is_said(run, say):
    expected = answers(run)
    (run / "run.json").write_bytes(b"")
    flip(run / "results" / "finetune.json", 0, 7)
    code, _, err = say("ask", run, QUESTION)
    assert code == 2 and "realm verify" in err and "emove" not in err
    found = {Path(one["path"]): one["cure"] for one in say("verify", run)[1]["damage"]}
    assert found.pop(run / "index") == "Mend these first"
    assert set(found) == {run / "run.json", run / "results" / "finetune.json"}
    for path, cure in found.items():
        assert cure == "Remove it: realm run writes it again"
        path.unlink()
    (one,) = say("verify", run)[1]["damage"]
    assert one["problem"] == "missing" and one["cure"] == f"Write it again: realm run {run}"
    assert say("run", run)[0] == 0 and all(path.exists() for path in found)
    flip(run / "stages" / "finetune" / "tokenizer.json")
    (one,) = say("verify", run)[1]["damage"]
    assert one["cure"].startswith(f"Copy it from {run / 'corpus' / 'tokenizer'}")
    shutil.copy(run / "corpus" / "tokenizer" / "tokenizer.json", one["path"])
    assert say("verify", run)[0] == 0 and answers(run) == expected


@pytest.mark.parametrize("lost", [("finetune",), ("answers", "pretrain"), ("ict",)])
def test_a_lost_result_is_missed_until_it_is_measured_again(run, say, caplog, lost):
    """The report showed less, and nothing said so; lost answers were written by no command."""

    def measured():
        values = [read_note(path) for path in paths]
        return [{**value, "seconds": 0} if isinstance(value, dict) else [(one["answer"], one["p"]) for one in value] for value in values]

    paths = [run / "results" / f"{name}.json" for name in lost]
    whole = measured()
    for path in paths:
        path.unlink()
    code, found, _ = say("verify", run)
    assert code == 2 and [(one["path"], one["problem"], one["cure"]) for one in found["damage"]] == [
        (str(path), "missing", f"Write it again: realm run {run}") for path in paths
    ]
    assert main(["report", str(run)]) == 0 and f"{paths[0]}: missing, and not shown" in caplog.text
    assert say("run", run)[0] == 0 and say("verify", run)[0] == 0 and measured() == whole


def test_lost_rows_of_training_are_missed(run, say):
    """An empty file stands for rows that nobody has."""
    (run / "metrics.jsonl").unlink()
    (one,) = say("verify", run)[1]["damage"]
    assert one["path"] == str(run / "metrics.jsonl") and "empty file" in one["cure"]
    (run / "metrics.jsonl").touch()
    assert say("verify", run)[0] == 0


@pytest.mark.parametrize("harm", [lambda path: flip(path, 300, 4), Path.unlink])
def test_a_lost_manifest_is_named(tiny_run, run, say, harm):
    """The version before would lack the documents that were added since, and have those that were removed."""
    corpus = run / "corpus"
    add_documents(corpus, [tiny_run.parent / "more.jsonl"])
    newest = max(corpus.glob("manifest-*.json"))
    harm(newest)
    before = tree(corpus)
    code, found, _ = say("repair", corpus, "--yes")
    assert code == 2 and tree(corpus) == before
    assert [(one["path"], one["repairable"]) for one in found["damage"]] == [(str(newest), False)]


HARMS = {
    "a vector": lambda run, number: flip(run / "index" / number / "vectors-00000.npy", bit=6),
    "a manifest": lambda run, number: flip(run / "index" / number / "manifest.json", 40),
    "parameters": lambda run, number: flip(run / "params" / number / "model.safetensors"),
    "gone": lambda run, number: shutil.rmtree(run / "index" / number),
}


@pytest.mark.parametrize(
    ("verb", "harm"), [("run", "a vector"), ("pretrain", "a manifest"), ("refresh", "parameters"), ("refresh", "gone")]
)
def test_no_verb_ends_well_over_a_damaged_index(run, say, verb, harm, tiny_run):
    """They returned 0, and the next question failed: the generation that is needed is built again."""
    expected, number = answers(run), f"{needed(run):06d}"
    words = {
        "run": ["run", tiny_run.parent / "recipe.toml", "--out", run],
        "pretrain": ["run", run, "--stages", "pretrain"],
        "refresh": ["refresh", run, "--once"],
    }
    HARMS[harm](run, number)
    if verb == "refresh":
        assert main([*map(str, words[verb])]) == 0
    else:
        assert say(*words[verb])[0] == 0
    assert say("ask", run, QUESTION)[0] == 0 and answers(run) == expected and say("verify", run)[0] == 0


@pytest.mark.parametrize("verb", ["run", "pretrain", "refresh"])
def test_an_index_that_nothing_can_make_again_is_one_line(run, capsys, verb, tiny_run):
    number = f"{needed(run):06d}"
    HARMS["a vector"](run, number)
    HARMS["parameters"](run, number)
    flip(run / "stages" / "finetune" / "model.safetensors")
    words = {"run": ["run", tiny_run.parent / "recipe.toml", "--out", run], "pretrain": ["run", run, "--stages", "pretrain"]}
    capsys.readouterr()
    assert main([*map(str, words.get(verb, ["refresh", run, "--once"]))]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")
