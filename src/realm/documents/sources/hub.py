"""Hugging Face datasets: a directory that ``save_to_disk`` wrote, or a name on the hub (extra ``datasets``)."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from realm.documents.columns import find_columns
from realm.documents.formats import SourceOptions
from realm.documents.records import Record
from realm.errors import DataError, MissingExtra, RealmError, said
from realm.storage.paths import HUB_PREFIX

_MARKS = ("dataset_dict.json", "state.json")


def is_hub_name(source: Path) -> bool:
    """True for ``hf:owner/name``, no path."""
    return str(source).startswith(HUB_PREFIX)


def is_saved_dataset(folder: Path) -> bool:
    return any((folder / mark).is_file() for mark in _MARKS)


def read_dataset(source: Path, options: SourceOptions) -> Iterator[Record]:
    """Rows of a dataset; ``line`` is the 1-based row. A name on the hub is ``hf:owner/name[:config][:split]`` and is streamed. Raises
    MissingExtra: ``datasets`` is not installed; DataError: the dataset cannot be had, has several splits and none is named, or lacks a
    column."""
    try:
        import datasets
    except ImportError:
        raise MissingExtra("reading Hugging Face datasets", "datasets") from None
    name = str(source).removeprefix(HUB_PREFIX) if is_hub_name(source) else source.name
    try:
        rows = _load_hub(datasets, name, source) if is_hub_name(source) else datasets.load_from_disk(str(source))
        rows = _one_split(rows, source)
        names: Any = rows.column_names or next(iter(rows), {})  # of a stream that does not know them, the keys of its first row
        columns = find_columns(options, list(names), source)
        for number, row in enumerate(rows.select_columns(columns.wanted), 1):
            yield columns.record(row, str(source), name, number, number)
    except RealmError:
        raise
    except Exception as error:  # the library and the hub raise whatever their parts raise, and a traceback helps nobody
        raise DataError(f"cannot load this dataset: {said(error)}", path=source, cure=_CURE) from error


_CURE = "Check the name (hf:owner/name:config:split), the network, or download it and give the directory"


_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
"""Owner and name. The library takes a lone name for one of its own readers, which read what lies around."""


def _load_hub(datasets: Any, name: str, source: Path) -> Any:
    repository, *rest = name.split(":")
    if len(rest) > 2 or not _REPOSITORY.fullmatch(repository):
        raise DataError("no name of a dataset", path=source, cure="Write hf:owner/name, hf:owner/name:config or hf:owner/name:config:split")
    if os.path.lexists(repository):
        cure = f"To read that, give it without {HUB_PREFIX}; for the hub, run the command from elsewhere"
        raise DataError("this is a name on the hub, and a file or folder of that name is here", path=source, cure=cure)
    config, split = (*rest, "", "")[:2]
    return datasets.load_dataset(repository, config or None, split=split or None, streaming=True)


def _one_split(rows: Any, source: Path) -> Any:
    """The dataset itself, or the only one of several splits."""
    if not isinstance(rows, dict):
        return rows
    if len(rows) != 1:
        names = ", ".join(rows)
        raise DataError(f"several splits: {names}", path=source, cure="Name one: DIRECTORY/SPLIT, or hf:owner/name:config:SPLIT")
    return next(iter(rows.values()))
