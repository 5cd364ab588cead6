"""Recipes: frozen dataclasses with a docstring per field, read from TOML. Preset < file < flags; unknown keys are errors.

A run directory holds its resolved recipe. Below runs and training no room sees these objects: values arrive as plain arguments."""

from realm.recipe.loading import build_recipe, dump_recipe, load_recipe, preset_names, run_index_kind
from realm.recipe.sections import CorpusConfig, EvalConfig, IndexConfig, ModelConfig, Recipe, RetrievalConfig, RunConfig, WriteConfig
from realm.recipe.training import FinetuneConfig, IctConfig, PretrainConfig, RefresherConfig, WarmConfig

__all__ = [
    "CorpusConfig",
    "EvalConfig",
    "FinetuneConfig",
    "IctConfig",
    "IndexConfig",
    "ModelConfig",
    "PretrainConfig",
    "Recipe",
    "RefresherConfig",
    "RetrievalConfig",
    "RunConfig",
    "WarmConfig",
    "WriteConfig",
    "build_recipe",
    "dump_recipe",
    "load_recipe",
    "preset_names",
    "run_index_kind",
]
