"""A salient-span tagger that knows a fixed list of phrases."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import regex

from realm.documents.spans.spans import TaggedSpan
from realm.errors import DataError
from realm.text.canonical import canonical_line

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+|[^\s\p{L}\p{M}\p{N}]")


class GazetteerTagger:
    """Tags listed phrases: longest match, at word borders.

    A phrase written in lower case matches in any case ("pound sterling", "Pound sterling"), any other matches as written.

    Args:
        phrases: the phrases; white space inside is free."""

    def __init__(self, phrases: Iterable[str]):
        self.phrases = sorted({line for phrase in phrases if (line := canonical_line(phrase))})
        # By first word: the word sequences that start with it, longest first. Lower-case and cased phrases apart.
        self._folded: dict[str, list[tuple[str, ...]]] = {}
        self._cased: dict[str, list[tuple[str, ...]]] = {}
        for phrase in self.phrases:
            words = tuple(_WORD.findall(phrase))
            table = self._folded if phrase == phrase.lower() else self._cased
            table.setdefault(words[0], []).append(words)
        for table in (self._folded, self._cased):
            for entries in table.values():
                entries.sort(key=len, reverse=True)

    @classmethod
    def from_file(cls, path: Path) -> "GazetteerTagger":
        """Read one phrase a line, UTF-8; empty lines and lines that start with # are skipped. Raises DataError: the file is missing, is not
        UTF-8, or lists nothing."""
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read the gazetteer: {error}", path=path, cure="Give a UTF-8 file with one phrase a line") from error
        tagger = cls(line for line in lines if not line.startswith("#"))
        if not tagger.phrases:
            raise DataError("the gazetteer lists no phrase", path=path, cure="Write one phrase a line")
        return tagger

    def tag(self, text: str) -> list[TaggedSpan]:
        matches = list(_WORD.finditer(text))
        words = [match.group() for match in matches]
        folded = [word.lower() for word in words]
        spans: list[TaggedSpan] = []
        position = 0
        while position < len(words):
            length = max(_longest(self._cased, words, position), _longest(self._folded, folded, position))
            if length:
                spans.append(TaggedSpan(matches[position].start(), matches[position + length - 1].end(), "phrase"))
            position += length or 1
        return spans

    def state(self) -> dict[str, Any]:
        return {"type": "gazetteer", "phrases": self.phrases}


def _longest(table: dict[str, list[tuple[str, ...]]], words: list[str], position: int) -> int:
    """Number of words of the longest entry of ``table`` that begins at ``position``; 0 if none does."""
    for entry in table.get(words[position], ()):
        if tuple(words[position : position + len(entry)]) == entry:
            return len(entry)
    return 0
