"""A build in several processes, one that is interrupted or killed, a full disk, a worker that dies."""

import errno
import signal
import subprocess
import sys
import time
from unittest.mock import Mock

import pyarrow as pa
import pytest
from small import tree

from realm.documents.change.updates import add_documents
from realm.documents.ingest import builder as build, intake
from realm.documents.ingest.builder import build_corpus
from realm.documents.store import segments
from realm.documents.store.blocks import BlockStore
from realm.errors import ConfigError, CorpusError, DataError

SMALL = {"vocab_size": 400, "block_length": 64}


@pytest.fixture
def source(write_jsonl, city_rows):
    """Documents with all that can go wrong between them, some of it more than once."""
    rows = list(city_rows())
    rows[5:5] = ["{", '{"id": "doc-1", "text": "an id that is taken"}', '{"id": "e", "text": "\\u200b"}']
    rows += ['{"id": "doc-3", "text": "again"}', {**rows[0], "id": "a copy"}, "]"]
    return write_jsonl("in.jsonl", rows)


@pytest.fixture
def small_parts(monkeypatch):
    """Two dozen chunks, some five segments of several record batches."""
    monkeypatch.setattr(intake, "CHUNK_CHARS", 500)
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


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.usefixtures("small_parts")
def test_an_interrupted_build_leaves_nothing(source, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        build_corpus([source], tmp_path / "c", workers=1, progress=interrupt, **SMALL)
    with pytest.raises(DataError):
        build_corpus([source], tmp_path / "c", strict=True, **SMALL)
    assert not list(tmp_path.glob("c*"))


KILLED = """
import os, signal, sys
from pathlib import Path
from realm.documents.ingest import builder as build
from realm.documents.ingest import intake
intake.CHUNK_CHARS, build.SEGMENT_ROWS = 500, 20
def progress(what, done, total):
    if what == "documents" and done >= 15:
        os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    build.build_corpus([Path(sys.argv[1])], Path(sys.argv[2]), workers=2, vocab_size=400, block_length=64, progress=progress)
"""


@pytest.mark.usefixtures("small_parts")
def test_after_a_killed_build_its_workers_end_and_the_next_is_whole(source, tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    done = subprocess.run([sys.executable, script, source, tmp_path / "c"], check=False, timeout=120, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while subprocess.run(["pgrep", "-f", str(script)], check=False, capture_output=True).stdout and time.monotonic() < deadline:
        time.sleep(0.1)
    assert time.monotonic() < deadline
    build_corpus([source], tmp_path / "c", workers=1, **SMALL)
    build_corpus([source], tmp_path / "whole", workers=1, **SMALL)
    assert tree(tmp_path / "c") == tree(tmp_path / "whole") and not (tmp_path / "c.staging").exists()


def test_a_full_disk_ends_in_one_line(source, tmp_path, monkeypatch, refused):
    with monkeypatch.context() as patch:
        patch.setattr(pa, "OSFile", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        said = refused("corpus", "build", source, "--out", tmp_path / "c", "--vocab-size", 400)
    assert "the disk is full. Make room and run the same command again" in said and not (tmp_path / "c").exists()
    assert build_corpus([source], tmp_path / "c", vocab_size=400).documents == 25


@pytest.mark.parametrize("out", ["in.jsonl/x", "y" * 300])
def test_a_corpus_that_cannot_be_made_there(source, out, tmp_path, refused):
    error = refused("corpus", "build", source, "--out", tmp_path / out)
    assert "no directory can be made here" in error and error.endswith("Choose another --out")


def test_a_corpus_below_its_own_sources(tmp_path, write_jsonl, city_rows):
    """Neither what is staged there nor a finished corpus is read as documents."""
    write_jsonl("in.jsonl", city_rows())
    first = build_corpus([tmp_path], tmp_path / "c", **SMALL)
    second = build_corpus([tmp_path], tmp_path / "deep" / "d", **SMALL)
    assert first.documents == second.documents == 24 and first.rejected == second.rejected == {}


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
