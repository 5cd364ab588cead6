"""The kind of index a run searches with: chosen in its recipe, changed at any time, told by ``realm index info``."""

import dataclasses
import json
from typing import get_args, get_type_hints

import pytest

from realm.answering.opening import open_run
from realm.cli import main
from realm.recipe import IndexConfig, load_recipe, run_index_kind
from realm.runs.directory import claim_run
from realm.search.index.choice import KINDS
from realm.search.index.native.kernel import installed_kernel
from realm.storage.layout import RunPaths

QUESTION = "What is the currency of Arvad?"


def set_kind(run, kind):
    config = run / "config.toml"
    config.write_text(config.read_text("utf-8").replace('[index]\nkind = "auto"', f'[index]\nkind = "{kind}"'), "utf-8")
    assert run_index_kind(config) == kind


def info(run, capsys):
    capsys.readouterr()
    assert main(["index", "info", str(run), "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_info_of_the_default(run_copy, capsys):
    assert get_args(get_type_hints(IndexConfig)["kind"]) == ("auto", *KINDS), "recipes know every kind"
    found = info(run_copy, capsys)
    assert (found["kind"], found["metric"], found["rows"], found["removed"]) == ("exact", "ip", 12, 0)
    assert found["why"] == "192 components: up to 2,097,152 are scanned whole"
    assert found["recall"] == {"5": 1.0, "20": 1.0, "100": 1.0} and found["recall_measured_on"].startswith("12 sentences")
    assert found["memory_bytes"] >= 12 * 16 * 4 and found["versions"]["corpus"] == 1
    assert main(["corpus", "remove", str(run_copy / "corpus"), "Arvad/0", "Belmor/1"]) == 0
    found = info(run_copy, capsys)
    assert (found["rows"], found["removed"], found["blocks"]) == (12, 2, 10) and found["recall_measured_on"].startswith("10 sentences")
    assert main(["index", "info", str(run_copy)]) == 0
    shown = capsys.readouterr().out
    assert "kind" in shown and "5 1.000, 20 1.000, 100 1.000" in " ".join(shown.split())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_serves_a_run(kind, run_copy, capsys):
    if kind not in ("exact", "compressed"):
        pytest.importorskip("faiss")
    if kind == "compressed" and installed_kernel() is None:
        pytest.skip("no kernel")
    expected = open_run(run_copy).search(QUESTION, 12)
    set_kind(run_copy, kind)
    opened = open_run(run_copy)
    assert opened.generation.index.info()["kind"] == kind
    assert opened.search(QUESTION, 12) == expected  # so few blocks are one list, which every kind searches whole
    found = info(run_copy, capsys)
    assert found["kind"] == kind and found["recall"]["5"] == 1.0


def test_the_kind_may_change_at_any_time(run_copy):
    recipe = load_recipe(run_copy / "config.toml")
    claim_run(RunPaths(run_copy), dataclasses.replace(recipe, index=IndexConfig(kind="exact")))
    assert run_index_kind(run_copy / "config.toml") == "exact"


def test_a_kind_that_is_not_installed(run_copy, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    set_kind(run_copy, "clustered")
    assert main(["index", "search", str(run_copy), QUESTION]) == 2
    assert capsys.readouterr().err.strip() == (
        "error: the index kind clustered needs the extra 'faiss'. Install it: pip install 'realm-qa[faiss]'"
    )


def test_a_shard_cut_short_is_named(run_copy, capsys):
    shard = max((run_copy / "index").glob("0*/vectors-00000.npy"))
    shard.write_bytes(shard.read_bytes()[:-100])
    assert main(["index", "info", str(run_copy)]) == 2
    error = capsys.readouterr().err
    assert "vectors-00000.npy" in error and "SHA-256" in error and len(error.strip().splitlines()) <= 2
