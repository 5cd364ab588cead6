"""The verbs of the index builder: ``realm refresh`` and ``realm index verify``."""

from functools import partial
from typing import Annotated

import tyro

from realm.cli import show
from realm.cli.arguments import Json, Run
from realm.progress import Progress

_ADDRESS = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar="[ADDRESS]",
    instance_from_str=lambda given: _address(given),
    is_instance=lambda value: value is None or isinstance(value, str),
    str_from_instance=lambda value: [value or "none"],
)
Address = Annotated[str | None, _ADDRESS]


def _address(given: list[str]) -> str:
    """What stands behind ``--ray``; nothing means a cluster on this machine."""
    if len(given) > 1:
        raise ValueError("give one address at most, and RUN before --ray")
    return given[0] if given else "local"


def refresh(run: Run, /, *, once: bool = False, ray: Address = None, actors: int = 2) -> None:
    """Build the index of a run beside its trainer (pretrain.refresh = "external"), until pre-training has ended.

    Args:
        once: end as soon as nothing is asked for.
        ray: embed by a pool of actors on Ray: a cluster on this machine, or that of ADDRESS (HOST:PORT of its head, or auto).
        actors: of that pool.
    """
    with Progress() as progress:
        count = partial(progress.count, "index: blocks")
        if ray is None:
            from realm.refresh.refresher_process import serve_run

            serve_run(run, once=once, say=progress.say, progress=count)
        else:
            from realm.pool.builders import serve_pool

            serve_pool(run, ray, actors, once=once, say=progress.say, progress=count)


def index_verify(run: Run, /, *, json: Json = False) -> None:
    """Read every generation of the index and its parameters and compare all checksums; nothing is changed."""
    from realm.data.blocks import open_inputs
    from realm.errors import SnapshotError
    from realm.opening import read_run_recipe
    from realm.paths import RunPaths
    from realm.refresh.generation import verify_generations

    paths = RunPaths(run)
    inputs = open_inputs(paths.corpus, read_run_recipe(paths).model.query_length)
    rows, aside = verify_generations(paths, inputs)
    shown = {f"generation {row['generation']}": row["problem"] or f"valid, {row['blocks']} blocks" for row in rows} | {"put aside": aside}
    show.result({"generations": rows, "put_aside": aside}, json, lambda _: show.facts(shown))
    if bad := [row for row in rows if row["problem"]]:
        cure = "The newest valid one is used; realm index build RUN or the next refresh makes a new one"
        raise SnapshotError(f"{len(bad)} of {len(rows)} generations cannot be used", path=paths.index, cure=cure)
