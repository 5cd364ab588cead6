"""Rejected records: counted by reason, listed as JSONL, or fatal."""

import json
import shutil
import weakref
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import SpooledTemporaryFile

from realm.corpus.records import PARTLY_USED, Rejected
from realm.decoding import json_value
from realm.errors import DataError

# Bytes of listed records that stay in memory; more go to a temporary file.
IN_MEMORY = 1_000_000


class RejectedList:
    """Rejected records: counted by reason, listed in a JSONL file, or fatal if ``strict``."""

    def __init__(self, strict: bool):
        self._strict = strict
        self._listing = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        weakref.finalize(self, self._listing.close)
        self._drained = 0
        self.counts: Counter[str] = Counter()

    def add(self, record: Rejected) -> None:
        """Count and list one record. Raises DataError: ``strict`` was asked for, and the document is not used."""
        if self._strict and record.reason not in PARTLY_USED:
            cure = "Repair the record, or build without --strict to leave it out"
            raise DataError(record.reason, path=record.path, line=record.line or None, cure=cure)
        self._add_line(json.dumps({"path": record.path, "line": record.line, "reason": record.reason}, ensure_ascii=False), record.reason)

    def text(self) -> bytes:
        """The JSONL lines. File names that are not UTF-8 keep their bytes."""
        self._listing.seek(0)
        return self._listing.read()

    def save(self, path: Path) -> None:
        """Write the JSONL lines to a new file."""
        self._listing.seek(0)
        with open(path, "wb") as file:
            shutil.copyfileobj(self._listing, file)

    def drain(self) -> list[str]:
        """The lines since the last call."""
        self._listing.seek(self._drained)
        lines = self._listing.read().decode("utf-8", "surrogateescape").splitlines()
        self._drained = self._listing.tell()
        return lines

    def restore(self, lines: Iterable[str]) -> None:
        """Take in lines that an earlier list drained."""
        for line in lines:
            self._add_line(line, json_value(line)["reason"])
        self._drained = self._listing.tell()

    def by_reason(self) -> dict[str, int]:
        """Counts in order of the reasons' names."""
        return dict(sorted(self.counts.items()))

    def _add_line(self, line: str, reason: str) -> None:
        self._listing.seek(0, 2)
        self._listing.write(line.encode("utf-8", "surrogateescape") + b"\n")
        self.counts[reason] += 1
