"""The verb ``realm compare``."""

from pathlib import Path

from realm.cli import show
from realm.cli.arguments import Json, Paths, Recipe, Settings
from realm.cli.settings import overrides
from realm.progress import Progress


def compare(
    recipe: Recipe,
    /,
    *,
    out: Path | None = None,
    rows: str = "",
    retriever: Paths = (),
    seeds: int = 1,
    set: Settings = (),
    json: Json = False,
) -> None:
    """Baselines beside REALM in one table, like the paper's Table 1; started again, it goes on.

    Args:
        recipe: a recipe file (TOML) with questions to learn from and to evaluate on.
        out: where everything is kept; runs/NAME-compare by default, after the recipe's file.
        rows: only these, separated by commas: tfidf, bm25, orqa, realm, fused, closed_book; empty for all.
        retriever: a sentence-transformers directory to retrieve with, as a row of its own; may be repeated.
        seeds: how many, from the recipe's own on.
    """
    from realm.config import load_recipe

    loaded, root = load_recipe(recipe, overrides(set)), out or Path("runs") / f"{recipe.stem}-compare"
    names = [name.strip() for name in rows.split(",") if name.strip()]
    with Progress() as progress:
        from realm.pipeline.compare import compare as compare_rows

        found = compare_rows(loaded, root, rows=names, retrievers=retriever, seeds=seeds, progress=progress)
    from realm.report.comparison import as_text

    files = f"\nalso in {root}: compare.txt, compare.json, compare.csv, compare.tex, compare.svg"
    show.result(found, json, lambda table: print(as_text(table) + files))
