"""The verbs of the index builder: ``realm refresh`` and ``realm index verify``."""

from pathlib import Path
from typing import Annotated

import tyro

from realm.cli import show
from realm.progress import Progress

Run = Annotated[Path, tyro.conf.arg(metavar="RUN")]


def refresh(run: Run, /, *, once: bool = False) -> None:
    """Build the index of a run beside its trainer (pretrain.refresh = "external"), until pre-training has ended.

    Args:
        run: a run directory with a config.toml and a corpus.
        once: end as soon as nothing is asked for.
    """
    from realm.refresh.external import serve_run

    with Progress() as progress:
        serve_run(run, once=once, say=progress.say, progress=lambda done, total: progress.count("index: blocks", done, total))


def index_verify(run: Run, /, *, json: bool = False) -> None:
    """Read every generation of the index and its parameters and compare all checksums; nothing is changed.

    Args:
        run: a run directory.
        json: print one JSON object as the last line.
    """
    from dataclasses import asdict

    from realm.data.blocks import open_inputs
    from realm.errors import SnapshotError
    from realm.opening import read_run_recipe
    from realm.paths import RunPaths
    from realm.refresh.verification import verify_generations

    paths = RunPaths(run)
    inputs = open_inputs(paths.corpus, read_run_recipe(paths).model.query_length)
    rows, aside = verify_generations(paths, inputs)
    if not json:
        show.facts({f"generation {row.generation}": row.problem or f"valid, {row.blocks} blocks" for row in rows} | {"put aside": aside})
    show.last_line({"generations": [asdict(row) for row in rows], "put_aside": aside}, json)
    if bad := [row for row in rows if row.problem]:
        cure = "The newest valid one is used; realm index build RUN or the next refresh makes a new one"
        raise SnapshotError(f"{len(bad)} of {len(rows)} generations cannot be used", path=paths.index, cure=cure)
