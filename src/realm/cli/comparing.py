"""The verbs that make a table of many runs: ``realm compare`` and ``realm ablate``."""

from pathlib import Path

from realm.cli import show
from realm.cli.arguments import Json, Place, Recipe, Settings, overrides
from realm.progress import Progress
from realm.storage.processes import place


def compare(recipe: Recipe, /, *, out: Place = None, rows: str = "", seeds: int = 1, set: Settings = (), json: Json = False) -> None:
    """Train and measure baselines beside REALM in one table, like the paper's Table 1. If interrupted, run it again to continue.

    Args:
        recipe: a recipe file (TOML) with questions to learn from and to evaluate on.
        out: where everything is kept; runs/NAME-compare by default, after the recipe's file.
        rows: only these rows, separated by commas: tfidf, bm25, published, orqa, realm, closed_book; all if not given.
        seeds: how many, counted up from the recipe's own."""
    from realm.recipe import load_recipe

    loaded, root = load_recipe(recipe, overrides(set)), out or Path("runs") / f"{recipe.stem}-compare"
    names = [name.strip() for name in rows.split(",") if name.strip()]
    with Progress() as progress:
        from realm.experiments.compare import compare as compare_rows

        found = compare_rows(loaded, root, rows=names, seeds=seeds, progress=progress)
    from realm.report.tables import as_text

    files = f"\nalso in {root}: compare.txt, compare.json"
    show.result(found, json, lambda table: print(as_text(table) + files))


def ablate(recipe: Recipe, /, *, rows: str = "table2", seeds: int = 3, out: Place = None, set: Settings = (), json: Json = False) -> None:
    """Train and measure variants of a recipe, such as the rows of the paper's Table 2. If interrupted, run it again to continue.

    Args:
        recipe: a recipe file (TOML) with questions to evaluate on.
        rows: table2, own, all, or names separated by commas (docs/ablations.md lists them).
        seeds: how many, counted up from the recipe's own.
        out: where everything is kept; runs/NAME-ablation by default, after the recipe's file."""
    from realm.errors import ConfigError
    from realm.recipe import load_recipe

    if seeds < 1:
        raise ConfigError(f"--seeds {seeds}: no seed to train with", cure="Give 1 or more.")
    loaded, root = load_recipe(recipe, overrides(set)), out or Path("runs") / f"{recipe.stem}-ablation"
    with Progress(quiet=not place().first) as progress:
        from realm.experiments.ablate import ablate as ablate_recipe, chosen_ablations

        found = ablate_recipe(loaded, root, chosen_ablations(rows), seeds, progress)
    if not place().first:
        return
    from realm.report.tables import ablation_text

    files = f"\nalso in {root}: ablation.txt, ablation.json"
    show.result(found, json, lambda summary: print(ablation_text(summary) + files))
