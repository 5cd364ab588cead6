"""A run or documents in LangChain, LlamaIndex, Haystack and DSPy: each module needs the framework of its name, which you have."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from realm.answering.levels import CLOSEST, NOTHING
from realm.answering.records import Answer, Evidence, Hit
from realm.errors import ConfigError
from realm.runs.api import Realm


@contextmanager
def needing(package: str, least: str) -> Iterator[None]:
    """Import from a framework. Raises ConfigError: it is not installed, or older than ``least``."""
    try:
        found = version(package)
    except PackageNotFoundError:
        found = ""
    if _numbers(found) < _numbers(least):
        said = f"{package} {found} is too old" if found else f"{package} is not installed"
        raise ConfigError(said, cure=f"Install it: pip install -U '{package}>={least}'")
    yield


def _numbers(release: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", release)[:2]]


def opened(place: str) -> Realm:
    """Open a run directory, or a file or folder of documents. Raises RealmError: as for ``Realm``."""
    from realm.runs.cached import is_run

    return Realm.open(place) if is_run(Path(place)) else Realm.from_documents(place)


def origin(found: Hit | Evidence) -> dict[str, Any]:
    """Metadata of a block: its document, number and title."""
    return {"doc_id": found.doc_id, "block_id": found.block_id, "title": found.title}


def claims(answer: Answer) -> bool:
    """Tell an answer from a guess that is better not given."""
    return answer.level not in (CLOSEST, NOTHING)


def told(answer: Answer) -> str:
    """An answer for a language model: the words, or "not here", and the numbered blocks that were read."""
    blocks = (f"[{number}] {one.title} ({one.doc_id}): {one.text}" for number, one in enumerate(answer.evidence, 1))
    return "\n".join((answer.answer if claims(answer) else "not here", *blocks))
