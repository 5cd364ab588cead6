"""Every recipe that a user can run parses, here and in an installed copy; the data it names need not be there."""

import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from realm.experiments import demo
from realm.recipe import build_recipe, dump_recipe, load_recipe

RECIPES = sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*.toml"))
BUNDLED = sorted(path.name for path in (files("realm.experiments") / "world").iterdir() if path.name.startswith("recipe"))


def test_there_are_recipes():
    known = {"own-documents.toml", "from-nothing.toml", "squad-small.toml", "squad-compare.toml", "simplewiki-compare.toml"}
    assert known <= {path.name for path in RECIPES}
    assert BUNDLED == ["recipe-long.toml", "recipe.toml"]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_every_recipe_parses(path):
    recipe = load_recipe(path)
    assert recipe.corpus.sources and ((recipe.finetune.train and recipe.eval_files) or recipe.pretrain.steps == 0)
    named = (*recipe.corpus.sources, recipe.finetune.train, recipe.finetune.dev, *recipe.eval_files)
    assert all(Path(name).is_absolute() for name in named if name), "paths count from the recipe's file"
    assert build_recipe(tomllib.loads(dump_recipe(recipe))) == recipe


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_what_is_fitted_is_not_measured_on_the_same_questions(path):
    recipe = load_recipe(path)
    assert not set(recipe.dev_files) & {*recipe.train_files, *recipe.eval_files} and not set(recipe.train_files) & set(recipe.eval_files)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_the_commented_keys_exist(path):
    """`# key = value` in a recipe is an offer: taking it must not end in an error."""
    lines = path.read_text("utf-8").splitlines()
    offered = [line.removeprefix("# ") if line.startswith("# ") and line[2:].split(" = ")[0].isidentifier() else line for line in lines]
    values = tomllib.loads("\n".join(offered))
    recipe = build_recipe(values, path=path)
    assert all(hasattr(getattr(recipe, section), key) for section, keys in values.items() for key in keys)


@pytest.mark.parametrize("name", BUNDLED)
def test_every_bundled_recipe_parses(name, tmp_path):
    recipe = demo.demo_recipe(tmp_path, long="long" in name)
    assert all(Path(source).is_relative_to(tmp_path.resolve()) for source in recipe.corpus.sources)
