"""Mixed generations: which blocks are embedded first, what is published, who refuses it, and what a kill leaves."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from realm.errors import SnapshotError
from realm.index.delta import append_delta
from realm.index.manifest import MixedGeneration
from realm.index.snapshot import Snapshot, SnapshotFacts, publish_snapshot
from realm.refresh import embedding
from realm.refresh.building import publishing
from realm.refresh.mixing import RESERVED, Mixed, Renewal, first_rows
from realm.storage.generations import current_generation, next_generation
from realm.storage.write_points import POINTS

OWNER = {"corpus_id": "c", "tokenizer_sha256": "t", "document_embedder_sha256": None}
FACTS = {"corpus_id": "c", "tokenizer_sha256": "t", "corpus_version": 1}
IDS = np.arange(50, 71, dtype=np.int64)


def rows_of(generation: int, ids: np.ndarray) -> np.ndarray:
    """Rows that say which parameters embedded which block."""
    return np.stack([np.full(len(ids), generation), ids, np.ones(len(ids))], axis=1).astype(np.float32)


def assert_proven(snapshot: Snapshot) -> None:
    """Every row is of the block and of the parameters that the files say."""
    np.testing.assert_array_equal(snapshot.vectors[:, 0].astype(np.int32), snapshot.made_by)
    np.testing.assert_array_equal(snapshot.vectors[:, 1].astype(np.int64), snapshot.block_ids)


def embedded_by(number: int, ids: np.ndarray, size: int, seen: list[int] | None = None) -> Callable[[int], Iterator[np.ndarray]]:
    def parts(start: int) -> Iterator[np.ndarray]:
        if seen is not None:
            seen.append(start)
        for at in range(start, len(ids), size):
            yield rows_of(number, ids[at : at + size])

    return parts


def publish(index: Path, wanted: np.ndarray | None = None) -> Snapshot:
    """The next generation: whole, or going on from the newest one."""
    number = next_generation(index)
    facts = SnapshotFacts(params_generation=number, step=10 * number, document_embedder_sha256=f"e{number}", **FACTS)
    if wanted is None:
        publish_snapshot(index, rows_of(number, IDS), IDS, facts, generation=number)
    else:
        mixed = Mixed(Snapshot.open(index, **OWNER), IDS, wanted, facts)
        parts = mixed.parts(embedded_by(number, IDS[mixed.now], embedding.PART_ROWS))
        publish_snapshot(index, parts, IDS, mixed.facts, generation=number, row_params=mixed.row_params)
    return Snapshot.open(index, number, **OWNER)


def test_the_oldest_first_is_round_robin() -> None:
    made_by, turns = np.zeros(10, np.int32), []
    for number in range(1, 9):
        chosen = first_rows(made_by, np.zeros(10, np.int64), 0.25, "oldest")
        made_by[chosen] = number
        turns.append(np.flatnonzero(chosen).tolist())
    assert turns[:4] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 1, 9]] and {len(turn) for turn in turns} == {3}


def test_the_most_retrieved_first_as_a_slow_one_has_it() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        n = int(rng.integers(1, 40))
        made_by, times, share = rng.integers(1, 5, n), rng.integers(0, 4, n), float(rng.uniform(0.01, 1))
        number = int(np.ceil(share * n))
        by_age = sorted(range(n), key=lambda row: (made_by[row], row))
        expected = set(by_age[: int(np.ceil(RESERVED * number))])
        wanted = sorted(set(range(n)) - expected, key=lambda row: (-times[row], made_by[row], row))
        expected |= set(wanted[: number - len(expected)])
        assert set(np.flatnonzero(first_rows(made_by, times, share, "retrieved"))) == expected and len(expected) == number


def test_nothing_stays_old_for_ever() -> None:
    made_by, times = np.zeros(100, np.int32), np.arange(100)[::-1].copy()  # the same blocks are retrieved all the time
    for number in range(1, 60):
        made_by[first_rows(made_by, times, 0.2, "retrieved")] = number
    assert made_by.min() > 59 - 100 / (0.2 * 100 * RESERVED) - 1


def test_retrievals_are_counted_until_a_block_is_embedded(tmp_path: Path) -> None:
    whole = publish(tmp_path)
    renewal = Renewal(0.2, "retrieved")
    assert renewal.request() is None, "the first index is whole"
    renewal.searched(whole)
    renewal.count(np.array([[60, 61], [60, 69]]))
    asked = renewal.request()
    assert asked is not None and asked.base == 1 and asked.block_ids.tolist() == [50, 51, 52, 60, 61]
    again = Renewal(0.2, "retrieved")
    again.restore(json.loads(json.dumps(renewal.state())))
    again.base = whole
    repeated = again.request()
    assert repeated is not None and repeated.block_ids.tolist() == asked.block_ids.tolist()
    renewal.searched(publish(tmp_path, np.array([60, 61])))
    assert renewal.state() == {"block_ids": [69], "times": [1]}
    renewal.searched(publish(tmp_path))
    assert renewal.state() == {} and Renewal(1.0, "retrieved").request() is None


def test_rows_are_taken_from_the_base_or_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From wherever a build is taken up, and whatever the corpus lost and gained since: what one pass over all rows gives."""
    monkeypatch.setattr(embedding, "PART_ROWS", 4)
    publish(tmp_path)
    base = publish(tmp_path, IDS[5:12])
    ids = np.concatenate([IDS[2:15], IDS[16:], [90, 91]])
    facts = SnapshotFacts(params_generation=3, step=30, document_embedder_sha256="e3", **FACTS)
    mixed = Mixed(base, ids, np.array([50, 53, 60, 61, 62, 63, 70]), facts)
    expected_params = [3 if i in (53, 60, 61, 62, 63, 70, 90, 91) else 2 if 55 <= i < 62 else 1 for i in ids.tolist()]
    assert mixed.row_params.tolist() == expected_params and mixed.facts.kind == "mixed"
    assert [(p.params_generation, p.step, p.rows) for p in mixed.facts.mixture] == [(1, 10, 7), (2, 20, 5), (3, 30, 8)]
    full = np.concatenate([rows_of(number, ids[i : i + 1]) for i, number in enumerate(expected_params)])
    for start in range(len(ids) + 1):
        seen: list[int] = []
        found = [*mixed.parts(embedded_by(3, ids[mixed.now], 4, seen))(start)]
        np.testing.assert_array_equal(np.concatenate([np.zeros((0, 3), np.float32), *found]), full[start:])
        assert all(at % 4 == 0 for at in seen) and all(len(part) <= 4 for part in found)


