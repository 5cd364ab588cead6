"""Ablations: every row trains and is measured, stages are shared, a killed run goes on, the table says what is finished."""

import dataclasses
import json
import shutil

import pytest

from realm.answering.opening import open_run
from realm.cli import main
from realm.errors import ConfigError, CorpusError, RunError, TrainingError
from realm.experiments import ablate as module
from realm.experiments.ablate import BASELINE, GROUPS, OWN, REALM, TABLE2, ablate, ablation_recipe, ablation_table, chosen_ablations
from realm.models.types import Sequence
from realm.progress import Progress
from realm.recipe import load_recipe

QUIET = Progress(quiet=True)
PLACES = ["Gardon", "Helvar", "Istrum", "Jolvik", "Kasmer", "Lorund", "Mirvan", "Nolbek"]


def write_recipe(root, write_tiny):
    """The tiny recipe with documents enough for sixteen candidates, hardly trained."""
    recipe = write_tiny(root)
    with open(root / "docs.jsonl", "a", encoding="utf-8") as file:
        for number, name in enumerate(PLACES):
            text = f"The river of {name} is long. People in {name} fished there in {1900 + number}. Many visit {name} in 1950."
            file.write(json.dumps({"id": name, "title": name, "text": text}) + "\n")
    text = recipe.read_text("utf-8").replace("steps = 5", "steps = 2").replace("candidates = 4", "candidates = 3")
    recipe.write_text(text.replace("eval_every = 4", "eval_every = 100"), "utf-8")
    return recipe


def no_training(monkeypatch):
    def never(*_, **__):
        raise AssertionError("trained or evaluated again")

    monkeypatch.setattr("realm.training.context.fit", never)
    monkeypatch.setattr("realm.evaluation.evaluate.evaluate_retrieval", never)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, write_tiny):
    """Every row there is, one seed."""
    root = tmp_path_factory.mktemp("ablation")
    recipe = load_recipe(write_recipe(root, write_tiny))
    return recipe, root / "out", ablate(recipe, root / "out", GROUPS["all"], 1, QUIET)


def test_every_row_is_measured(whole):
    _, root, found = whole
    rows = {row["row"]: row for row in found["rows"]}
    assert list(rows) == [ablation.name for ablation in (*TABLE2, *OWN)] and found["waiting"] == []
    for name, row in rows.items():
        measures = row["measures"]
        for rate in ("gold_recall_1", "gold_recall_5", "answer_recall_1", "answer_recall_5", "tuned_gold_recall_5", "em"):
            assert 0 <= measures[rate]["mean"] <= 1, (name, rate)
        assert row["seeds"] == [0] and len(row["em_interval"]) == 2 and measures["tokens"]["mean"] > 0 and measures["seconds"]["mean"] > 0
        assert (measures["marginal_utility"] is None) == (name in ("realm_retriever", "realm_encoder", "orqa", "no_null")), name
    json.dumps(found, allow_nan=False)
    assert {path.name for path in root.glob("ablation.*")} == {"ablation.txt", "ablation.json"}


def test_each_stage_is_trained_once(whole):
    _, root, _ = whole
    trained = [path.name.partition("-")[0] for path in (root / "stages").iterdir()]
    # All rows pre-train but the three of mixed parts, each of which is a combination of its own; two are what this recipe does.
    counts = {name: trained.count(name) for name in set(trained)}
    assert counts == {
        "warm": 1, "ict": 1, "continued": 1, "pretrain": len(GROUPS["all"]) - 5, "combined": 3,
        "finetune": len(GROUPS["all"]) - 2,
    }  # fmt: skip


def facts(root, row, stage="pretrain"):
    run = json.loads((root / "rows" / f"{row}-seed-0.json").read_text())["run"]
    return json.loads((root / run / "stages" / stage / "stage.json").read_text())


def test_mixed_rows_are_made_of_the_right_parts(whole):
    import torch

    _, root, found = whole

    def model(row):
        return open_run(root / json.loads((root / "rows" / f"{row}-seed-0.json").read_text())["run"])

    runs = {name: model(name) for name in ("realm", "realm_retriever", "realm_encoder", "orqa")}
    asked = [Sequence([2, 7, 9, 3], [0, 0, 0, 0])]
    retriever = {name: torch.from_numpy(run.generation.embedder.embed_blocks(asked)) for name, run in runs.items()}
    encoder = {name: next(run.networks.pretrained.encoder.parameters()).detach() for name, run in runs.items()}
    for part, groups in ((retriever, ("realm_retriever", "realm_encoder")), (encoder, ("realm_encoder", "realm_retriever"))):
        assert torch.equal(part["realm"], part[groups[0]]) and torch.equal(part["orqa"], part[groups[1]])
        assert not torch.equal(part["realm"], part["orqa"])
    rows = {row["row"]: row["measures"] for row in found["rows"]}
    assert rows["realm"]["gold_recall_5"] == rows["realm_retriever"]["gold_recall_5"]
    # The baseline's encoder reads as much as REALM's, to within a step of it.
    assert facts(root, "orqa")["encoder"] == "continued" and facts(root, "orqa")["retriever"] == "ict"
    assert rows["orqa"]["tokens"]["mean"] == pytest.approx(rows["realm"]["tokens"]["mean"], rel=0.5)
    assert runs["orqa"].answerer.answer(["What is the currency of Arvad?"], k=3)


