"""Bytes that are damaged anyhow: every reader gives records or one line, never a traceback, and never hangs."""

import gzip
import json
import random
from base64 import b64decode
from functools import partial

import hostile_documents as hostile
import pytest

from realm.documents.records import Rejected, SourceDocument
from realm.documents.sources import FORMATS, SourceOptions, iter_documents
from realm.errors import RealmError

for extra in ("docx", "pptx", "pypdfium2", "python_calamine", "striprtf", "trafilatura"):
    pytest.importorskip(extra)

ROWS = [{"id": str(number), "title": f"T {number}", "text": f'Text "{number}", née\nin two lines.'} for number in range(30)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
FILES = [format_ for format_ in FORMATS if format_ not in ("mediawiki", "outlook")]  # nothing writes the last


def damage(data, chance):
    at = chance.randrange(len(data))
    end = min(len(data), at + chance.randrange(1, 40))
    return chance.choice( [
        data[:at], data[at:], data[:at] + data[end:], data[:end] + data[at:],
        data[:at] + bytes(chance.randrange(256) for _ in range(end - at)) + data[end:],
        data[:at] + chance.choice([b"\0", b'"', b"\r", b"\n", b"\xff\xfe", b"[" * 2000, b"<", b"\x1f\x8b"]) + data[at:],
    ])  # fmt: skip


ROW = b"<table:table-row><table:table-cell office:value-type='string'><text:p>Cost</text:p></table:table-cell></table:table-row>"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAADklEQVR4nGNogAIGyhgAgIQgAQ2AJGEAAAAASUVORK5CYII="
SAMPLES = {
    "csv": lambda: "\n".join([",".join(ROWS[0]), *(f'{row["id"]},{row["title"]},"née\nin"' for row in ROWS)]).encode(),
    "tsv": lambda: "\n".join(["\t".join(ROWS[0]), *(f'{row["id"]}\t{row["title"]}\t"née\nin"' for row in ROWS)]).encode(),
    "triples": lambda: b'subject,relation,object\nA,of,B\nA,of,C\n"D, E",of,A\n' * 2,
    "html": lambda: b"<html><head><title>T</title></head><body>" + b"<div><p>A paragraph &amp; more.</p></div>" * 5 + b"</body></html>",
    "markdown": lambda: (
        b"---\ntitle: T\n---\n# Head\n\n- a *b* [c](d)\n\n```\ncode\n```\n\n| a | b |\n|---|---|\n| c | d |\n<div>x</div>\n" * 3
    ),
    "picture": lambda: b64decode(PNG),
    "xml": lambda: b"<a><title>T</title>" + b"<p>One &amp; <b>two</b>.</p>" * 9 + b"</a>",
    "notebook": lambda: b'{"cells": [{"cell_type": "markdown", "source": ["# Head\\n"]}, {"cell_type": "code", "source": "x = 1"}]}',
    "mail": lambda: b"From: a@b.org\nSubject: keys\n\nThe spare keys are with the porter.\n",
    "zip": lambda: hostile.zipped({"a.txt": b"One."}),
    "rtf": lambda: rb"{\rtf1 One.\par Two.}",
    "sheets": lambda: hostile.open_document(b"<table:table table:name='a'>%s</table:table>" % ROW),
    "pdf": lambda: hostile.pdf_of([hostile.SAID] * 2),
    "docx": lambda: hostile.wide_table(2),
    **{
        kind: partial(hostile.HOSTILE[name], 9000)
        for kind, name in (("parquet", "dictionary.parquet"), ("odt", "spaces.odt"), ("epub", "chapter.epub"), ("slides", "slide.pptx"))
    },
}
"""A good file of each kind; lines of JSON stand for the others."""


@pytest.mark.parametrize("kind", FILES)
def test_damaged_files(tmp_path, kind):
    chance, good = random.Random(kind), SAMPLES.get(kind, lambda: LINES)()
    check(tmp_path / "good", good, kind, expect_documents=True)
    for round_ in range(60):
        data = damage(good, chance)
        data = damage(data, chance) if data and round_ % 2 else data
        check(tmp_path / "bad", data, kind)
        if round_ % 6 == 0:
            check(tmp_path / "packed", damage(gzip.compress(good), chance), kind)


def check(path, data, kind, expect_documents=False):
    path.write_bytes(data)
    for options in (SourceOptions(format=kind), SourceOptions()):
        try:
            records = list(iter_documents(path, options))
        except RealmError as error:
            assert "\n" not in str(error)
            continue
        assert records and all(isinstance(record, SourceDocument | Rejected) for record in records)
        assert not expect_documents or any(isinstance(record, SourceDocument) for record in records)


@pytest.mark.parametrize("kind", FILES)
def test_the_wrong_format(tmp_path, kind):
    for other in FILES:
        check(tmp_path / other, SAMPLES.get(other, lambda: LINES)(), kind)
