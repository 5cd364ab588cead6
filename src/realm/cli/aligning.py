"""The verb ``realm align``."""

import json as encoding
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from realm.cli import show
from realm.cli.arguments import Device, Json, Run
from realm.progress import Progress


def align(
    run: Run,
    /,
    *,
    out: Path | None = None,
    limit: int = 1000,
    k: int = 8,
    min_utility: float = 0.0,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Sentences with the documents that raised their likelihood, as JSON lines, in a run whose pre-training has ended.

    Args:
        out: the file to write; standard output by default.
        limit: sentences to read, spread evenly over the corpus; 0 for all.
        k: documents read with each, the null document counted.
        min_utility: a document is shown if it adds more than this to the log-probability of the hidden words.
    """
    from realm.recipes.align import AlignOptions, align as align_sentences

    opened = _open(run, device)
    with Progress() as progress, _rows_to(out) as write:
        options = AlignOptions(limit, k, min_utility)
        found = align_sentences(opened, options, write, partial(progress.count, "sentences"))
    if out is not None and not json:
        show.facts({**found, "written to": str(out)})
    show.last_line({**found, "out": None if out is None else str(out), "versions": opened.versions}, json)


def _open(run: Path, device: str) -> Any:
    import torch

    from realm.errors import ConfigError
    from realm.opening import open_run

    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise ConfigError(f"no device '{device}' here", cure="Give --device cpu.")
    return open_run(run, device=device)


@contextmanager
def _rows_to(out: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Where rows go: a file that is there whole or not at all, or standard output as they come."""
    from realm.errors import DataError
    from realm.storage.files import publish_file

    def line(row: dict[str, Any]) -> bytes:
        return (encoding.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8", "replace")

    if out is None:
        yield lambda row: print(line(row).decode(), end="", file=sys.stdout)
        return
    if out.is_dir():
        raise DataError("a directory is here", path=out, cure="Give the name of a file with --out.")
    if out.parent.exists() and not out.parent.is_dir():
        raise DataError("no directory", path=out.parent, cure="Give a file in a directory with --out.")
    with publish_file(out) as file:

        def write(row: dict[str, Any]) -> None:
            file.write(line(row))

        yield write
