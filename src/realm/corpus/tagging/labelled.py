"""Sentences with labelled tokens, to score taggers: BIO JSONL or CoNLL columns."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from realm.errors import DataError
from realm.text.files import open_text

_CURE = 'Write {"tokens": [...], "tags": ["O", "B-PER", ...]} a line, or CoNLL columns (token first, label last)'


@dataclass(frozen=True)
class LabelledSentence:
    """Tokens with one label each (BIO, BILOU or BIOES)."""

    tokens: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def text(self) -> str:
        """The tokens with single spaces between them."""
        return " ".join(self.tokens)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Start and end of each token in ``text``."""
        ends = accumulate(len(token) + 1 for token in self.tokens)
        return [(end - len(token) - 1, end - 1) for end, token in zip(ends, self.tokens, strict=True)]


def read_labelled(path: Path) -> list[LabelledSentence]:
    """Read a file of labelled sentences, plain, .gz or .xz. Raises DataError: no such file, a line that cannot be read, or no sentence."""
    with open_text(path) as lines:
        stream = enumerate(lines, 1)
        first = next(((number, line) for number, line in stream if line.strip()), None)
        if first is None:
            raise DataError("no sentence in it", path=path, cure=_CURE)
        whole = chain([first], stream)
        return list(_from_json(path, whole) if first[1].lstrip().startswith("{") else _from_columns(path, whole))


def _from_json(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[LabelledSentence]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
            tokens, labels = row["tokens"], row["tags"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"no labelled sentence ({type(error).__name__}: {error})", path=path, line=number, cure=_CURE) from error
        if not all(isinstance(values, list) and all(isinstance(value, str) for value in values) for values in (tokens, labels)):
            raise DataError("tokens and tags must be lists of strings", path=path, line=number, cure=_CURE)
        if len(tokens) != len(labels):
            raise DataError(f"{len(tokens)} tokens but {len(labels)} tags", path=path, line=number, cure=_CURE)
        yield LabelledSentence(tuple(tokens), tuple(labels))


def _from_columns(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[LabelledSentence]:
    tokens: list[str] = []
    labels: list[str] = []
    for number, line in chain(lines, [(0, "")]):
        columns = line.split()
        if columns and columns[0] != "-DOCSTART-":
            if len(columns) < 2:
                raise DataError("one column only", path=path, line=number, cure=_CURE)
            tokens.append(columns[0])
            labels.append(columns[-1])
        elif tokens:
            yield LabelledSentence(tuple(tokens), tuple(labels))
            tokens, labels = [], []
