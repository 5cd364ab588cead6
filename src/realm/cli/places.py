"""Runs and documents to ask or serve; documents get a run of their own in the cache."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from realm.cli import show
from realm.errors import ConfigError, DataError
from realm.progress import Progress

if TYPE_CHECKING:
    from realm.answering.opening import OpenRun

Asked = Annotated[tuple[str, ...], tyro.conf.arg(metavar="RUN|DOCUMENTS... [QUESTION]")]
Served = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN|DOCUMENTS...")]
Body = Annotated[str, tyro.conf.arg(help="the model for documents (realm models lists them); a run uses its own")]


def parted(asked: tuple[str, ...]) -> tuple[list[Path], str | None]:
    """Split places and question: the last word, unless it is the only one or there is a file or folder of its name."""
    if len(asked) < 2 or Path(asked[-1]).exists():
        return [Path(place) for place in asked], None
    return [Path(place) for place in asked[:-1]], asked[-1]


def named_run(places: list[Path]) -> Path | None:
    """The run that is named; None where it is documents. Raises ConfigError: neither is named, or a run with something else; DataError:
    there is no such file or folder."""
    from realm.runs.cached import is_run

    if not places:
        raise ConfigError(
            "no run and no documents are named", cure="Name a run, or files and folders: realm ask notes/ 'Who repaired the bridge?'."
        )
    runs = [place for place in places if is_run(place)]
    if places == runs and len(runs) == 1:
        return runs[0]
    if runs:
        raise ConfigError(f"{runs[0]} is a run and cannot be mixed with documents", cure="Name one run, or documents.")
    for place in places:
        if not place.exists():
            raise DataError("no such run, file or folder", path=place, cure="Check the path; put the question last, in quotes.")
    return None


def opened_documents(places: list[Path], body: str) -> "OpenRun":
    """Open documents from the cache, indexed or brought up to date. Raises DataError: nothing in them is usable."""
    from realm.runs.cached import open_cached

    with Progress(says=False) as progress:
        return open_cached(places, body, progress, lambda text: show.note(f"note: {text}"))
