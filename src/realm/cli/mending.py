"""``realm verify`` and ``realm repair``."""

from pathlib import Path
from typing import Annotated

import tyro

from realm.cli import show
from realm.cli.arguments import Json
from realm.errors import RunError
from realm.progress import Progress

Place = Annotated[Path, tyro.conf.arg(metavar="PLACE", help="the directory of a run, a corpus or a kNN datastore")]


def verify(place: Place, /, *, json: Json = False) -> None:
    """Read everything in a run, corpus or kNN datastore and compare all checksums; exit code 2 if something is damaged."""
    from realm.pipeline import mending

    with Progress() as progress:
        found = mending.verify(place, progress)
    aside = mending.put_aside(place)
    show.result(
        {"place": str(place), "damage": [damage.facts() for damage in found], "put_aside": aside}, json, lambda _: show.damage(found, aside)
    )
    if found:
        mendable = sum(damage.mend is not None for damage in found)
        cure = f"{mendable} of them can be repaired: realm repair {place}" if mendable else "None of them can be rebuilt here"
        raise RunError(f"{len(found)} damaged", path=place, cure=cure)


def repair(place: Place, /, *, yes: bool = False, json: Json = False) -> None:
    """Rebuild the damaged parts of a run or a corpus that can be derived from undamaged ones: look-up tables, CURRENT, the index, and more.

    Args:
        yes: do it; without this, only show what would be done.
    """
    from realm.pipeline import mending

    with Progress() as progress:
        if yes:
            mended, left = mending.repair(place, progress, show.note)
        else:
            mended, left = [], mending.verify(place, progress)
    found = {"place": str(place), "mended": [damage.facts() for damage in mended], "damage": [damage.facts() for damage in left]}
    show.result(found, json, lambda _: show.damage(left, []))
    if left:
        mendable = sum(damage.mend is not None for damage in left)
        cure = f"{mendable} of them can be repaired: add --yes" if mendable else "The rest cannot be rebuilt here"
        raise RunError(f"{len(left)} damaged", path=place, cure=cure)