def test_a_kind_and_its_rows_belong_together(tmp_path: Path) -> None:
    facts = SnapshotFacts(params_generation=1, step=1, document_embedder_sha256="e", **FACTS)
    with pytest.raises(ValueError, match="kind whole with parameters of every row"):
        publish_snapshot(tmp_path, rows_of(1, IDS), IDS, facts, row_params=np.ones(len(IDS), np.int32))


def test_published_opened_and_told(tmp_path: Path) -> None:
    publish(tmp_path)
    mixed = publish(tmp_path, IDS[::2])
    assert_proven(mixed)
    manifest = mixed.manifest
    assert (manifest.kind, manifest.params_generation, manifest.step, manifest.revision) == ("mixed", 2, 20, 0)
    assert manifest.params_ages == {"oldest": 1, "newest": 2, "mean": round(1 + 11 / 21, 2)}
    assert manifest.mean_step == pytest.approx(10 + 10 * 11 / 21) and manifest.newest_share == pytest.approx(11 / 21)
    with publishing(tmp_path):
        pass  # who holds the index next removes what no manifest names
    assert_proven(Snapshot.open(tmp_path, **OWNER))
    whole = publish(tmp_path)
    assert whole.manifest.kind == "whole" and whole.row_params is None and set(whole.made_by.tolist()) == {3}
    assert whole.manifest.params_ages == {"oldest": 3, "newest": 3, "mean": 3.0} and whole.manifest.mean_step == 30


