"""Codes on disk: what is opened is what was saved, memory-mapped, and never that of other vectors."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from realm.errors import SnapshotError
from realm.index import published_codes
from realm.index.base import ExactIndex
from realm.index.compressed import CompressedIndex
from realm.index.manifest import DamagedSnapshot
from realm.index.native.kernel import Kernel
from realm.index.published_codes import HEADER, open_codes, save_codes
from realm.index.quantised import ARRAYS, QuantisedRows, quantise
from realm.index.shards import decode, encode


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((300, 20)).astype(np.float32)


@pytest.fixture
def saved(tmp_path: Path, vectors: np.ndarray, kernel: Callable[..., Kernel]) -> tuple[Path, QuantisedRows]:
    rows = quantise(kernel("scalar"), vectors)
    save_codes(tmp_path / "codes", kernel("scalar"), vectors, made_from="abc")
    return tmp_path / "codes", rows


@pytest.mark.parametrize("verify", [False, True])
def test_opens_what_was_saved(saved: tuple[Path, QuantisedRows], vectors: np.ndarray, kernel: Callable[..., Kernel], verify: bool) -> None:
    directory, rows = saved
    opened = open_codes(directory, made_from="abc", metric="ip", verify=verify)
    assert (opened.rows, opened.dim) == (300, 20)
    for name in ARRAYS:
        assert isinstance(getattr(opened, name), np.memmap) and (getattr(opened, name) == getattr(rows, name)).all()
    ids, queries = np.arange(300), torch.from_numpy(vectors[:5])
    index = CompressedIndex(vectors.copy(), ids, kernel=kernel("scalar"), rows=opened)
    wanted = ExactIndex(vectors, ids).search(queries, 7)
    assert (index.search(queries, 7).ids == wanted.ids).all()


def test_codes_are_published_once(saved: tuple[Path, QuantisedRows], vectors: np.ndarray, kernel: Callable[..., Kernel]) -> None:
    with pytest.raises(FileExistsError):
        save_codes(saved[0], kernel("scalar"), vectors, made_from="abc")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_codes_made_in_parts_are_those_of_the_whole(
    tmp_path: Path, dtype: str, kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_codes, "CHUNK", 128)
    stored = encode(np.random.default_rng(1).standard_normal((300, 7)).astype(np.float32), dtype)
    save_codes(tmp_path / "codes", kernel("scalar"), stored, made_from="abc")
    rows, opened = quantise(kernel("scalar"), decode(stored)), open_codes(tmp_path / "codes", made_from="abc", metric="ip", verify=True)
    for name in ARRAYS:
        assert (getattr(opened, name) == getattr(rows, name)).all()


@pytest.mark.parametrize(("made_from", "metric"), [("other", "ip"), ("abc", "l2")])
def test_codes_of_other_vectors_are_refused(saved: tuple[Path, QuantisedRows], made_from: str, metric: str) -> None:
    with pytest.raises(SnapshotError, match="made from other vectors or for another metric"):
        open_codes(saved[0], made_from=made_from, metric=metric)


def test_another_format_is_refused(saved: tuple[Path, QuantisedRows]) -> None:
    header = saved[0] / HEADER
    header.write_text(json.dumps({**json.loads(header.read_text()), "format": 99}))
    with pytest.raises(SnapshotError, match="codes of format 99"):
        open_codes(saved[0], made_from="abc", metric="ip")


@pytest.mark.parametrize("name", ["codes.npy", "slack.npy", HEADER])
def test_damage_is_named(saved: tuple[Path, QuantisedRows], name: str) -> None:
    path = saved[0] / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedSnapshot, match=name):
        open_codes(saved[0], made_from="abc", metric="ip")
    path.unlink()
    with pytest.raises(DamagedSnapshot, match=f"{name}: missing"):
        open_codes(saved[0], made_from="abc", metric="ip")


def test_a_changed_byte_is_found_by_verifying(saved: tuple[Path, QuantisedRows]) -> None:
    path = saved[0] / "codes.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    open_codes(saved[0], made_from="abc", metric="ip")
    with pytest.raises(DamagedSnapshot, match=r"codes\.npy: changed since it was published"):
        open_codes(saved[0], made_from="abc", metric="ip", verify=True)


def test_a_header_without_its_entries_and_other_shapes_are_damage(saved: tuple[Path, QuantisedRows]) -> None:
    header = saved[0] / HEADER
    facts = json.loads(header.read_text())
    np.save(saved[0] / "scale.npy", np.zeros(3, np.float32))
    with pytest.raises(DamagedSnapshot, match=r"scale\.npy: holds float32 \[3\]"):
        open_codes(saved[0], made_from="abc", metric="ip")
    for broken in ({}, {**facts, "rows": "many"}, {**facts, "sha256": {}}, []):
        header.write_text(json.dumps(broken))
        with pytest.raises(DamagedSnapshot):
            open_codes(saved[0], made_from="abc", metric="ip")
