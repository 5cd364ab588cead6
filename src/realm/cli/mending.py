"""``realm verify`` and ``realm repair``."""

from pathlib import Path
from typing import Annotated, Any

import tyro

from realm.cli import show
from realm.cli.arguments import Json
from realm.errors import RunError
from realm.progress import Progress

_Place = Annotated[Path, tyro.conf.arg(metavar="PLACE", help="the directory of a run, a corpus or a kNN datastore")]


def verify(place: _Place, /, *, json: Json = False) -> None:
    """Read everything in a run, corpus or kNN datastore and compare all checksums; exit code 2 if something is damaged."""
    from realm.runs import mending

    with Progress() as progress:
        found = damage_of(place, progress)
    _end(place, found, {"put_aside": mending.put_aside(place)}, f"realm repair {place}", json)


def repair(place: _Place, /, *, yes: bool = False, json: Json = False) -> None:
    """Rebuild the damaged parts of a run or a corpus that are derived from others: look-up tables, CURRENT, the index.

    Args:
        yes: do it; without this, only show what would be done."""
    from realm.knn.datastore import is_datastore
    from realm.runs import mending

    with Progress() as progress:
        mended, left = mending.repair(place, progress, show.note) if yes and not is_datastore(place) else ([], damage_of(place, progress))
    _end(place, left, {"mended": [damage.facts() for damage in mended]}, "add --yes", json)


def damage_of(place: Path, progress: Progress) -> list[Any]:
    """Read everything in a run, a corpus or a kNN datastore, whichever is there. Raises RunError: none is."""
    from realm.knn.datastore import is_datastore, verify_datastore
    from realm.runs import mending

    return verify_datastore(place) if is_datastore(place) else mending.verify(place, progress)


def _end(place: Path, found: list[Any], more: dict[str, Any], how: str, json: bool) -> None:
    """Show what is damaged. Raises RunError: something is."""
    said = {"place": str(place), **more, "damage": [damage.facts() for damage in found]}
    show.result(said, json, lambda _: show.damage(found, more.get("put_aside", [])))
    mendable = sum(damage.mend is not None for damage in found)
    if found:
        cure = f"{mendable} of them can be repaired: {how}" if mendable else "None of them can be rebuilt here"
        raise RunError(f"{len(found)} damaged", path=place, cure=cure)
