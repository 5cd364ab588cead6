"""Codes of a generation: published with it, shared by all who open it, made again where they are missing or damaged."""

import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from realm.index import compressed, published_codes
from realm.index.base import ExactIndex
from realm.index.choice import make_index
from realm.index.delta import append_delta
from realm.index.manifest import SnapshotFacts, SnapshotManifest
from realm.index.native.kernel import Kernel
from realm.index.published_codes import CODES, HEADER
from realm.index.snapshot import Snapshot, publish_snapshot
from realm.storage import files

OWNER = {"corpus_id": "corpus-a", "tokenizer_sha256": "tok-a", "document_embedder_sha256": "emb-a"}
VECTORS = np.random.default_rng(0).standard_normal((500, 16)).astype(np.float32)
IDS = np.arange(500) * 2


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch, kernel: Callable[..., Kernel]) -> None:
    """Codes for few rows, too, and a kernel that every machine with a compiler runs."""
    monkeypatch.setattr(published_codes, "LEAST_ENTRIES", 0)
    for module in (published_codes, compressed):
        monkeypatch.setattr(module, "installed_kernel", lambda: kernel("scalar"))


def publish(directory: Path, **changes: Any) -> SnapshotManifest:
    facts = SnapshotFacts(params_generation=1, step=1, corpus_version=1, **{**OWNER, **changes})
    return publish_snapshot(directory, VECTORS, IDS, facts)


def searched(snapshot: Snapshot, rows: list[int]) -> None:
    """A search by the snapshot's codes, if it has any, is exact."""
    index = make_index(snapshot.vectors, snapshot.block_ids, kind="compressed", codes=snapshot.codes)
    queries = torch.from_numpy(snapshot.vectors[rows].copy())
    wanted = ExactIndex(snapshot.vectors, snapshot.block_ids).search(queries, 9)
    found = index.search(queries, 9)
    assert (found.ids == wanted.ids).all() and (found.scores == wanted.scores).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_who_opens_a_generation_does_not_make_codes(tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = publish(tmp_path, dtype=dtype)
    assert manifest.codes_sha256 is not None
    monkeypatch.setattr(compressed, "quantise", None)  # who calls it fails
    opened = [Snapshot.open(tmp_path, **OWNER) for _ in range(2)]
    for snapshot in opened:
        assert snapshot.codes is not None and isinstance(snapshot.codes.codes, np.memmap)
        searched(snapshot, [0, 77])
    files = [os.stat(snapshot.codes.codes.filename) for snapshot in opened if snapshot.codes is not None]
    assert len({(file.st_dev, file.st_ino) for file in files}) == 1, "one file, so one copy in the page cache"


def test_another_process_shares_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path)
    monkeypatch.setattr(compressed, "quantise", None)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            searched(Snapshot.open(tmp_path, **OWNER), [3])
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    searched(Snapshot.open(tmp_path, **OWNER), [3])


@pytest.mark.parametrize("damage", ["missing", "cut short", "changed", "header", "foreign"])
def test_codes_that_cannot_be_used_are_made_again(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    publish(tmp_path)
    codes = tmp_path / "000001" / CODES
    file = codes / ("codes.npy" if damage in ("missing", "cut short", "changed") else HEADER)
    if damage == "missing":
        file.unlink()
    elif damage == "foreign":
        other = publish_snapshot(
            tmp_path / "other", VECTORS[::-1].copy(), IDS, SnapshotFacts(params_generation=1, step=1, corpus_version=1, **OWNER)
        )
        assert other.count == len(IDS)
        for path in (tmp_path / "other" / "000001" / CODES).iterdir():
            (codes / path.name).write_bytes(path.read_bytes())
    else:
        data = file.read_bytes()
        file.write_bytes(data[:-9] if damage == "cut short" else data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    with caplog.at_level(logging.WARNING):
        snapshot = Snapshot.open(tmp_path, **OWNER)
    assert snapshot.codes is None and snapshot.manifest.generation == 1, "the generation itself is sound"
    assert "codes are rebuilt in memory" in caplog.text and file.name in caplog.text
    searched(snapshot, [5])


def test_a_delta_has_no_codes_until_the_next_generation(tmp_path: Path) -> None:
    manifest = publish(tmp_path)
    same = append_delta(tmp_path, 1, VECTORS[:0], IDS[:0], 2)
    assert same.codes_sha256 == manifest.codes_sha256 and Snapshot.open(tmp_path, **OWNER).codes is not None
    append_delta(tmp_path, 1, VECTORS[:3] + 1, IDS[-1] + 1 + np.arange(3), 3)
    snapshot = Snapshot.open(tmp_path, **OWNER)
    assert snapshot.codes is None and snapshot.manifest.count == 503
    searched(snapshot, [2, 501])


def test_few_rows_and_machines_without_a_kernel_publish_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(published_codes, "LEAST_ENTRIES", VECTORS.size + 1)
        assert publish(tmp_path).codes_sha256 is None
    publish(tmp_path)
    monkeypatch.setattr(published_codes, "installed_kernel", lambda: None)
    assert publish(tmp_path).codes_sha256 is None and not (tmp_path / "000003" / CODES).exists()
    assert Snapshot.open(tmp_path, 2, **OWNER).codes is None, "of no use here"


@pytest.mark.parametrize("options", [{"kind": "exact"}, {"kind": "compressed", "metric": "l2"}])
def test_other_kinds_and_distances_ignore_codes(tmp_path: Path, options: dict[str, Any]) -> None:
    publish(tmp_path)
    snapshot = Snapshot.open(tmp_path, **OWNER)
    found = make_index(snapshot.vectors, snapshot.block_ids, codes=snapshot.codes, **options).search(torch.from_numpy(VECTORS[:2]), 5)
    wanted = ExactIndex(VECTORS, IDS, metric=options.get("metric", "ip")).search(torch.from_numpy(VECTORS[:2]), 5)
    assert (found.ids == wanted.ids).all() and (found.scores == wanted.scores).all()


def test_killed_at_any_point_the_next_publisher_finishes(tmp_path: Path) -> None:
    """A process killed (SIGKILL) at each point of publishing leaves nothing that is opened, and nothing that stays."""
    seen: list[str] = []
    files.listener = lambda point, path: seen.append(point)
    try:
        publish(tmp_path / "whole")
    finally:
        files.listener = None
    assert seen.count("directory: synced") == 2, "the codes, then the generation"
    for number in range(len(seen)):
        directory = tmp_path / str(number)
        publish(directory)
        assert killed(lambda directory=directory: publish(directory), number)
        assert Snapshot.open(directory, **OWNER).codes is not None, "what was published before, or the new one"
        last = publish(directory)
        snapshot = Snapshot.open(directory, **OWNER)
        assert snapshot.manifest == last and snapshot.codes is not None
        searched(snapshot, [1])
        names = {path.name for path in directory.rglob("*")}
        assert not any(name.endswith((".staging", ".building", ".removed", ".quarantined")) for name in names)


def killed(work: Callable[[], object], number: int) -> bool:
    """Run ``work`` in a process that kills itself at the point of that number. Whether it did."""
    pid = os.fork()
    if pid == 0:
        passed = []

        def listen(point: str, path: Path) -> None:
            passed.append(point)
            if len(passed) > number:
                os.kill(os.getpid(), signal.SIGKILL)

        files.listener = listen
        try:
            work()
        finally:
            os._exit(9)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
