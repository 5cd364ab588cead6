"""Errors that a user can cause and cure.

Every one of them ends a command in one line on standard error and exit code 2 (see ``cli.py``); a traceback is a bug.
What does not live here: programming errors, which stay ordinary Python exceptions."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path


class RealmError(Exception):
    """A named error: place, problem and cure in one line.

    Examples:
        >>> print(RealmError("no column 'text'", path="notes.csv", line=1, cure="Name it: --column text=NAME."))
        notes.csv:1: no column 'text'. Name it: --column text=NAME.

    Args:
        problem: what is wrong, without a final full stop.
        path: the file or directory at fault, if there is one.
        line: the 1-based line in that file, if it has lines.
        cure: what the user can do about it."""

    def __init__(self, problem: str, *, path: str | Path | None = None, line: int | None = None, cure: str | None = None):
        self.problem = problem
        self.path = None if path is None else Path(path)
        self.line = line
        self.cure = cure
        super().__init__(str(self))

    def __str__(self) -> str:
        where = "" if self.path is None else f"{self.path}:{self.line}: " if self.line else f"{self.path}: "
        text = " ".join(f"{where}{self.problem}".split())
        return text if not self.cure else f"{text}. {' '.join(self.cure.split())}"


class ConfigError(RealmError):
    """An unknown key, a value out of range, a preset that does not exist."""


class DataError(RealmError):
    """A missing or malformed input file: documents, questions, tables."""


class CorpusError(RealmError):
    """A corpus directory that is missing, empty, damaged, or made by another version."""


class Interrupted(CorpusError):
    """Work that stopped for a reason outside the documents; start the same call again."""


class SnapshotError(RealmError):
    """An index generation that is missing, damaged, or belongs to another corpus, tokenizer or embedder."""


class RunError(RealmError):
    """A run directory that lacks a stage, belongs to another version, or cannot be resumed."""


class TrainingError(RealmError):
    """Training that cannot continue: nothing valid in a window, non-finite gradients, a retriever that collapsed."""


class PoolError(RealmError):
    """A Ray cluster that cannot be used, or actors in it that do not answer."""


class MissingExtra(RealmError):
    """An optional feature whose extra is not installed.

    Args:
        feature: what was asked for.
        extra: the name of the extra that brings it."""

    def __init__(self, feature: str, extra: str):
        super().__init__(f"{feature} needs the extra '{extra}'", cure=f"Install it: pip install 'realm-qa[{extra}]'")


def require_package(package: str, feature: str, extra: str) -> None:
    """Say in one line that ``feature`` needs an extra. Raises MissingExtra: the package that it brings is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise MissingExtra(feature, extra)


@contextmanager
def needing(feature: str, extra: str, *packages: str) -> Iterator[None]:
    """Say in one line that ``feature`` needs an extra. Raises MissingExtra: one of ``packages``, or any if none is named, is not there."""
    try:
        yield
    except ImportError as error:
        if packages and (error.name or "").partition(".")[0] not in packages:
            raise
        raise MissingExtra(feature, extra) from None


def by_torch(what: str) -> AbstractContextManager[None]:
    """:func:`needing` torch."""
    return needing(what, "train", "torch", "transformers")


def said(error: BaseException) -> str:
    """The first line of what another library's error says; its name where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def made_earlier(kind: type[RealmError], path: Path) -> RealmError:
    """The error for what an earlier version of this package wrote: nothing of another format is read."""
    return kind("made by an earlier version of realm", path=path, cure="Build it again.")


_FILLERS = frozenset(" \u115f\u1160\u2800\u3164\uffa0")


def is_blank(text: str) -> bool:
    """Tell a text that shows nothing: spaces, controls, invisible characters and fillers."""
    return all(letter in _FILLERS or not letter.isprintable() for letter in text)


def require_share(name: str, value: float) -> float:
    """``value``, which a user gave as ``name``. Raises ConfigError: it is not between 0 and 1."""
    if not 0 <= value <= 1:
        raise ConfigError(f"{name} {value}: not a probability", cure="It is between 0 and 1.")
    return value


def require_some(name: str, count: int) -> None:
    """Raises ConfigError: ``count``, which a user gave as ``name``, is below 1."""
    if count < 1:
        raise ConfigError(f"{name} {count}: too few", cure="Give at least 1.")
