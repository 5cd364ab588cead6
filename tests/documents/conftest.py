"""A small corpus of real sentences, written once."""

import bz2
import gzip
import json
import lzma
import os
from functools import partial

import pyarrow as pa
import pytest
from corpus_with_twins import corpus, featurizer, inputs, store  # noqa: F401

CITIES = ["London", "Paris", "Rome", "Madrid", "Vienna", "Lisbon", "Oslo", "Athens"]


def _city_rows(count=24):
    """Documents of several paragraphs about cities; every second one repeats a sentence verbatim."""
    rows = []
    for number in range(count):
        city, other = CITIES[number % 8], CITIES[(number // 8 + number + 1) % 8]
        text = (
            f"{city} is the subject of report {number + 100}. The train from {city} to {other} takes {number + 2} hours.\r\n\r\n"
            f"On {number + 1} March 1969 the pound sterling was used in {city}. People say that {other} is older than {city}.\n"
            f"The museum of {city} shows paintings by Vincent van Gogh, and in {other} the café is open – also on Sundays. "
        )
        text += "Bread is baked in the morning. " if number % 2 else ""
        rows.append({"id": f"doc-{number}", "title": f"{city} {number}", "text": text * 2 + f"This ends report {number + 100}."})
    return rows


@pytest.fixture
def city_rows():
    return _city_rows


@pytest.fixture
def write_jsonl(tmp_path):
    """Write rows (objects, or ready lines) to a JSONL file below ``tmp_path``."""

    def write(name, rows):
        path = tmp_path / name
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


PACKED = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": partial(pa.compress, codec="zstd", asbytes=True)}


@pytest.fixture
def pack():
    return lambda path, data: path.write_bytes(PACKED.get(path.suffix, bytes)(data))


@pytest.fixture
def closed():
    """Makes whatever has one of these names refuse to be opened or listed. Permissions do not stop root: they are feigned."""

    def close(patch, *names):
        def refusing(real):
            def refuse(path, *rest, **named):
                if str(path).rpartition("/")[2] in names:
                    raise PermissionError(13, "Permission denied", str(path))
                return real(path, *rest, **named)

            return refuse

        patch.setattr("builtins.open", refusing(open))
        patch.setattr(os, "scandir", refusing(os.scandir))

    return close
