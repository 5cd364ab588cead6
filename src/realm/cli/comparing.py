"""The verb ``realm compare``."""

from pathlib import Path
from typing import Annotated

import tyro

from realm.cli import show
from realm.cli.settings import overrides
from realm.progress import Progress

Recipe = Annotated[Path, tyro.conf.arg(metavar="RECIPE")]
Directories = Annotated[tuple[Path, ...], tyro.conf.UseAppendAction]
Many = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


def compare(
    recipe: Recipe,
    /,
    *,
    out: Path | None = None,
    rows: str = "",
    retriever: Directories = (),
    seeds: int = 1,
    set: Many = (),
    json: bool = False,
) -> None:
    """Baselines beside REALM in one table, like the paper's Table 1; started again, it goes on.

    Args:
        recipe: a recipe file (TOML) with questions to learn from and to evaluate on.
        out: where everything is kept; runs/NAME-compare by default, after the recipe's file.
        rows: only these, separated by commas: tfidf, bm25, orqa, realm, fused, closed_book; empty for all.
        retriever: a sentence-transformers directory to retrieve with, as a row of its own; may be repeated.
        seeds: how many, from the recipe's own on.
        set: section.key=value over the recipe, such as --set pretrain.steps=100; may be repeated.
        json: print the table as one JSON object in the last line.
    """
    from realm.config import load_recipe

    loaded, root = load_recipe(recipe, overrides(set)), out or Path("runs") / f"{recipe.stem}-compare"
    names = [name.strip() for name in rows.split(",") if name.strip()]
    with Progress() as progress:
        from realm.pipeline.compare import compare as compare_rows

        found = compare_rows(loaded, root, rows=names, retrievers=retriever, seeds=seeds, progress=progress)
    if not json:
        from realm.report.comparison import as_text

        print(as_text(found), end="")
        print(f"\nalso in {root}: compare.txt, compare.json, compare.csv, compare.tex, compare.svg")
    show.last_line(found, json)
