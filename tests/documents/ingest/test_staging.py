"""A build in several processes, one that is interrupted and taken up again, a full disk, a worker that dies."""

import codecs
import errno
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from realm.cli import main
from realm.documents.change.updates import add_documents
from realm.documents.ingest import builder as build, intake
from realm.documents.ingest.builder import build_corpus
from realm.documents.sources import jsonl
from realm.documents.store import segments
from realm.documents.store.blocks import BlockStore
from realm.errors import ConfigError, CorpusError, DataError

SMALL = {"vocab_size": 400, "block_length": 64}


def tree(corpus):
    return {path.relative_to(corpus).as_posix(): path.read_bytes() for path in corpus.rglob("*") if path.is_file()}


@pytest.fixture
def source(write_jsonl, city_rows):
    """Documents with all that can go wrong between them, some of it more than once."""
    rows = list(city_rows())
    rows[5:5] = ["{", '{"id": "doc-1", "text": "an id that is taken"}', '{"id": "e", "text": "\\u200b"}']
    rows += ['{"id": "doc-3", "text": "again"}', {**rows[0], "id": "a copy"}, "]"]
    return write_jsonl("in.jsonl", rows)


@pytest.fixture
def small_parts(monkeypatch):
    """Two dozen chunks in six parts, some five segments of several record batches."""
    monkeypatch.setattr(intake, "CHUNK_CHARS", 500)
    monkeypatch.setattr(intake, "PART_CHUNKS", 4)
    monkeypatch.setattr(build, "SEGMENT_ROWS", 20)
    monkeypatch.setattr(segments, "BATCH_ROWS", 16)


@pytest.mark.usefixtures("small_parts")
def test_the_bytes_do_not_depend_on_the_number_of_workers(source, tmp_path):
    build_corpus([source], tmp_path / "one", workers=1, **SMALL)
    manifest = build_corpus([source], tmp_path / "two", workers=2, **SMALL)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert len(manifest.segments) > 2
    assert manifest.rejected == {"bad json": 2, "duplicate id": 2, "empty text": 1}
    assert BlockStore.open(tmp_path / "two").block_ids.tolist() == list(range(manifest.blocks))


class Stop:
    """Progress that interrupts the build at its ``at``-th call."""

    def __init__(self, at):
        self.calls = 0
        self.at = at

    def __call__(self, what, done, total):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("strides", [3, 11])
def test_an_interrupted_build_goes_on_and_gives_the_same_bytes(source, tmp_path, strides):
    build_corpus([source], tmp_path / "whole", workers=1, progress=Stop(at=-1), **SMALL)
    said, attempts, calls = [], 0, 0
    # Every attempt gets a little further than a part or a segment; without going on, none would ever end.
    while not (tmp_path / "parts").exists():
        stop = Stop(at=8 + strides)
        attempts += 1
        try:
            build_corpus([source], tmp_path / "parts", workers=1, progress=stop, say=said.append, **SMALL)
        except KeyboardInterrupt:
            assert not (tmp_path / "parts").exists()
        calls += stop.calls
        assert attempts < 20
    assert attempts > 2
    assert len(said) == attempts - 1
    assert said[0].startswith("continuing the interrupted build")
    assert tree(tmp_path / "parts") == tree(tmp_path / "whole")
    assert not (tmp_path / "parts.staging").exists()


def test_another_build_discards_what_was_staged(source, tmp_path, city_rows, write_jsonl):
    def interrupted():
        with pytest.raises(KeyboardInterrupt):
            build_corpus([source], tmp_path / "c", progress=Stop(at=2), **SMALL)

    said = []
    interrupted()
    other = build_corpus([source], tmp_path / "c", vocab_size=300, block_length=64, say=said.append)
    assert said[0].startswith("discarding an interrupted build of other sources or options")
    assert other == build_corpus([source], tmp_path / "plain", vocab_size=300, block_length=64)
    (tmp_path / "c").rename(tmp_path / "other")
    interrupted()
    write_jsonl("in.jsonl", city_rows(3))  # the same name, another size
    assert build_corpus([source], tmp_path / "c", say=said.append, **SMALL).documents == 3
    assert len(said) == 2
    interrupted_by_error = tmp_path / "strict"
    write_jsonl("in.jsonl", ["{"])
    with pytest.raises(DataError):
        build_corpus([source], interrupted_by_error, strict=True, **SMALL)
    assert not list(tmp_path.glob("strict*"))


KILLED = """
import os, signal, sys
from pathlib import Path
from realm.documents.ingest import builder as build
from realm.documents.ingest import intake
intake.CHUNK_CHARS, intake.PART_CHUNKS, build.SEGMENT_ROWS = 500, 4, 20
def progress(what, done, total):
    if what == sys.argv[3] and done >= 15:
        os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    workers = 2 if sys.argv[3] == "documents" else 1
    build.build_corpus([Path(sys.argv[1])], Path(sys.argv[2]), workers=workers, vocab_size=400, block_length=64, progress=progress)
"""


