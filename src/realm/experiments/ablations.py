"""The rows of an ablation as data: what each changes in a recipe, and from which stages its retriever and its encoder come.

``ablations.toml`` has the rows of the paper's Table 2, and what we ask of our own choices. Nothing here trains.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any

from realm.errors import ConfigError
from realm.recipe import Recipe, build_recipe

PRETRAINED, BASELINE = "pretrain", "baseline"
REFRESHES = 60
"""Least number of refreshes of a pre-training: an index that is 30 times as stale is then still refreshed twice."""
DEPTHS = (1, 5)
"""Depths of recall that every row is measured at."""

Changes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Ablation:
    """One row.

    Args:
        name: on the command line and in files.
        title: in tables.
        changes: {section: {key: value}} over the recipe.
        retriever: PRETRAINED, or BASELINE: the retriever of ICT alone.
        encoder: PRETRAINED, or BASELINE: the warm encoder, trained on without retrieval until it has read as much as REALM's encoder did.
        stale: by how much the index is older than REALM's: a multiple of the interval between refreshes.
    """

    name: str
    title: str
    changes: Changes = field(default_factory=dict)
    retriever: str = PRETRAINED
    encoder: str = PRETRAINED
    stale: int = 1

    @property
    def mixed(self) -> bool:
        """Whether a part comes from a baseline."""
        return BASELINE in (self.retriever, self.encoder)


TABLE2, OWN = (
    tuple(Ablation(name, **values) for name, values in rows.items())
    for rows in tomllib.loads((files("realm.experiments") / "ablations.toml").read_text("utf-8")).values()
)
REALM = TABLE2[0]
GROUPS = {"table2": TABLE2, "own": (REALM, *OWN), "all": (*TABLE2, *OWN)}
"""What a list of rows may be called; REALM itself is what the others are compared with."""


def chosen_ablations(names: str) -> tuple[Ablation, ...]:
    """The rows that a comma-separated list of names and groups means, each once, in the order of the tables.

    Raises:
        ConfigError: an unknown name, or none at all.
    """
    known = {ablation.name: (ablation,) for ablation in GROUPS["all"]} | GROUPS
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, list(known), n=1)
            raise ConfigError(f"no row '{name}'", cure=f"Did you mean '{near[0]}'?" if near else f"Rows are: {', '.join(known)}.")
    if not wanted:
        raise ConfigError("--rows names no row", cure=f"Rows are: {', '.join(known)}.")
    chosen = {ablation.name for name in wanted for ablation in known[name]}
    return tuple(ablation for ablation in GROUPS["all"] if ablation.name in chosen)


def ablation_recipe(recipe: Recipe, ablation: Ablation, seed: int) -> Recipe:
    """The recipe of one row and seed.

    What is compared must differ in what the row names, and not in how busy the machine was: the trainer itself refreshes the index, at
    least REFRESHES times where the row does not say otherwise.

    Raises:
        ConfigError: the row's changes do not fit this recipe, or it has no questions to measure with.
    """
    if not recipe.eval_files:
        raise ConfigError("no questions to compare the rows by: [eval] qa is empty", cure="Name a question file (JSONL) in the recipe.")
    interval = min(recipe.pretrain.refresh_every, max(1, recipe.pretrain.steps // REFRESHES))
    common: dict[str, dict[str, Any]] = {
        "run": {"seed": seed},
        "pretrain": {"refresh": "inline", "refresh_every": interval * ablation.stale},
        "eval": {"k": sorted({*recipe.eval.k, *DEPTHS})},
    }
    for section, values in ablation.changes.items():
        common[section] = {**common.get(section, {}), **values}
    return build_recipe(asdict(recipe), overrides=common)