def test_a_second_start_trains_nothing(whole, tmp_path, monkeypatch):
    recipe, root, found = whole
    moved = shutil.copytree(root, tmp_path / "moved", symlinks=True)
    no_training(monkeypatch)
    again = ablate(recipe, moved, GROUPS["all"], 1, QUIET)
    assert again["rows"] == found["rows"] and again["out"] == str(moved)
    # The measures are gone, the stages are not: nothing is trained either, and the results are the same but for seconds.
    monkeypatch.undo()
    monkeypatch.setattr("realm.training.context.fit", None)
    shutil.rmtree(moved / "rows")
    (row,) = ablate(recipe, moved, chosen_ablations("orqa"), 1, QUIET)["rows"]
    before = next(one for one in found["rows"] if one["row"] == "orqa")
    assert row["measures"]["em"] == before["measures"]["em"] and row["runs"][0]["run"] == before["runs"][0]["run"]


def test_a_row_that_cannot_be_trained_does_not_stop_the_others(whole, tmp_path, monkeypatch):
    recipe, root, _ = whole
    copy = shutil.copytree(root, tmp_path / "copy", symlinks=True)
    for name in ("realm", "frozen"):
        (copy / "rows" / f"{name}-seed-0.json").unlink()
    measure = module._measure

    def failing(shared, ablation, recipe):
        if ablation.name == "realm":
            raise TrainingError("loss is not finite")
        return measure(shared, ablation, recipe)

    monkeypatch.setattr(module, "_measure", failing)
    with pytest.raises(TrainingError, match=r"1 rows could not be trained: realm, seed 0: loss is not finite.*start again"):
        ablate(recipe, copy, chosen_ablations("realm,frozen"), 1, QUIET)
    assert "Not finished: realm (seed 0)" in (copy / "ablation.txt").read_text("utf-8")
    assert (copy / "rows" / "frozen-seed-0.json").exists()


def test_table_of_a_changed_recipe_is_empty(whole, tmp_path):
    recipe, root, _ = whole
    copy = shutil.copytree(root, tmp_path / "copy", symlinks=True)
    other = dataclasses.replace(recipe, ict=dataclasses.replace(recipe.ict, steps=9))
    assert len(ablation_table(other, copy, TABLE2, 1)["waiting"]) == len(TABLE2)
    slower = dataclasses.replace(recipe, run=dataclasses.replace(recipe.run, threads=7))
    assert ablation_table(slower, copy, TABLE2, 1)["waiting"] == []


def test_the_command(whole, capsys):
    _, root, found = whole
    arguments = ["ablate", str(root.parent / "recipe.toml"), "--out", str(root), "--seeds", "1"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "Baseline (ORQA)" in out and "gold@5" in out
    assert main([*arguments, "--json"]) == 0
    value = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["row"] for row in value["rows"]] == [ablation.name for ablation in TABLE2] and not value["waiting"]
    assert value["rows"][0]["measures"] == found["rows"][0]["measures"]


def test_recipes_of_the_rows(whole):
    recipe, _, _ = whole
    long = dataclasses.replace(recipe, pretrain=dataclasses.replace(recipe.pretrain, steps=600, refresh_every=50, refresh="process"))
    recipes = {ablation.name: ablation_recipe(long, ablation, 4) for ablation in GROUPS["all"]}
    assert (
        recipes["realm"].pretrain.refresh_every == 10 and recipes["realm"].pretrain.refresh == "inline" and recipes["realm"].run.seed == 4
    )
    assert recipes["stale"].pretrain.refresh_every == 300 and recipes["frozen"].pretrain.refresh == "frozen"
    assert set(recipes["realm"].eval.k) >= {1, 5}
    assert recipes["no_warm"].pretrain.force and not recipes["no_ict"].pretrain.from_ict
    assert [recipes[f"k{k}"].pretrain.candidates for k in (2, 4, 8, 16)] == [2, 4, 8, 16]
    # No two rows train the same, but for those of mixed parts and the two of what this recipe does.
    same = [name for name, one in recipes.items() if one == recipes["realm"]]
    assert same == ["realm", "realm_retriever", "realm_encoder", "orqa", "own_article", "salient"]
    assert all(BASELINE in (a.retriever, a.encoder) for a in TABLE2 if a.name in same[1:])
    sparse = dataclasses.replace(recipe, pretrain=dataclasses.replace(recipe.pretrain, steps=600, refresh_every=3))
    assert ablation_recipe(sparse, REALM, 0).pretrain.refresh_every == 3


def test_names_of_rows():
    assert [a.name for a in chosen_ablations("k2, realm,k2")] == ["realm", "k2"]
    assert chosen_ablations("table2") == TABLE2 and chosen_ablations("own")[0] is REALM
    with pytest.raises(ConfigError, match=r"no row 'orqua'.*Did you mean 'orqa'"):
        chosen_ablations("realm,orqua")
    with pytest.raises(ConfigError, match=r"names no row.*table2"):
        chosen_ablations(" ,")


def test_bad_input(tmp_path, write_tiny, capsys):
    path = write_recipe(tmp_path, write_tiny)
    recipe = load_recipe(path)
    with pytest.raises(ConfigError, match=r"no questions to compare the rows by"):
        ablate(load_recipe(path, {"eval": {"qa": ""}}), tmp_path / "out", TABLE2, 1, QUIET)
    with pytest.raises(RunError, match=r"no ablation here.*realm ablate"):
        ablation_table(recipe, tmp_path / "nowhere", TABLE2, 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="a file is here"):
        ablate(recipe, tmp_path / "file", TABLE2, 1, QUIET)
    assert main(["ablate", str(path), "--seeds", "0"]) == 2 and "--seeds 0" in capsys.readouterr().err
    (tmp_path / "docs.jsonl").write_text("".join((tmp_path / "docs.jsonl").read_text().splitlines(keepends=True)[:12]))
    with pytest.raises(CorpusError, match=r"row k16: the corpus has 12 blocks.*leave the row out"):
        ablate(recipe, tmp_path / "small", chosen_ablations("k16"), 1, QUIET)
