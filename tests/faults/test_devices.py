"""Links and renames across devices: what is shared by links is copied instead, and all else is one line."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from realm.cli import main
from realm.corpus.store.blocks import BlockStore
from realm.index.sparse import open_sparse
from realm.opening import open_run
from realm.pipeline import cached
from realm.pipeline.cached import open_cached
from realm.progress import Progress

QUIET = Progress(quiet=True)


def far(*arguments: Any, **options: Any) -> None:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(arguments[0]))


def test_cached_runs_keep_weights_of_their_own(notes: Path, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of weights lies on another device than a run: each run has its own copy, and is searched as ever."""
    body = str(tiny_run / "stages" / "pretrain")
    monkeypatch.setattr(cached.os, "link", far)
    first, second = (open_cached(places, body, QUIET).paths.root for places in ([notes], [notes / "arvad.txt"]))
    for run in (first, second):
        assert open_run(run).search("Arvad", 1)[0].doc_id == "arvad.txt" and not list(run.rglob("*.link"))
        assert all(file.stat().st_nlink == 1 for file in run.rglob("model.safetensors")) and main(["verify", str(run)]) == 0
    assert list(cached.weights_directory().iterdir()) == []


def test_a_link_that_is_there_and_no_rename(notes: Path, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, plain = str(tiny_run / "stages" / "pretrain"), os.replace
    open_cached([notes], body, QUIET)

    def replace(source: Any, target: Any) -> None:
        return far(source) if str(source).endswith(".link") else plain(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        run = open_cached([notes / "arvad.txt"], body, QUIET).paths.root
    assert open_run(run).search("Arvad", 1)
    (notes / "arvad.txt").write_text("People in Arvad pay with the dollar.")
    open_cached([notes / "arvad.txt"], body, QUIET)
    assert open_run(run).search("dollar", 1) and not [path for path in run.rglob("*.link") if path.stat().st_nlink == 1]


def test_sparse_search_is_made_anew_where_it_cannot_be_linked(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = BlockStore.open(tiny_run / "corpus")
    ids = np.asarray(store.block_ids)
    for number in (1, 2):
        (tmp_path / f"{number:06d}").mkdir()
    first = open_sparse(tmp_path, 1, ids, store)
    monkeypatch.setattr(os, "link", far)
    second = open_sparse(tmp_path, 2, ids, store)
    found = [index.search(["the currency of Arvad"], 3) for index in (first, second)]
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))
    assert not list(tmp_path.rglob("*.staging"))


def test_a_corpus_over_two_devices_is_refused_in_one_line(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """segments/ is a link to another disk: nothing is published, and the line says what to do."""
    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    before, plain = (run / "corpus" / "CURRENT").read_bytes(), os.replace

    def replace(source: Any, target: Any) -> None:
        return far(source) if Path(target).parent.name == "segments" else plain(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        assert main(["corpus", "add", str(run / "corpus"), str(tiny_run.parent / "more.jsonl")]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ") and "on one file system" in error
    assert (run / "corpus" / "CURRENT").read_bytes() == before
    assert main(["corpus", "add", str(run / "corpus"), str(tiny_run.parent / "more.jsonl")]) == 0