@pytest.mark.parametrize("stage", ["documents", "packed documents"])
def test_a_killed_build_goes_on_and_its_workers_end(source, tmp_path, stage, monkeypatch):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    done = subprocess.run([sys.executable, script, source, tmp_path / "c", stage], check=False, timeout=120, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while subprocess.run(["pgrep", "-f", str(script)], check=False, capture_output=True).stdout and time.monotonic() < deadline:
        time.sleep(0.1)
    assert time.monotonic() < deadline
    monkeypatch.setattr(intake, "CHUNK_CHARS", 500)
    monkeypatch.setattr(build, "SEGMENT_ROWS", 20)
    said = []
    build_corpus([source], tmp_path / "c", say=said.append, workers=1, **SMALL)
    assert len(said) == 1
    build_corpus([source], tmp_path / "whole", workers=1, **SMALL)
    assert tree(tmp_path / "c") == tree(tmp_path / "whole")


@pytest.mark.usefixtures("small_parts")
def test_going_on_does_not_read_again_what_is_done(source, tmp_path, write_jsonl, city_rows, monkeypatch):
    """A finished source is not opened, the one in the midst is read up to the place; the bytes of the corpus are the same."""
    table = tmp_path / "table.csv"
    table.write_text("id,text\n" + "".join(f"t{n},A text about number {n} and Rome.\n" for n in range(150)))
    rows = [{**row, "id": f"more-{row['id']}", "text": f"{row['text']} Ünd {number}."} for number, row in enumerate(city_rows(24))]
    rows[20]["id"], rows[21]["id"] = "t3", rows[0]["id"]  # one of the table's, one of its own
    last = write_jsonl("last.jsonl", ["", *rows, "["])
    last.write_bytes(codecs.BOM_UTF8 + last.read_bytes())
    sources = [source, table, last]
    build_corpus(sources, tmp_path / "whole", workers=1, **SMALL)
    parsed, read_line = Counter(), jsonl._line_value

    def counting(line, path="", number=0):
        parsed[path] += 1
        return read_line(line, path, number)

    for documents in (24 + 60, 24 + 150 + 16):  # in the table, and in the last file
        with pytest.raises(KeyboardInterrupt):
            build_corpus(sources, tmp_path / "c", workers=1, progress=_until(documents), **SMALL)
    monkeypatch.setattr(jsonl, "_line_value", counting)
    build_corpus(sources, tmp_path / "c", workers=1, **SMALL)
    assert tree(tmp_path / "c") == tree(tmp_path / "whole")
    assert parsed[str(source)] == 0 and parsed[str(last)] == len(rows) + 1


def _until(documents):
    def progress(what, done, total):
        if done >= documents:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("files", [0, 1])
def test_a_full_disk_ends_in_one_line(source, tmp_path, monkeypatch, capsys, files):
    open_file = pa.OSFile

    def full(path, mode):
        nonlocal files
        files -= 1
        return pa.PythonFile(_Full(path), "w") if files < 0 else open_file(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(pa, "OSFile", full)
        assert main(["corpus", "build", str(source), "--out", str(tmp_path / "c"), "--vocab-size", "400"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert "the disk is full. Make room and run the same command again" in error
    assert not (tmp_path / "c").exists()
    assert build_corpus([source], tmp_path / "c", vocab_size=400).documents == 25


class _Full:
    """A file that takes nothing."""

    closed = False

    def __init__(self, path):
        Path(path).touch()

    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def flush(self): ...

    def close(self): ...


@pytest.mark.parametrize("out", ["in.jsonl/x", "y" * 300])
def test_a_corpus_that_cannot_be_made_there(source, out, tmp_path, capsys):
    assert main(["corpus", "build", str(source), "--out", str(tmp_path / out)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "no directory can be made here" in error and error.endswith("Choose another --out")


def test_a_corpus_below_its_own_sources(tmp_path, write_jsonl, city_rows):
    """Neither what is staged there nor a finished corpus is read as documents, and a build there goes on."""
    write_jsonl("in.jsonl", city_rows())
    with pytest.raises(KeyboardInterrupt):
        build_corpus([tmp_path], tmp_path / "c", progress=Stop(at=2), **SMALL)
    said = []
    first = build_corpus([tmp_path], tmp_path / "c", say=said.append, **SMALL)
    assert said[0].startswith("continuing")
    second = build_corpus([tmp_path], tmp_path / "deep" / "d", **SMALL)
    assert first.documents == second.documents == 24 and first.rejected == second.rejected == {}


def test_a_source_whose_name_no_file_can_have(tmp_path):
    for name in ("x" * 300, "a\0b"):
        with pytest.raises(DataError, match="no such file or folder"):
            build_corpus([tmp_path / name], tmp_path / "c", **SMALL)


def test_workers_below_one_and_two_builds_at_once(source, tmp_path):
    with pytest.raises(ConfigError, match="workers = 0 is below 1"):
        build_corpus([source], tmp_path / "c", workers=0, **SMALL)

    def again(what, done, total):
        with pytest.raises(CorpusError, match="another process"):
            build_corpus([source], tmp_path / "c", **SMALL)

    assert build_corpus([source], tmp_path / "c", progress=again, **SMALL).documents == 25


def test_without_spans(source, tmp_path, write_jsonl):
    with_spans = build_corpus([source], tmp_path / "with", **SMALL)
    without = build_corpus([source], tmp_path / "without", tagger="none", **SMALL)
    assert (without.blocks, without.spans) == (with_spans.blocks, 0)
    more = write_jsonl("more.jsonl", [{"id": "new", "text": "A new text about Berlin in 1969."}])
    assert add_documents(tmp_path / "without", [more]).spans == 0