@pytest.mark.parametrize("harm", ["flipped", "gone", "truncated", "of another generation"])
def test_damage_to_what_made_the_rows_is_found(tmp_path: Path, harm: str) -> None:
    publish(tmp_path)
    publish(tmp_path, IDS[:9])
    publish(tmp_path, IDS[9:11])
    file = tmp_path / "000003" / "row_params-00000.npy"
    if harm == "flipped":
        data = bytearray(file.read_bytes())
        data[-4] ^= 1
        file.write_bytes(data)
    elif harm == "gone":
        file.unlink()
    elif harm == "truncated":
        file.write_bytes(file.read_bytes()[:-4])
    else:
        shutil.copy(tmp_path / "000002" / file.name, file)
    assert Snapshot.open(tmp_path, **OWNER).manifest.generation == 2
    assert (tmp_path / "000003.quarantined").is_dir()


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Another manifest, with a checksum of its own."""
    value = json.loads(path.read_text())
    value.pop("manifest_sha256")
    change(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**value, "manifest_sha256": hashlib.sha256(text.encode()).hexdigest()}))


def test_manifests_of_before_are_whole_and_those_of_later_refused(tmp_path: Path) -> None:
    publish(tmp_path)
    manifest = tmp_path / "000001" / "manifest.json"

    def before(value: dict[str, Any]) -> None:
        del value["kind"], value["mixture"], value["shards"][0]["params_file"], value["shards"][0]["params_sha256"]

    rewritten(manifest, before)
    assert Snapshot.open(tmp_path, 1, **OWNER).manifest.kind == "whole"
    rewritten(manifest, lambda value: value.update(kind="folded"))
    with pytest.raises(SnapshotError, match="kind 'folded', which this version does not know"):
        Snapshot.open(tmp_path, 1, **OWNER)


def test_a_manifest_that_says_another_mixture_is_damaged(tmp_path: Path) -> None:
    publish(tmp_path)
    publish(tmp_path, IDS[:9])
    rewritten(tmp_path / "000002" / "manifest.json", lambda value: value["mixture"][0].update(rows=11))
    assert Snapshot.open(tmp_path, **OWNER).manifest.generation == 1


def test_one_embedder_is_asked_for_and_a_mixed_index_refused(tmp_path: Path) -> None:
    publish(tmp_path)
    publish(tmp_path, IDS[:9])
    with pytest.raises(MixedGeneration, match=r"parameters of steps 10 to 20, not by one frozen embedder\. Take the last"):
        Snapshot.open(tmp_path, 2, **{**OWNER, "document_embedder_sha256": "e2"})
    assert Snapshot.open(tmp_path, **{**OWNER, "document_embedder_sha256": "e1"}).manifest.generation == 1, "the newest that will do"
    with pytest.raises(MixedGeneration):
        append_delta(tmp_path, 2, rows_of(2, np.array([99])), np.array([99]), 2)


@pytest.mark.parametrize("point", sorted(p for p in POINTS if p.startswith(("array", "build", "generation: published", "file"))))
def test_killed_while_a_mixed_generation_is_published(tmp_path: Path, point: str, work: Any) -> None:
    publish(tmp_path)
    publish(tmp_path, IDS[3:9])

    def round_() -> None:
        with publishing(tmp_path):
            publish(tmp_path, IDS[5:20:2])

    assert work.dies(round_, lambda name: name == point)
    found = Snapshot.open(tmp_path, **OWNER)
    assert_proven(found)
    assert found.manifest.generation == current_generation(tmp_path) in (2, 3)
    round_()
    assert_proven(Snapshot.open(tmp_path, **OWNER))
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith((".staging", ".building", ".removed"))]
